"""FOCA: the extractor is trained against new weak heads in every step, each trained on a small batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from clearance._checks import check_choice, check_count
from clearance._processes import average_gradients, copy_from_first, in_any_process
from clearance.data.image_set import ImageSet
from clearance.data.intake import open_images
from clearance.heads.gaussian_mixture import GaussianMixture
from clearance.heads.scale import feature_unit
from clearance.heads.stack import HeadStack
from clearance.heads.train import HeadTraining
from clearance.heads.weak import GradientHeads, WeakHeads
from clearance.heads.weak.gradient import train_on_unit_scale
from clearance.losses._loss import Loss, TrainingWarning
from clearance.losses.cross_entropy import CrossEntropyLoss
from clearance.losses.squared_error import SquaredErrorLoss
from clearance.models._running import device_of, evaluating
from clearance.models.classifier import Classifier, check_classifier, check_logits, check_separate
from clearance.models.features import extract_features
from clearance.tensors import LossTerms, Outputs, head_logits, joined
from clearance.training._way import (
    Generators,
    Training,
    WayOfTraining,
    chance_accuracy,
    check_batch,
    check_loss,
    check_moved,
    check_optimizer,
    checked_generators,
)
from clearance.training.batch_norm import (
    BatchNormPolicy,
    frozen_layers,
    head_batch_statistics,
    recalibrate_batch_norm,
)

Mode = Literal["average", "cycle"]


@dataclass(frozen=True, eq=False)
class FOCA(WayOfTraining):
    r"""Feature-extractor optimisation through classifier anonymisation.

    phi* = argmin_phi  mean_i E_{theta ~ Theta_phi} L(C_theta(F_phi(x_i)), t_i)      (Eq. 2)

    Theta_phi is the set of weak heads, each trained from scratch on a small class-balanced batch of the
    current features (Eq. 3, 4). A step draws heads, freezes them, and moves the extractor on another
    batch (Algorithm 1). Nothing is differentiated through the training of a head, so the loss of a step
    need not fall from one step to the next. ``finish`` trains the head that the model keeps (Eq. 5).

    Source: Sato, Ishikawa, Liu, Tanaka, "Breaking Inter-Layer Co-Adaptation by Classifier Anonymization",
    ICML 2019. The method's authors reserve copyrights and patents on their own work; this is an
    independent implementation from the paper.

    Args:
        loss: The loss that moves the extractor.
        weak_heads: How heads are drawn; they have the architecture of the model's head. The paper uses one loss for
            heads and extractor (Eq. 2 and 4); `GradientHeads` train on cross-entropy unless they get another `loss`.
            Squared error needs its own heads, such as `RidgeHeads`.
        per_class: k, images of every class that a weak head is trained on, at least 1; 10 in the paper. Drawn
            with replacement, so a class may have fewer images than k.
        heads: K, heads drawn at once, at least 1; 1 in the paper.
        reuse: u, steps between two draws; at least 1; 1 (CIFAR-10) or 8 (CIFAR-100) in the paper.
        mode: ``"average"`` averages the loss over all K heads in each step; ``"cycle"`` uses one head per step in
            turn. The paper has one head, for which both are the same. With K near u, cycling needs one draw in u
            steps and still uses another head in nearly every step.
        batch_norm: What the extractor's batch normalisation does with the heads' batches (all K together).
            ``"batch"`` normalises by their own statistics and does not change the running ones; ``"running"``
            normalises by the running ones; ``"update"`` is ``"batch"`` and also updates the running ones, as in
            the authors' later code. The paper's extractors have no batch normalisation.
        recalibrate: Whether ``finish`` first recomputes the running statistics from all training images
            (``recalibrate_batch_norm``). Off by default: the running statistics of training are kept.
        pool: A cheaper deviation from Algorithm 1, 0 by default: heads are trained on stored features of
            the last `pool` training images (with their augmentation at the time), which saves a separate forward
            pass. These features are up to pool / batch size steps old, and the extractor has just been trained on
            their images. While a class is missing in the pool, and always with 0, heads use a separate forward
            pass. At least the number of classes, unless 0.
        final_head: How ``finish`` trains the head that the model keeps, on all training images. (A Gaussian mixture
            is fitted in closed form instead.)

    Raises:
        TypeError: If `loss` is not a Loss, or `weak_heads` draws no heads.
        ValueError: If a setting is out of range or unknown, or heads of cross-entropy are to move features by squared
            error: these shrink to one point.

    A weak head that diverges is left out of its steps and counted. Weak heads read features in a unit that is at
    least that of the first features drawn (see GradientHeads); a run that starts from a trained network uses that
    network's features. Under torch.distributed each process draws its own heads from its own streams. ``step`` averages
    gradients of the extractor; with ``loss`` your DistributedDataParallel does, if it was made with a frozen head.

    >>> FOCA(per_class=1).reuse
    1
    >>> FOCA(heads=8, reuse=8, mode="cycle").mode
    'cycle'
    """

    loss: Loss = field(default_factory=CrossEntropyLoss)
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
        check_loss(self.loss)
        if isinstance(self.weak_heads, type) or not callable(getattr(self.weak_heads, "draw", None)):
            raise TypeError(
                "`weak_heads` must be a way to draw heads, such as clearance.heads.GradientHeads(); got "
                f"{self.weak_heads!r}."
            )
        heads = self.weak_heads
        if (
            isinstance(self.loss, SquaredErrorLoss)
            and isinstance(heads, GradientHeads)
            and heads.loss is None
        ):
            raise ValueError(
                "`weak_heads` must be trained on squared error where the extractor is; got GradientHeads of "
                "cross-entropy. Write weak_heads=clearance.heads.RidgeHeads()."
            )
        check_count("per_class", self.per_class)
        check_count("heads", self.heads)
        check_count("reuse", self.reuse)
        check_count("pool", self.pool, minimum=0)
        check_choice("mode", self.mode, get_args(Mode))
        check_choice("batch_norm", self.batch_norm, get_args(BatchNormPolicy))
        if self.mode == "cycle" and self.heads > self.reuse:
            raise ValueError(
                f"`heads` must not exceed `reuse` with mode 'cycle', because the additional heads would "
                f"never be used; got {self.heads} heads for {self.reuse} steps. Raise `reuse`, or draw fewer."
            )

    def trainable(self, model: Classifier) -> Iterable[nn.Parameter]:
        """The extractor and the loss, each parameter once; never a head."""
        check_classifier(model)
        head = set(model.head.parameters())
        of_loss = (one for one in self.loss.parameters() if one not in head)
        return list(dict.fromkeys([*model.extractor.parameters(), *of_loss]))

    def start(
        self,
        model: Classifier,
        data: Any,
        optimizer: torch.optim.Optimizer | None = None,
        generators: Generators | None = None,
    ) -> FOCATraining:
        """Start; weak heads are trained on images of `data`, which must contain every class.

        Args:
            model: Trained in place.
            data: The training images, as :func:`clearance.data.open_images` takes them.
            optimizer: Of ``trainable(model)``; None if another program steps, see :class:`FOCATraining`.
            generators: As ``generators`` makes them; None is those of seed 0.

        Raises:
            TypeError: If the head's weights are in half precision, or `generators` is a seed.
            ValueError: If a class has no image, the pool is smaller than the number of classes, or the model's
                head cannot be stacked (batch normalisation, one layer used twice).
        """
        return FOCATraining(self, model, data, optimizer, checked_generators(self, generators))


class FOCATraining(Training):
    """FOCA applied to one model; `diverged_heads` of the `drawn_heads` so far were left out.

    ``step`` does everything. In a loop of another program (a Trainer, a LightningModule), ``loss`` is the number to
    differentiate, that program clips, scales, accumulates and steps, and then calls ``after_step``:

    >>> from clearance.data import gaussian_images
    >>> from clearance.heads import MLP
    >>> data = gaussian_images(per_class=10, shape=(1, 4, 4))
    >>> model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 32)), MLP((32, 3)))
    >>> way = FOCA(per_class=5)
    >>> optimizer, training = torch.optim.SGD(way.trainable(model), lr=0.01), way.start(model, data)
    >>> for _ in range(3):
    ...     for images, labels in (data.batch(rows) for rows in torch.randperm(len(data)).split(15)):
    ...         (training.loss(images, labels).total / 2).backward()    # accumulated over two batches
    ...     optimizer.step()
    ...     training.after_step()
    ...     optimizer.zero_grad()
    >>> training.finish()
    >>> training.counts()
    {'drawn_heads': 3, 'diverged_heads': 0}
    """

    HALVINGS = 8  # of the final head's learning rate at most
    RUNAWAY = 100.0  # times the first features' unit; under GradientHeads digits grew up to 40 times
    FORGOTTEN = 50  # batches without `after_step`; fewer may be one step of accumulated gradients
    REDRAWS = 3  # one batch of features may fail by chance; four in a row mean a diverged extractor

    def __init__(
        self,
        way: FOCA,
        model: Classifier,
        data: Any,
        optimizer: torch.optim.Optimizer | None,
        generators: Generators,
    ) -> None:
        check_classifier(model)
        check_separate(model.extractor, model.head)
        HeadStack.of(model.head)  # refuses a head that cannot be stacked before anything has moved
        _check_precision(model.head)
        self._device = device_of(model)
        data = open_images(data)
        if data.labels.device != self._device:
            data = data.to(self._device)
        self.way, self.model, self.data, self.optimizer = way, model, data, optimizer
        self.generators = generators
        self.batches = _HeadBatches(model, data, generators, way.batch_norm, way.pool)
        self.weakness = Weakness()
        self.steps = self.drawn_heads = self.diverged_heads = 0
        # batches of the step in progress; None for one without heads
        self._seen: list[tuple[Outputs, Tensor] | None] = []
        self._warned_of_heads = self._warned_of_mode = self._said_forgotten = False
        self.heads: HeadStack | None = None
        self.first_unit: Tensor | None = None
        self._moved = list(way.trainable(model))
        check_moved(self._moved)
        if optimizer is not None:
            check_optimizer(optimizer, self._moved)
        way.loss._watch_anew()
        copy_from_first(model, way.loss)

    def step(self, images: Tensor, labels: Tensor) -> LossTerms:
        """Draw heads if they are due, then move the extractor on (images, labels) with the heads frozen.

        Raises:
            ValueError: If training was started without an optimiser.
        """
        if self.optimizer is None:
            raise ValueError(
                "`step` needs an optimiser; got none at the start. Give one, or call `loss` and `after_step`."
            )
        terms = self.loss(images, labels)
        if self.heads is None:
            self.after_step()
            return LossTerms({"weak_heads": images.new_tensor(torch.nan)})
        self.optimizer.zero_grad(set_to_none=True)
        terms.total.backward()
        average_gradients(self._moved, len(labels))
        self.optimizer.step()
        torch.clear_autocast_cache()  # casts of the weights before this step, if the caller's block spans several
        self.after_step()
        return terms

    def loss(self, images: Tensor, labels: Tensor, model: Callable[..., Outputs] | None = None) -> LossTerms:
        """The loss of a batch, to be differentiated; heads are drawn if they are due.

        Until ``after_step``, more batches belong to the same step of the optimiser and meet the same heads; at the 50th
        a `TrainingWarning` asks for it. If no weak head could be trained, there is one term, which is 0 and has the
        gradient 0.

        Args:
            images: (B, C, H, W), in [0, 1].
            labels: (B,), int64.
            model: Called in place of the classifier: what another package has put around it, such as
                DistributedDataParallel, which then averages the gradients.
        """
        check_batch(images, labels, self.data)
        self._check_place(model)
        self.model.unfinished = "FOCA"
        self._warn_of_evaluation_mode()
        place = self.steps % self.way.reuse
        if place == 0 and not self._seen:
            drawn = self._draw_heads()
            self.heads = None if in_any_process(drawn is None, self._device) else drawn
        if self.heads is None:
            self._warn_of_heads()
            self._seen.append(None)
            nothing = [(one * 0).sum() for one in self._moved if one.requires_grad]
            return LossTerms({"weak_heads": torch.stack(nothing).sum()})
        heads, loss = self._in_use(self.heads, place), self.way.loss
        call = self.model if model is None else model
        outputs: Outputs = call(images, layers=loss.layers, head=heads)
        terms = _loss_over_heads(loss, outputs, labels, heads)
        self._seen.append((outputs.detached(), labels))
        if len(self._seen) == self.FORGOTTEN and not self._said_forgotten:
            self._said_forgotten = True
            warnings.warn(
                f"the weak heads are the same for {self.FORGOTTEN} batches, all of which are kept in memory; unless "
                "one step accumulates as many, call after_step() after each step of the optimiser.",
                TrainingWarning,
                stacklevel=2,
            )
        return terms

    @torch.no_grad()
    def after_step(self) -> None:
        """Count a step of the optimiser over the batches since the last one; call it after each.

        The losses' own ``after_step`` is called here.
        """
        batches = [seen for seen in self._seen if seen is not None]
        if batches:
            outputs, labels = joined(batches)
            self.way.loss.after_step(outputs, labels)
            self.weakness.note(outputs.logits, labels)
            self.batches.pool.add(outputs.features, labels)
        self.steps += bool(self._seen)
        self._seen.clear()

    def finish(self) -> None:
        """Train the head that the model keeps, on all training images and frozen features (Eq. 5).

        A Gaussian mixture is fitted in closed form: its maximum-likelihood means and variances.

        Training that diverges, as squared error on large features may, begins again at half the learning rate.

        Warns:
            UserWarning: If features have grown too much, or the head diverges at every rate, or tells no classes apart
                although weak heads did.
        """
        with torch.autocast(self._device.type, enabled=False):
            self._train_final_head()
        self.model.unfinished = None

    def _train_final_head(self) -> None:
        if self.way.recalibrate:
            recalibrate_batch_norm(self.model, self.data)
        features = extract_features(self.model, self.data)
        self._warn_of_runaway(features)
        if isinstance(self.model.head, GaussianMixture):
            if bool(features.isfinite().all()):  # of others nothing can be fitted: training has diverged
                self.model.head.fit_statistics(features, self.data.labels)
            return
        generator, training = self.generators["final_head"], self.way.final_head
        mode = self.model.head.training
        self.model.head.train()  # dropout in it is a part of its training
        fresh = HeadStack.initialised(self.model.head, 1, generator)
        for _ in range(1 + self.HALVINGS):
            trained = train_on_unit_scale(
                fresh,
                features,
                self.data.labels,
                training,
                loss=self.way.loss.sample_loss,
                generator=generator,
            )
            if not bool(trained.diverged) or not bool(features.isfinite().all()):
                break
            training = replace(training, lr=training.lr / 2)
        else:
            warnings.warn(
                f"the final head diverged at every learning rate from {self.way.final_head.lr:g} down to "
                f"{2 * training.lr:g}; set a lower one: final_head=HeadTraining(lr=...).",
                TrainingWarning,
                stacklevel=3,
            )
        with torch.no_grad():
            for name, value in self.model.head.named_parameters():
                value.copy_(trained.stack.parameters[name][0])
        self._warn_at_chance(features)
        self.model.head.train(mode)

    def _warn_at_chance(self, features: Tensor) -> None:
        """Where weak heads told the classes apart and the head that is kept does not."""
        labels, weak = self.data.labels, self.weakness.accuracy
        self.model.head.eval()
        with torch.no_grad():
            named = [head_logits(self.model.head, part).argmax(dim=1) for part in features.split(4096)]
        right, chance = float((torch.cat(named) == labels).double().mean()), chance_accuracy(labels)
        if weak is not None and right <= chance < weak:
            warnings.warn(
                f"the final head is right on {right:.0%} of the training images, no better than always naming one "
                f"class; weak heads were right on {weak:.0%}. Set a lower learning rate, or more steps: "
                "final_head=HeadTraining(lr=..., steps=...).",
                TrainingWarning,
                stacklevel=4,
            )

    def counts(self) -> dict[str, int]:
        """Weak heads drawn, and how many of them diverged and were left out."""
        return {"drawn_heads": self.drawn_heads, "diverged_heads": self.diverged_heads}

    def diagnostics(self) -> dict[str, float]:
        """Mean accuracy of the weak heads on the extractor's batches, and the share at chance or below."""
        return self.weakness.take()

    def state_dict(self) -> dict[str, Any]:
        """The position in the cycle of reuse, the heads in use, and the pool's content.

        Without the states of `generators`: a caller who wants the same draws after resuming saves them, as ``fit``
        does.
        """
        heads = None if self.heads is None else self.heads.parameters
        return {
            "steps": self.steps,
            "drawn_heads": self.drawn_heads,
            "diverged_heads": self.diverged_heads,
            "heads": heads,
            "first_unit": self.first_unit,
            "pool": self.batches.pool.state_dict(),
            "weakness": self.weakness.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue in the middle of a cycle with the same heads."""
        self.steps, self.drawn_heads = state["steps"], state["drawn_heads"]
        self.diverged_heads = state["diverged_heads"]
        unit, heads = state["first_unit"], state["heads"]
        self.first_unit = None if unit is None else unit.to(self._device)
        self.heads = None
        if heads is not None:
            parameters = {name: value.to(self._device) for name, value in heads.items()}
            self.heads = HeadStack(self.model.head, parameters)
        self.batches.pool.load_state_dict(state["pool"], self._device)
        self.weakness.load_state_dict(state["weakness"], self._device)

    def _check_place(self, model: object) -> None:
        if device_of(self.model) != self._device:
            raise ValueError(
                f"FOCA must start with the model on its device; got one that was started on {self._device} and is on "
                f"{device_of(self.model)}. Move the model first."
            )
        if isinstance(model, nn.parallel.DistributedDataParallel) and any(
            one.requires_grad for one in self.model.head.parameters()
        ):
            raise ValueError(
                "the head must be frozen before DistributedDataParallel is put around the model, which waits for a "
                "gradient of every parameter that needs one; got one that needs them. Write "
                "model.head.requires_grad_(False) first."
            )

    def _draw_heads(self) -> HeadStack | None:
        for _ in range(1 + self.REDRAWS):
            features, labels = self.batches.draw(self.way.heads, self.way.per_class)
            if self.first_unit is None:
                self.first_unit = feature_unit(features)
                with evaluating(self.model.head):
                    check_logits(self.model.head(features[0, :1]), self.data.class_count)
            # A few steps in full precision are cheap; in bfloat16 their rounding is larger than a step.
            with torch.autocast(features.device.type, enabled=False):
                trained = self.way.weak_heads.draw(
                    self.model.head, features, labels, self.generators["head_init"], self.first_unit
                )
            self.drawn_heads += len(trained.stack)
            self.diverged_heads += int(trained.diverged.sum())
            if not bool(trained.diverged.all()):
                return trained.intact()
        return None

    def _began_finite(self) -> bool:
        return self.first_unit is not None and bool(self.first_unit.isfinite())

    def _warn_of_heads(self) -> None:
        if not self._warned_of_heads:
            self._warned_of_heads = True
            remedy = (
                "its features are probably too large or not finite; lower the learning rate, or clip the gradient"
                if self.steps
                or not isinstance(self.way.weak_heads, GradientHeads)
                or not self._began_finite()
                else "the heads' own learning rate is probably too large for their loss; lower that of weak_heads: "
                "replace(weak_heads, training=HeadTraining(lr=...))"
            )
            warnings.warn(
                f"training has stopped at step {self.steps + 1}: no weak head of {1 + self.REDRAWS} draws could be "
                f"trained, so that steps no longer move the extractor; {remedy}.",
                TrainingWarning,
                stacklevel=3,
            )

    def _warn_of_evaluation_mode(self) -> None:
        if self._warned_of_mode:
            return
        kept = frozen_layers(self.model.extractor)
        if any(
            not one.training and one.track_running_stats and one not in kept
            for one in self.model.extractor.modules()
            if isinstance(one, nn.modules.batchnorm._BatchNorm)
        ):
            self._warned_of_mode = True
            warnings.warn(
                "the extractor's batch normalisation is in evaluation mode, in which it does not bound the scale of "
                "features, and weak heads follow that scale; call model.train() before the step.",
                TrainingWarning,
                stacklevel=3,
            )

    def _warn_of_runaway(self, features: Tensor) -> None:
        if self.first_unit is None:
            return
        growth = float(feature_unit(features) / self.first_unit)
        if growth > self.RUNAWAY:
            warnings.warn(
                f"features are {growth:.3g} times as large as when FOCA began: weak heads follow the scale of the "
                "features and do not bound it, so steps now change little and features may separate classes badly. "
                "Use batch normalisation in the extractor (norm='batch'), a lower learning rate, or GradientHeads.",
                UserWarning,
                stacklevel=4,
            )

    def _in_use(self, heads: HeadStack, place: int) -> HeadStack:
        """All heads of the last draw, or one of them in turn."""
        if self.way.mode == "average":
            return heads
        return heads.select(torch.tensor([place % len(heads)]))


def _check_precision(head: nn.Module) -> None:
    low = {
        str(value.dtype) for value in head.parameters() if value.dtype not in (torch.float32, torch.float64)
    }
    if low:
        raise TypeError(
            f"FOCA trains weak heads in float32 or float64; got a head in {', '.join(sorted(low))}. Convert the model "
            "with model.float(), and ask for mixed precision with Execution(autocast=torch.bfloat16)."
        )


def _loss_over_heads(loss: Loss, outputs: Outputs, labels: Tensor, heads: HeadStack) -> LossTerms:
    """The mean over heads of each term (Eq. 2: the loss is averaged, never the logits)."""
    if loss.reads_logits_only:
        return loss(outputs, labels)
    by_head = [loss(outputs.with_head(heads[0]), labels).terms]
    with loss._for_another_head():
        by_head += [loss(outputs.with_head(heads[k]), labels).terms for k in range(1, len(heads))]
    return LossTerms({name: torch.stack([terms[name] for terms in by_head]).mean() for name in by_head[0]})


class _HeadBatches:
    """Draws of detached features in at least float32, from a separate forward pass or from the pool."""

    def __init__(
        self, model: Classifier, data: ImageSet, generators: Generators, policy: BatchNormPolicy, pool: int
    ) -> None:
        self.model, self.data, self.generators, self.policy = model, data, generators, policy
        self.images = ClassBalancedDraws(data.labels, data.class_count)
        self.pool = FeaturePool(pool, data.class_count)

    @torch.no_grad()
    def draw(self, heads: int, per_class: int) -> tuple[Tensor, Tensor]:
        """Features (K, n, D) and labels (K, n) of one class-balanced batch for each head."""
        stream = self.generators["head_batch"]
        if self.pool.holds_every_class:
            features, labels = self.pool.draw(heads, per_class, stream)
        else:
            rows = self.images.draw(heads, per_class, stream)
            images, labels = self.data.batch(rows.flatten(), self.generators["head_augmentation"])
            with head_batch_statistics(self.model.extractor, self.policy):
                features = self.model.features(images)
            torch.clear_autocast_cache()  # in torch 2.6 the step would use these casts, which have no graph
            features, labels = features.view(*rows.shape, -1), labels.view(rows.shape)
        return features if features.dtype.itemsize >= 4 else features.float(), labels


class ClassBalancedDraws:
    """Draws of the same number of rows from every class (Sato et al. 2019, Algorithm 1, line 4).

    Raises:
        ValueError: If a class has no image: a weak head would learn to suppress it.
    """

    def __init__(self, labels: Tensor, classes: int) -> None:
        counts = torch.bincount(labels, minlength=classes)
        if not bool((counts > 0).all()):
            missing = (counts == 0).nonzero().flatten().tolist()
            raise ValueError(
                f"every class must have an image, because a weak head is trained on all classes; got none of "
                f"class {missing}. Remove these classes, or add images."
            )
        self._order = labels.argsort(stable=True)
        self._counts = counts.cpu()
        self._starts = self._counts.cumsum(0) - self._counts

    def draw(self, heads: int, per_class: int, generator: torch.Generator) -> Tensor:
        """Row numbers, shape (heads, classes * per_class), sorted by class."""
        uniform = torch.rand(heads, len(self._counts), per_class, generator=generator, dtype=torch.float32)
        within = (uniform * self._counts[:, None]).long()
        places = (self._starts[:, None] + within).flatten(1)
        return self._order[places.to(self._order.device)]


class FeaturePool:
    """The last `size` detached features of the extractor's own batches, with their labels.

    Features of older steps are those of an older extractor: at most size / batch size steps behind.

    >>> pool = FeaturePool(size=3, classes=2)
    >>> pool.add(torch.arange(4.0)[:, None], torch.tensor([0, 1, 0, 0]))
    >>> pool.features.flatten().tolist(), pool.holds_every_class
    ([1.0, 2.0, 3.0], True)
    """

    def __init__(self, size: int, classes: int) -> None:
        if 0 < size < classes:
            raise ValueError(
                f"`pool` must be 0 or at least the number of classes, {classes}, because heads are trained on "
                f"all of them; got {size}. Use the size of several batches."
            )
        self.size, self.classes = size, classes
        self.features: Tensor | None = None
        self.labels: Tensor | None = None

    @property
    def holds_every_class(self) -> bool:
        """Whether heads can be trained on it."""
        if self.labels is None:
            return False
        return bool((torch.bincount(self.labels, minlength=self.classes) > 0).all())

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Add a batch's features (B, D) and labels (B,); the oldest are removed."""
        if self.size == 0:
            return
        features = features.detach()
        if self.features is not None and self.labels is not None:
            features = torch.cat([self.features, features])
            labels = torch.cat([self.labels, labels])
        # Copies, so that neither a caller's tensor nor removed features are kept alive.
        self.features, self.labels = features[-self.size :].clone(), labels[-self.size :].clone()

    def draw(self, heads: int, per_class: int, stream: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features (K, n, D) and labels (K, n), class-balanced, drawn with replacement."""
        assert self.features is not None
        assert self.labels is not None
        rows = ClassBalancedDraws(self.labels, self.classes).draw(heads, per_class, stream)
        return self.features[rows], self.labels[rows]

    def state_dict(self) -> dict[str, Any]:
        """Its features and labels."""
        return {"features": self.features, "labels": self.labels}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Continue with stored features and labels."""
        features, labels = state["features"], state["labels"]
        self.features = None if features is None else features.to(device)
        self.labels = None if labels is None else labels.to(device)


class Weakness:
    """Accuracy of heads on batches that they were not trained on, accumulated since the last `take`.

    Near 1, heads are strong: they agree with each other, and the extractor learns little from them. At
    chance (1 / classes) or below they are mostly noise.

    >>> weakness = Weakness()
    >>> logits = torch.eye(2).expand(3, 2, 2)
    >>> weakness.note(logits, torch.tensor([0, 1]))
    >>> weakness.take()
    {'weak_head_accuracy': 1.0, 'weak_heads_at_chance': 0.0}
    """

    def __init__(self) -> None:
        self._sums: Tensor | None = None  # accuracy, heads at chance, heads; on the device, to avoid waiting
        self._taken: float | None = None

    @property
    def accuracy(self) -> float | None:
        """Mean accuracy since the last `take`, or what that gave; None if no head was counted."""
        return self._taken if self._sums is None else float(self._sums[0] / self._sums[2])

    @torch.no_grad()
    def note(self, logits: Tensor, labels: Tensor) -> None:
        """Count K heads by their logits (K, B, C) for labels (B,)."""
        accuracy = (logits.argmax(dim=-1) == labels).float().mean(dim=-1)
        at_chance = (accuracy <= 1 / logits.shape[-1]).float()
        sums = torch.stack([accuracy.sum(), at_chance.sum(), accuracy.new_tensor(float(len(accuracy)))])
        self._sums = sums if self._sums is None else self._sums + sums

    def take(self) -> dict[str, float]:
        """Mean accuracy, and the share of heads at chance or below, over all counted heads; then reset."""
        if self._sums is None:
            return {}
        accuracy, at_chance, heads = self._sums.tolist()
        self._sums, self._taken = None, accuracy / heads
        return {"weak_head_accuracy": self._taken, "weak_heads_at_chance": at_chance / heads}

    def state_dict(self) -> dict[str, Any]:
        """The sums since the last `take`."""
        return {"sums": self._sums}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Continue in the middle of an epoch."""
        self._sums = None if state["sums"] is None else state["sums"].to(device)
