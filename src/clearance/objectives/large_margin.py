"""A margin around the decision boundary at any set of layers: Elsayed et al. (2018)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from clearance._checks import check_choice, check_count, check_non_negative
from clearance.geometry.first_order import first_order_distance
from clearance.objectives._class_pairs import wide
from clearance.objectives._fixed_settings import FixedSettings
from clearance.objectives._labels import check_labels
from clearance.objectives._margin_layers import (
    captured_layers,
    check_pairs,
    checked_layers,
    weights_of_layers,
)
from clearance.objectives._sweeps import Sweeps
from clearance.objectives.clips import Aggregate, margin_violation, over_rivals
from clearance.objectives.cross_entropy import cross_entropy
from clearance.objectives.gamma import Gamma, LayerMargins, gamma_of_layers
from clearance.objectives.margins import Ruler, Score, Unit, gaps_and_norms
from clearance.objectives.shortlist import top_rivals
from clearance.tensors import LossTerms, Outputs

Denominator = Literal["detach", "full"]


class LargeMarginLoss(FixedSettings):
    r"""Asks that every sample be at least gamma away from its class boundaries, at every layer named.

    L = sum_l w_l mean_k A_{i != y_k} max(0, gamma_l - d_{k,l,i}) + w_CE mean_k CE_k

    d_{k,l,i} = (s_y - s_i)(x_k) / (eps + ||grad_{h_l} (s_y - s_i)(x_k)||_q),    1/p + 1/q = 1

    Source: Elsayed et al. (2018), "Large Margin Deep Networks for Classification", section 3. The
    denominators are constants in the backward pass, as there, so the margins of all layers and cross-entropy
    share one.

    Args:
        layers: ``"input"``, names of submodules, ``"features"``, ``"logits"``. The paper's MNIST networks
            have input and hidden layers. The last two cost no sweep (features: where the head is linear).
        norm: p, at least 1, or ``inf``.
        gamma: The margin asked for, above 0, in the layer's unit: one number, one for each layer, or
            :class:`~clearance.objectives.gamma.GammaQuantile`. No value of the paper is known; 1 is ours.
        top_k: Rivals of a sample, those with the highest logits, at most C - 1; None is all. 1 as in the
            published code.
        aggregate: What rivals come to: ``"max"`` (the nearest counts), ``"sum"``, ``"mean"``,
            ``"smooth_max"``.
        score: ``"logits"``, or ``"softmax"``, under which gamma has to be far larger (see Ruler).
        denominator: ``"full"`` differentiates it too (and so everything twice): exact, at twice the time or more.
        lower_clip: a >= 1: no gradient for samples that are wrong by more than (a - 1) gamma, which guards
            against false labels; None for none, as in the paper's formula.
        unit: ``"layer"``, ``"element"`` or ``"spread"``, see Ruler.
        eps: At least 0; 1e-6 as in the published training script. With 0 and no `lower_clip` the loss is infinite
            where a misclassified sample has no gradient.
        layer_weights: w_l, at least 0: one for each layer or one for all; None is 1/L, the mean over layers.
        cross_entropy_weight: w_CE, at least 0. With 0 a sample beyond every margin teaches nothing; 1 is
            ours.
        every: n: the margin is computed in every n-th step only, with n times its weight; needs
            cross-entropy.
        shifted: Whether gamma is subtracted from each layer's value, as in the published code.
        sweeps: ``"auto"``, ``"sequential"``, ``"batched"``: how the backward sweeps of several rivals are
            made.

    Shapes:
        outputs.logits (B, C); labels (B,).

    Raises:
        ValueError: If a setting is out of range or does not fit another; in ``forward``, if there are fewer
            rivals than asked for, or an activation is missing or has no graph.

    ``every`` and quantiles count steps by ``after_step``, which a loop of your own must call as
    ``fit`` does; there ``loss.total.backward(inputs=[p for p in model.parameters() if p.requires_grad])`` spares a
    gradient at the images that nobody reads. Batch normalisation in training mode couples samples, so their gradients
    are mixed (as in the published code), and under checkpointing every sweep moves its statistics once more; dropout
    does not matter, masks are those of the forward pass.

    Misleads where activations can grow: a hidden layer's margin is met by inflating that layer.
    ``unit="spread"``, normalisation or weight decay are against that. With ``"softmax"`` a saturated network
    has hardly a gradient. A mean over samples is no minimum: where gamma is more than the classes leave, the
    nearest samples are given up for the many. At the input the loss is in pixel units, so that a gamma of 0.1
    weighs little beside cross-entropy; ``layer_weights`` of 1 / gamma make it free of units.

    >>> images, labels = torch.rand(4, 1, 2, 2), torch.tensor([0, 1, 2, 0])
    >>> from clearance.models import Classifier
    >>> model = Classifier(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    >>> objective = LargeMarginLoss(("input", "logits"), norm=2, gamma=1.0)
    >>> loss = objective(model.outputs(images, objective.layers), labels)
    >>> list(loss.terms)
    ['margin', 'cross_entropy']
    >>> loss.total.backward()
    """

    fixed_settings = frozenset({"layers", "margin_layers", "norm", "gamma", "score", "unit", "eps"}) | {
        "layer_weights", "every",
    }  # fmt: skip
    steps: Tensor

    def __init__(
        self,
        layers: Sequence[str] = ("input",),
        norm: float = 2.0,
        gamma: Gamma = 1.0,
        top_k: int | None = 1,
        aggregate: Aggregate = "max",
        score: Score = "logits",
        *,
        denominator: Denominator = "detach",
        lower_clip: float | None = None,
        unit: Unit = "layer",
        eps: float = 1e-6,
        layer_weights: float | Mapping[str, float] | None = None,
        cross_entropy_weight: float = 1.0,
        every: int = 1,
        shifted: bool = False,
        sweeps: Sweeps = "auto",
    ) -> None:
        super().__init__()
        self._ruler = Ruler(norm, score, eps, unit)
        self.margin_layers = checked_layers(layers)
        self.layers = captured_layers(self.margin_layers)
        self.norm, self.score, self.eps, self.unit = self._ruler.norm, score, eps, unit
        self.gamma, self.top_k, self.aggregate, self.denominator = gamma, top_k, aggregate, denominator
        self.lower_clip, self.layer_weights, self.shifted = lower_clip, layer_weights, shifted
        self.cross_entropy_weight, self.every, self.sweeps = cross_entropy_weight, every, sweeps
        self._check_settings()
        self._weights = weights_of_layers(layer_weights, self.margin_layers)
        self.margins = LayerMargins(gamma_of_layers(gamma, self.margin_layers))
        if every > 1:
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self._fix_settings()

    @classmethod
    def paper(
        cls, layers: Sequence[str] = ("input",), norm: float = 2.0, gamma: float = 1.0, **changes: Any
    ) -> Self:
        """The paper's formula: the maximum over all wrong classes, the sum over layers, no cross-entropy.

        Any setting may be changed by name.

        >>> LargeMarginLoss.paper(("input", "logits"), norm=1).top_k is None
        True
        """
        settings: dict[str, Any] = {"top_k": None, "layer_weights": 1.0, "cross_entropy_weight": 0.0}
        return cls(layers, norm, gamma, **(settings | changes))

    @classmethod
    def reference(
        cls, layers: Sequence[str] = ("input",), norm: float = math.inf, gamma: float = 1e4, **changes: Any
    ) -> Self:
        """What the published code computes: softmax scores, one rival, and a window of [-gamma, 3 gamma].

        L = mean_l mean_k -clip(d, gamma (1 - a), gamma) with a = 4, and d for one element where p is inf.

        Any setting may be changed by name. Its authors train it with the gradient clipped to a norm of 5.

        >>> LargeMarginLoss.reference(("input",)).lower_clip
        4.0
        """
        settings: dict[str, Any] = {
            "score": "softmax",
            "lower_clip": 4.0,
            "unit": "element" if math.isinf(float(norm)) else "layer",
            "cross_entropy_weight": 0.0,
            "shifted": True,
        }
        return cls(layers, norm, gamma, **(settings | changes))

    def _check_settings(self) -> None:
        if self.top_k is not None:
            check_count("top_k", self.top_k)
        check_count("every", self.every)
        check_non_negative("cross_entropy_weight", self.cross_entropy_weight)
        for name, kind in (("aggregate", Aggregate), ("denominator", Denominator), ("sweeps", Sweeps)):
            check_choice(name, getattr(self, name), get_args(kind))
        if self.lower_clip is not None:
            check_non_negative("lower_clip", self.lower_clip)
        if self.lower_clip is not None and self.lower_clip < 1:
            raise ValueError(
                f"`lower_clip` must be a finite number of at least 1, because below 1 the samples at the boundary have "
                f"no gradient; got {self.lower_clip}."
            )
        if self.every > 1 and self.cross_entropy_weight == 0:
            raise ValueError(
                "`every` must be 1 without cross-entropy, because the other steps would have no loss; got "
                f"{self.every}. Raise `cross_entropy_weight`."
            )

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """Terms ``margin`` and, unless its weight is 0, ``cross_entropy``."""
        check_pairs(outputs.logits, None)
        check_labels(outputs.logits, labels)
        due = self.every == 1 or not self.training or int(self.steps) % self.every == 0
        terms = {"margin": self._margin(outputs, labels) if due else wide(outputs.logits.new_zeros(()))}
        if self.cross_entropy_weight > 0:
            terms["cross_entropy"] = self.cross_entropy_weight * cross_entropy(outputs.logits, labels).mean()
        return LossTerms(terms)

    @torch.no_grad()
    def after_step(self, outputs: Outputs, labels: Tensor) -> None:
        """Count the step; keep what its distances say about the margins."""
        del outputs, labels
        self.margins.after_step()
        if "steps" in self._buffers:
            self.steps += 1

    def _margin(self, outputs: Outputs, labels: Tensor) -> Tensor:
        rivals = top_rivals(outputs.logits, labels, check_pairs(outputs.logits, self.top_k))
        gaps, norms = gaps_and_norms(
            outputs, labels, rivals, self.margin_layers, self._ruler,
            full=self.denominator == "full", sweeps=self.sweeps,
        )  # fmt: skip
        distances = first_order_distance(gaps, norms, self._ruler.eps)
        # without a gradient no boundary is known, and gap / eps is no distance to learn a margin from
        gamma = self.margins(torch.where(norms == 0, math.inf, distances))[:, None, None]
        short = margin_violation(distances, gamma, self.lower_clip)
        losses = over_rivals(short, self.aggregate, gamma, dim=1).mean(dim=1)
        if self.shifted:
            summed = short.shape[1] if self.aggregate == "sum" else 1
            losses = losses - summed * gamma.flatten()
        skipped = self.every if self.training else 1
        return skipped * (losses * losses.new_tensor(self._weights)).sum()

    def extra_repr(self) -> str:
        """The settings."""
        named = {k: v for k, v in vars(self).items() if not k.startswith("_") and k != "training"}
        return ", ".join(f"{name}={value!r}" for name, value in named.items())
