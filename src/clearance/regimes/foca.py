"""FOCA: the extractor never meets the same head twice."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from clearance._checks import check_count
from clearance.data.image_set import ImageSet
from clearance.heads.scale import feature_unit
from clearance.heads.stack import HeadStack
from clearance.heads.train import HeadTraining
from clearance.heads.weak import GradientHeads, WeakHeads
from clearance.heads.weak.gradient import train_on_unit_scale
from clearance.models.classifier import Classifier
from clearance.models.features import extract_features
from clearance.objectives._objective import Objective
from clearance.objectives.cross_entropy import CrossEntropyLoss
from clearance.regimes._class_balanced import ClassBalancedDraws
from clearance.regimes._regime import Generators, Regime, Training
from clearance.tensors import LossTerms, Outputs


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
        per_class: k, images of every class (drawn with replacement) that a weak head is trained on, at
            least 1; 10 in the paper.
        heads: K, heads drawn at once; their losses are averaged. At least 1; 1 in the paper.
        reuse: u, steps that use the same heads; at least 1; 1 (CIFAR-10) or 8 (CIFAR-100) in the paper.
        final_head: How ``finish`` trains the head that the model keeps, on all training images.

    Batch normalisation in the extractor normalises the heads' batches by their own statistics (of all K
    together) and leaves the running statistics alone. A weak head that diverges is left out of its steps and
    counted. The unit of the first features drawn is the least one in which any weak head reads features (see
    GradientHeads).

    >>> FOCA(per_class=1).reuse
    1
    """

    objective: Objective = field(default_factory=CrossEntropyLoss)
    weak_heads: WeakHeads = field(default_factory=GradientHeads)
    per_class: int = 10
    heads: int = 1
    reuse: int = 1
    final_head: HeadTraining = field(
        default_factory=lambda: HeadTraining(steps=2000, lr=0.03, momentum=0.9, batch_size=128)
    )
    streams = ("head_init", "head_batch", "head_augmentation", "final_head")
    trains_head = False

    def __post_init__(self) -> None:
        check_count("per_class", self.per_class)
        check_count("heads", self.heads)
        check_count("reuse", self.reuse)

    def trainable(self, model: Classifier) -> Iterable[nn.Parameter]:
        """The extractor and the objective; never a head."""
        return [*model.extractor.parameters(), *self.objective.parameters()]

    def start(
        self, model: Classifier, data: ImageSet, optimizer: torch.optim.Optimizer, generators: Generators
    ) -> Training:
        """Begin; weak heads are trained on images of `data`, which must hold every class.

        Raises:
            ValueError: If a class has no image.
        """
        return FOCATraining(self, model, data, optimizer, generators)


class FOCATraining(Training):
    """FOCA at work; `diverged_heads` of the `drawn_heads` so far were left out."""

    REDRAWS = 3  # a batch of features can be unlucky; four unlucky ones in a row are a diverged extractor

    def __init__(
        self,
        regime: FOCA,
        model: Classifier,
        data: ImageSet,
        optimizer: torch.optim.Optimizer,
        generators: Generators,
    ) -> None:
        self.regime, self.model, self.data, self.optimizer = regime, model, data, optimizer
        self.generators = generators
        self.draws = ClassBalancedDraws(data.labels, data.class_count)
        self.steps = self.drawn_heads = self.diverged_heads = 0
        self.heads: HeadStack | None = None
        self.first_unit: Tensor | None = None

    def step(self, images: Tensor, labels: Tensor) -> LossTerms:
        """Draw heads where it is time, then move the extractor on (images, labels) with them fixed."""
        if self.steps % self.regime.reuse == 0:
            self.heads = self._draw_heads()
        self.steps += 1
        if self.heads is None:
            return LossTerms({"weak_heads": images.new_tensor(torch.nan)})
        objective = self.regime.objective
        self.optimizer.zero_grad(set_to_none=True)
        outputs = self._features_of(images)
        loss = _loss_over_heads(objective, outputs, labels, self.heads)
        loss.total.backward()
        self.optimizer.step()
        with torch.no_grad():
            objective.after_step(outputs, labels)
        return loss

    def finish(self) -> None:
        """Train the head that the model keeps, on all training images and frozen features (Eq. 5)."""
        features = extract_features(self.model, self.data)
        generator = self.generators["final_head"]
        fresh = HeadStack.initialised(self.model.head, 1, generator)
        trained = train_on_unit_scale(
            fresh,
            features,
            self.data.labels,
            self.regime.final_head,
            loss=self.regime.objective.sample_loss,
            generator=generator,
        )
        self.model.head.load_state_dict({name: v[0] for name, v in trained.stack.parameters.items()})

    def counts(self) -> dict[str, int]:
        """Weak heads drawn, and how many of them diverged and were left out."""
        return {"drawn_heads": self.drawn_heads, "diverged_heads": self.diverged_heads}

    def state_dict(self) -> dict[str, Any]:
        """Where in the cycle of reuse we are, and the heads in use."""
        heads = None if self.heads is None else self.heads.parameters
        return {
            "steps": self.steps,
            "drawn_heads": self.drawn_heads,
            "diverged_heads": self.diverged_heads,
            "heads": heads,
            "first_unit": self.first_unit,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue in the middle of a cycle with the same heads."""
        self.steps, self.drawn_heads = state["steps"], state["drawn_heads"]
        self.diverged_heads = state["diverged_heads"]
        device = next(self.model.parameters()).device
        unit, heads = state["first_unit"], state["heads"]
        self.first_unit = None if unit is None else unit.to(device)
        self.heads = None
        if heads is not None:
            self.heads = HeadStack(self.model.head, {name: v.to(device) for name, v in heads.items()})

    def _draw_heads(self) -> HeadStack | None:
        for _ in range(1 + self.REDRAWS):
            features, labels = self._head_batch()
            if self.first_unit is None:
                self.first_unit = feature_unit(features)
            trained = self.regime.weak_heads.draw(
                self.model.head, features, labels, self.generators["head_init"], self.first_unit
            )
            self.drawn_heads += len(trained.stack)
            self.diverged_heads += int(trained.diverged.sum())
            if not bool(trained.diverged.all()):
                return trained.intact()
        return None

    @torch.no_grad()
    def _head_batch(self) -> tuple[Tensor, Tensor]:
        """Features (K, n, D) and labels (K, n) of one class-balanced batch for each head."""
        rows = self.draws.draw(self.regime.heads, self.regime.per_class, self.generators["head_batch"])
        images, labels = self.data.batch(rows.flatten(), self.generators["head_augmentation"])
        with running_statistics_frozen(self.model.extractor):
            features = self.model.features(images)
        return features.view(*rows.shape, -1), labels.view(rows.shape)

    def _features_of(self, images: Tensor) -> Outputs:
        assert self.heads is not None
        return self.model.outputs(images, self.regime.objective.layers, head=self.heads)


def _loss_over_heads(objective: Objective, outputs: Outputs, labels: Tensor, heads: HeadStack) -> LossTerms:
    """The mean over heads of each term (Eq. 2: the loss is averaged, never the logits)."""
    if objective.reads_logits_only:
        return objective(outputs, labels)
    losses = [objective(outputs.with_head(heads[k]), labels).terms for k in range(len(heads))]
    return LossTerms({name: torch.stack([terms[name] for terms in losses]).mean() for name in losses[0]})


@contextmanager
def running_statistics_frozen(module: nn.Module) -> Iterator[None]:
    """Batch normalisation normalises by the batch while the block runs, and remembers nothing of it."""
    tracking = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    tracking = [m for m in tracking if m.training and m.track_running_stats]
    for layer in tracking:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in tracking:
            layer.track_running_stats = True
