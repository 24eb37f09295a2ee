"""FOCA: the extractor never meets the same head twice."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import nn

from clearance._checks import check_choice, check_count
from clearance.data.image_set import ImageSet
from clearance.heads.train import HeadTraining
from clearance.heads.weak import GradientHeads, WeakHeads
from clearance.models.classifier import Classifier, check_classifier
from clearance.objectives._objective import Objective
from clearance.objectives.cross_entropy import CrossEntropyLoss
from clearance.regimes._foca_training import FOCATraining
from clearance.regimes._inputs import check_objective
from clearance.regimes._regime import Generators, Regime, Training
from clearance.regimes.batch_norm import BatchNormPolicy

Mode = Literal["average", "cycle"]


@dataclass(frozen=True, eq=False)
class FOCA(Regime):
    r"""Feature-extractor optimisation through classifier anonymisation.

    phi* = argmin_phi  mean_i E_{theta ~ Theta_phi} L(C_theta(F_phi(x_i)), t_i)      (Eq. 2)

    Theta_phi is the set of weak heads, each trained from scratch on a small class-balanced batch of the
    current features (Eq. 3, 4). A step draws heads, holds them fixed, and moves the extractor on another
    batch (Algorithm 1). Nothing is differentiated through the training of a head, so the loss of a step
    need not fall from one step to the next. ``finish`` trains the head that the model keeps (Eq. 5).

    Source: Sato, Ishikawa, Liu, Tanaka, "Breaking Inter-Layer Co-Adaptation by Classifier Anonymization",
    ICML 2019. The method's authors reserve copyrights and patents on their own work; this is an
    independent implementation from the paper.

    Args:
        objective: The loss that moves the extractor.
        weak_heads: How heads are drawn; their architecture is that of the model's head. With an objective
            other than cross-entropy give them its `sample_loss` too: one loss serves both (Eq. 2 and 4).
        per_class: k, images of every class that a weak head is trained on, at least 1; 10 in the paper. Drawn
            with replacement, so a class may have fewer images than k.
        heads: K, heads drawn at once, at least 1; 1 in the paper.
        reuse: u, steps between two draws; at least 1; 1 (CIFAR-10) or 8 (CIFAR-100) in the paper.
        mode: ``"average"`` averages the loss over all K heads in each step; ``"cycle"`` uses one a step in turn.
            The paper has one head, where both are the same. With K near u, cycling costs one refresh in u steps
            and the extractor still meets another head in nearly every step.
        batch_norm: What the extractor's batch normalisation does with the heads' batches (all K together).
            ``"batch"`` normalises by their own statistics and leaves the running ones alone; ``"running"``
            normalises by the running ones; ``"update"`` is ``"batch"`` that also moves the running ones, as the
            authors' later code does. The paper's extractors have none.
        recalibrate: Whether ``finish`` first recomputes the running statistics from all training images
            (``recalibrate_batch_norm``). Off by default: the running ones then stay those of training.
        pool: A cheaper deviation from Algorithm 1, 0 by default: heads are trained on features of the last so
            many images that the extractor was moved on (as it saw them then, with their augmentation), which
            saves the heads' own forward pass. These features are up to pool / batch size steps old, and the
            extractor has just been moved on their images. Until all classes are there, and always with 0, heads
            get a forward pass of their own. At least the number of classes, unless 0.
        final_head: How ``finish`` trains the head that the model keeps, on all training images. (A Gaussian mixture
            is fitted to them in closed form instead.)

    A weak head that diverges is left out of its steps and counted. The unit of the first features drawn is
    the least one in which any weak head reads features (see GradientHeads); a run that starts from a trained
    network takes it from that network's features. Under torch.distributed each process draws heads of its own,
    from its own streams, and only gradients of the extractor are averaged.

    >>> FOCA(per_class=1).reuse
    1
    >>> FOCA(heads=8, reuse=8, mode="cycle").mode
    'cycle'
    """

    objective: Objective = field(default_factory=CrossEntropyLoss)
    weak_heads: WeakHeads = field(default_factory=GradientHeads)
    per_class: int = 10
    heads: int = 1
    reuse: int = 1
    final_head: HeadTraining = field(
        default_factory=lambda: HeadTraining(steps=2000, lr=0.03, momentum=0.9, batch_size=128)
    )
    mode: Mode = "average"
    batch_norm: BatchNormPolicy = "batch"
    recalibrate: bool = False
    pool: int = 0
    streams = ("head_init", "head_batch", "head_augmentation", "final_head")
    own_streams = ("head_init", "head_batch", "head_augmentation")
    trains_head = False

    def __post_init__(self) -> None:
        check_objective(self.objective)
        if isinstance(self.weak_heads, type) or not callable(getattr(self.weak_heads, "draw", None)):
            raise TypeError(
                "`weak_heads` must be a way to draw heads, such as clearance.heads.GradientHeads(); got "
                f"{self.weak_heads!r}."
            )
        check_count("per_class", self.per_class)
        check_count("heads", self.heads)
        check_count("reuse", self.reuse)
        check_count("pool", self.pool, minimum=0)
        check_choice("mode", self.mode, get_args(Mode))
        check_choice("batch_norm", self.batch_norm, get_args(BatchNormPolicy))
        if self.mode == "cycle" and self.heads > self.reuse:
            raise ValueError(
                f"`heads` must not exceed `reuse` with mode 'cycle', because heads beyond it would be drawn and "
                f"never used; got {self.heads} heads for {self.reuse} steps. Raise `reuse`, or draw fewer."
            )

    def trainable(self, model: Classifier) -> Iterable[nn.Parameter]:
        """The extractor and the objective; never a head."""
        check_classifier(model)
        return [*model.extractor.parameters(), *self.objective.parameters()]

    def start(
        self, model: Classifier, data: ImageSet, optimizer: torch.optim.Optimizer, generators: Generators
    ) -> Training:
        """Begin; weak heads are trained on images of `data`, which must hold every class.

        Raises:
            ValueError: If a class has no image, the pool is smaller than the number of classes, or the model's
                head cannot be stacked (batch normalisation, one layer used twice).
        """
        return FOCATraining(self, model, data, optimizer, generators)
