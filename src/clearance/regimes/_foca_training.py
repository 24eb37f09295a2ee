"""FOCA at work: heads are drawn and held fixed, the extractor moves, and in the end a head is trained to stay."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearance.data.conversion import as_image_set
from clearance.data.image_set import ImageSet
from clearance.heads.gaussian_mixture import GaussianMixture
from clearance.heads.scale import feature_unit
from clearance.heads.stack import HeadStack
from clearance.heads.weak.gradient import train_on_unit_scale
from clearance.models._running import device_of, evaluating
from clearance.models.classifier import Classifier
from clearance.models.features import extract_features
from clearance.objectives._objective import Objective
from clearance.regimes._backward import backward_to
from clearance.regimes._distributed import average_gradients, copy_from_first, in_any_process
from clearance.regimes._head_batches import HeadBatches
from clearance.regimes._inputs import check_batch, check_logits
from clearance.regimes._regime import Generators, Training
from clearance.regimes._weakness import Weakness
from clearance.regimes.batch_norm import recalibrate_batch_norm
from clearance.tensors import LossTerms, Outputs

if TYPE_CHECKING:
    from clearance.regimes.foca import FOCA


class FOCATraining(Training):
    """FOCA at work; `diverged_heads` of the `drawn_heads` so far were left out."""

    RUNAWAY = 100.0  # times the first features' unit; under GradientHeads digits grew up to 40 times
    REDRAWS = 3  # a batch of features can be unlucky; four unlucky ones in a row are a diverged extractor

    def __init__(
        self,
        regime: FOCA,
        model: Classifier,
        data: ImageSet,
        optimizer: torch.optim.Optimizer,
        generators: Generators,
    ) -> None:
        HeadStack.of(model.head)  # refuses a head that cannot be stacked before anything has moved
        self._device = device_of(model)
        data = as_image_set(data)
        if data.images.device != self._device:
            data = data.to(self._device)
        self.regime, self.model, self.data, self.optimizer = regime, model, data, optimizer
        self.generators = generators
        self.batches = HeadBatches(model, data, generators, regime.batch_norm, regime.pool)
        self.weakness = Weakness()
        self.steps = self.drawn_heads = self.diverged_heads = 0
        self.heads: HeadStack | None = None
        self.first_unit: Tensor | None = None
        self._moved = list(regime.trainable(model))
        copy_from_first(model, regime.objective)

    def step(self, images: Tensor, labels: Tensor) -> LossTerms:
        """Draw heads where it is time, then move the extractor on (images, labels) with them fixed."""
        check_batch(images, labels, self.data)
        place = self.steps % self.regime.reuse
        if place == 0:
            drawn = self._draw_heads()
            self.heads = None if in_any_process(drawn is None, self._device) else drawn
        self.steps += 1
        if self.heads is None:
            return LossTerms({"weak_heads": images.new_tensor(torch.nan)})
        heads = self._in_use(self.heads, place)
        objective = self.regime.objective
        self.optimizer.zero_grad(set_to_none=True)
        outputs = self.model.outputs(images, objective.layers, head=heads)
        loss = _loss_over_heads(objective, outputs, labels, heads)
        backward_to(self._moved, loss.total, objective)
        average_gradients(self._moved, len(labels))
        self.optimizer.step()
        with torch.no_grad():
            objective.after_step(outputs, labels)
        self.weakness.note(outputs.logits, labels)
        self.batches.remember(outputs.features, labels)
        return loss

    def finish(self) -> None:
        """Train the head that the model keeps, on all training images and frozen features (Eq. 5).

        A Gaussian mixture needs no training: its likeliest means and variances are known.

        Warns:
            UserWarning: If features have run away.
        """
        if self.regime.recalibrate:
            recalibrate_batch_norm(self.model, self.data)
        features = extract_features(self.model, self.data)
        self._warn_of_runaway(features)
        if isinstance(self.model.head, GaussianMixture):
            self.model.head.fit_statistics(features, self.data.labels)
            return
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

    def diagnostics(self) -> dict[str, float]:
        """Mean accuracy of the weak heads on the extractor's batches, and the share at chance or below."""
        return self.weakness.tell()

    def state_dict(self) -> dict[str, Any]:
        """Where in the cycle of reuse we are, the heads in use, and what the pool holds."""
        heads = None if self.heads is None else self.heads.parameters
        return {
            "steps": self.steps,
            "drawn_heads": self.drawn_heads,
            "diverged_heads": self.diverged_heads,
            "heads": heads,
            "first_unit": self.first_unit,
            "pool": self.batches.state_dict(),
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
        self.batches.load_state_dict(state["pool"])
        self.weakness.load_state_dict(state["weakness"], self._device)

    def _draw_heads(self) -> HeadStack | None:
        for _ in range(1 + self.REDRAWS):
            features, labels = self.batches.draw(self.regime.heads, self.regime.per_class)
            if self.first_unit is None:
                self.first_unit = feature_unit(features)
                with evaluating(self.model.head):
                    check_logits(self.model.head(features[0, :1]), self.data)
            # A few steps at full precision cost little; in bfloat16 their rounding is larger than a step.
            with torch.autocast(features.device.type, enabled=False):
                trained = self.regime.weak_heads.draw(
                    self.model.head, features, labels, self.generators["head_init"], self.first_unit
                )
            self.drawn_heads += len(trained.stack)
            self.diverged_heads += int(trained.diverged.sum())
            if not bool(trained.diverged.all()):
                return trained.intact()
        return None

    def _warn_of_runaway(self, features: Tensor) -> None:
        if self.first_unit is None:
            return
        growth = float(feature_unit(features) / self.first_unit)
        if growth > self.RUNAWAY:
            warnings.warn(
                f"Features are {growth:.3g} times as large as when FOCA began: weak heads follow their scale and do "
                "not hold it, so steps now change little and features may tell classes badly apart. Normalise "
                "batches in the extractor (norm='batch'), lower the learning rate, or draw GradientHeads.",
                UserWarning,
                stacklevel=3,
            )

    def _in_use(self, heads: HeadStack, place: int) -> HeadStack:
        """All heads of the refresh, or in turn the one whose step this is."""
        if self.regime.mode == "average":
            return heads
        return heads.select(torch.tensor([place % len(heads)]))


def _loss_over_heads(objective: Objective, outputs: Outputs, labels: Tensor, heads: HeadStack) -> LossTerms:
    """The mean over heads of each term (Eq. 2: the loss is averaged, never the logits)."""
    if objective.reads_logits_only:
        return objective(outputs, labels)
    losses = [objective(outputs.with_head(heads[k]), labels).terms for k in range(len(heads))]
    return LossTerms({name: torch.stack([terms[name] for terms in losses]).mean() for name in losses[0]})
