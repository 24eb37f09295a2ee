"""A margin around the decision boundary at any set of layers: Elsayed et al. (2018)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, get_args

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from clearance._checks import check_choice, check_count, check_fraction, check_non_negative, check_positive
from clearance.geometry.first_order import first_order_distance
from clearance.losses._loss import Loss, check_labels
from clearance.losses.margins import (
    Ruler,
    Score,
    Sweeps,
    Unit,
    captured_layers,
    check_pairs,
    checked_layers,
    gaps_and_norms,
    top_rivals,
    wide,
)
from clearance.tensors import LossTerms, Outputs

Denominator = Literal["detach", "full"]
Aggregate = Literal["max", "sum", "mean", "smooth_max"]
SHARPNESS = 10.0  # of the smooth maximum, in units of 1 / gamma


def margin_violation(distance: Tensor, gamma: Tensor | float, lower_clip: float | None = None) -> Tensor:
    """How much the distance is short of the margin: max(0, min(gamma - d, lower_clip * gamma)).

    Beyond gamma the loss is 0. With a lower clip a, a sample that is wrong by more than (a - 1) gamma has a
    constant loss and no gradient, so that a false label stops pulling.

    Source: Elsayed et al. (2018), section 3; the lower clip is that of the code they published, where a = 4.

    Args:
        distance: Signed, positive on the right side.
        gamma: The margin asked for, above 0, of a shape that broadcasts with it.
        lower_clip: a, at least 1, or None for none.

    >>> margin_violation(torch.tensor([2.0, 0.5, -9.0]), 1.0, lower_clip=4.0).tolist()
    [0.0, 0.5, 4.0]
    """
    short = torch.relu(gamma - distance)
    if lower_clip is None:
        return short
    return torch.minimum(short, torch.as_tensor(lower_clip * gamma, dtype=short.dtype, device=short.device))


def over_rivals(violations: Tensor, aggregate: Aggregate, scale: Tensor | float, dim: int) -> Tensor:
    """One loss out of the violations against several rivals.

    ``"max"``, ``"sum"`` and ``"mean"`` are themselves; ``"smooth_max"`` is
    (scale / 10) log mean exp(10 v / scale), between mean and max, 0 where nothing is violated.

    Source: max and sum Elsayed et al. (2018), section 3; the others are our additions.

    Args:
        violations: At least 0.
        aggregate: Which.
        scale: The margin, in whose units the smooth maximum's sharpness is meant; of size 1 along `dim`.
        dim: The axis of the rivals.

    >>> over_rivals(torch.tensor([[1.0, 3.0]]), "max", 1.0, dim=1)
    tensor([3.])
    """
    if aggregate == "max":
        return violations.amax(dim=dim)
    if aggregate == "smooth_max":
        sharpness = SHARPNESS / scale
        total = (violations * sharpness).logsumexp(dim=dim, keepdim=True) - math.log(violations.shape[dim])
        return (total / sharpness).squeeze(dim)
    return violations.sum(dim=dim) if aggregate == "sum" else violations.mean(dim=dim)


def weights_of_layers(given: float | Mapping[str, float] | None, layers: Sequence[str]) -> tuple[float, ...]:
    """A weight for each layer, by default alike and with sum 1.

    Raises:
        ValueError: If a layer is missing or unknown, or a weight below 0.
    """
    if given is None:
        return tuple(1 / len(layers) for _ in layers)
    if isinstance(given, Mapping):
        for name in given:
            check_choice("layer_weights", name, layers)
        missing = [name for name in layers if name not in given]
        if missing:
            raise ValueError(f"`layer_weights` must name every layer or be one number; it lacks {missing}.")
    weights = tuple(given[name] if isinstance(given, Mapping) else given for name in layers)
    for weight in weights:
        check_non_negative("layer_weights", weight)
    return weights


LEAST = 1e-12  # a margin is above 0, even where every distance is 0


@dataclass(frozen=True)
class GammaQuantile:
    """A margin from data: a quantile of the distances' sizes, averaged over the first batches.

    Units of hidden layers mean nothing in themselves; a quantile asks of every layer for what a part of the
    samples has there already. Absolute values are taken, to the nearest rival, because an untrained network
    has most samples on the wrong side. Our addition; Elsayed et al. (2018) search one gamma for all layers.

    Args:
        quantile: In (0, 1): the share of distances that are smaller. 0.5 is their median.
        batches: Steps over which it is averaged, at least 1; then it stays.

    >>> GammaQuantile(0.9).batches
    20
    """

    quantile: float = 0.5
    batches: int = 20

    def __post_init__(self) -> None:
        check_fraction("quantile", self.quantile, open_below=True, open_above=True)
        check_count("batches", self.batches)


Gamma = float | Mapping[str, float | GammaQuantile] | GammaQuantile


def gamma_of_layers(gamma: Any, layers: Sequence[str]) -> list[float | GammaQuantile]:
    """The setting for each layer; plain mappings of GammaQuantile's own settings are taken for one.

    >>> gamma_of_layers({"input": 0.5, "logits": {"quantile": 0.9}}, ("input", "logits"))
    [0.5, GammaQuantile(quantile=0.9, batches=20)]
    """
    if isinstance(gamma, Mapping) and "quantile" not in gamma:
        for name in gamma:
            check_choice("gamma", name, layers)
        missing = [name for name in layers if name not in gamma]
        if missing:
            raise ValueError(f"`gamma` must name every layer or be one number; it lacks {missing}.")
        return [_one(gamma[name]) for name in layers]
    return [_one(gamma) for _ in layers]


def _one(gamma: Any) -> float | GammaQuantile:
    if isinstance(gamma, Mapping):
        for name in gamma:
            check_choice("gamma", name, ("quantile", "batches"))
        return GammaQuantile(**gamma)
    if isinstance(gamma, GammaQuantile):
        return gamma
    check_positive("gamma", gamma)
    return float(gamma)


class LayerMargins(nn.Module):
    """Gamma of every layer; where it comes from data, what was seen is kept in buffers.

    Args:
        layers: One setting for each layer.
    """

    total: Tensor
    batches: Tensor

    def __init__(self, layers: Sequence[float | GammaQuantile]) -> None:
        super().__init__()
        self._layers = tuple(layers)
        self._seen: list[Tensor] = []
        if self.from_data:
            self.register_buffer("total", torch.zeros(len(layers)))
            self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    @property
    def from_data(self) -> bool:
        """Whether any layer's margin is a quantile."""
        return any(isinstance(layer, GammaQuantile) for layer in self._layers)

    def forward(self, distances: Tensor) -> Tensor:
        """Gamma, (L,), for distances (L, k, B).

        This batch counts for the margins that are not settled yet, with all others until ``after_step``, as gradients
        that are accumulated do; one that is looked at without gradients or in evaluation mode does not.
        """
        given = [0.0 if isinstance(layer, GammaQuantile) else layer for layer in self._layers]
        gammas = distances.new_tensor(given)
        if not self.from_data:
            return gammas
        nearest = distances.detach().amin(dim=1).abs()
        seen, done = torch.zeros_like(gammas), int(self.batches)
        for place, layer in enumerate(self._layers):
            if isinstance(layer, GammaQuantile):
                finite = nearest[place][nearest[place].isfinite()]  # others know no boundary, near or far
                seen[place] = finite.quantile(layer.quantile) if len(finite) else LEAST
                before = self.total[place].to(gammas)
                settled = before / layer.batches
                now = (before + seen[place]) / (done + 1)
                gammas[place] = torch.clamp(settled if done >= layer.batches else now, min=LEAST)
        if torch.is_grad_enabled() and self.training:
            self._seen.append(seen)
        return gammas

    @torch.no_grad()
    def after_step(self) -> None:
        """Count the mean of what was seen since the last step, in all processes alike."""
        if not self._seen:
            return
        seen = torch.stack(self._seen).mean(dim=0).to(self.total)
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            dist.all_reduce(seen)
            seen /= dist.get_world_size()
        for place, layer in enumerate(self._layers):
            if isinstance(layer, GammaQuantile) and int(self.batches) < layer.batches:
                self.total[place] += seen[place]
        self.batches += 1
        self._seen.clear()


@dataclass(frozen=True)
class DistanceSettings:
    """How a loss measures distances, beyond their norm and score.

    Args:
        unit: ``"layer"``, that of the layer's own values; ``"element"``, for one element of the layer; ``"spread"``,
            the typical deviation of the batch from its mean there, under which scaling a layer and unscaling the
            next changes nothing.
        eps: Added to the gradient's norm, at least 0; 1e-6 as in the script published with Elsayed et al. (2018).
            With 0 and no `lower_clip` the loss is infinite where a misclassified sample has no gradient.
        denominator: ``"detach"`` takes the gradient's norm for a constant in the backward pass, as the paper does;
            ``"full"`` differentiates it too (and so everything twice): exact, at twice the time or more.
        sweeps: How the backward sweeps of several rivals are made: ``"sequential"``, ``"batched"`` (all in one, with
            as many times the memory), or ``"auto"``, batched on CUDA.

    Raises:
        ValueError: If a setting is out of range.

    >>> DistanceSettings(unit="spread").eps
    1e-06
    """

    unit: Unit = "layer"
    eps: float = 1e-6
    denominator: Denominator = "detach"
    sweeps: Sweeps = "auto"

    def __post_init__(self) -> None:
        check_non_negative("eps", self.eps)
        for name, kind in (("unit", Unit), ("denominator", Denominator), ("sweeps", Sweeps)):
            check_choice(name, getattr(self, name), get_args(kind))


class LargeMarginLoss(Loss):
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
            :class:`~clearance.losses.large_margin.GammaQuantile`. No value of the paper is known; 1 is ours.
        top_k: Rivals of a sample, those with the highest logits, at most C - 1; None is all. 1 as in the
            published code.
        aggregate: What rivals come to: ``"max"`` (the nearest counts), ``"sum"``, ``"mean"``,
            ``"smooth_max"``.
        score: Whose ties are boundaries: ``"logits"``, or ``"softmax"`` probabilities, which tie at the same places but
            stretch distances exponentially, so that gamma has to be far larger.
        lower_clip: a >= 1: no gradient for samples that are wrong by more than (a - 1) gamma, which guards
            against false labels; None for none, as in the paper's formula.
        layer_weights: w_l, at least 0: one for each layer or one for all; None is 1/L, the mean over layers.
        cross_entropy_weight: w_CE, at least 0. With 0 a sample beyond every margin teaches nothing; 1 is
            ours.
        every: n: the margin is computed in every n-th step only, with n times its weight; needs
            cross-entropy.
        shifted: Whether gamma is subtracted from each layer's value, as in the published code.
        distance: Unit, eps, denominator and sweeps.

    Shapes:
        outputs.logits (B, C); labels (B,).

    Raises:
        ValueError: If a setting is out of range or does not fit another; in ``forward``, if there are fewer
            rivals than asked for, or an activation is missing or has no graph.
        TypeError: If `distance` is something else.

    ``every`` and quantiles count steps by ``after_step``, which a loop of your own must call as
    ``fit`` does; there ``loss.total.backward(inputs=[p for p in model.parameters() if p.requires_grad])`` spares a
    gradient at the images that nobody reads. Batch normalisation in training mode couples samples, so their gradients
    are mixed (as in the published code), and under checkpointing every sweep moves its statistics once more; dropout
    does not matter, masks are those of the forward pass.

    Misleads where activations can grow: a hidden layer's margin is met by inflating that layer.
    The unit ``"spread"``, normalisation or weight decay are against that. With ``"softmax"`` a saturated network
    has hardly a gradient. A mean over samples is no minimum: where gamma is more than the classes leave, the
    nearest samples are given up for the many. At the input the loss is in pixel units, so that a gamma of 0.1
    weighs little beside cross-entropy; ``layer_weights`` of 1 / gamma make it free of units.

    >>> images, labels = torch.rand(4, 1, 2, 2), torch.tensor([0, 1, 2, 0])
    >>> from clearance.models import Classifier
    >>> model = Classifier(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    >>> loss = LargeMarginLoss(("input", "logits"), norm=2, gamma=1.0)
    >>> loss = loss(model.outputs(images, loss.layers), labels)
    >>> list(loss.terms)
    ['margin', 'cross_entropy']
    >>> loss.total.backward()
    """

    groups: ClassVar = {"distance": DistanceSettings}  # whose fields a recipe names as settings of the loss
    _fixed: ClassVar = {
        "layers",
        "margin_layers",
        "norm",
        "gamma",
        "score",
        "layer_weights",
        "every",
        "distance",
    }
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
        lower_clip: float | None = None,
        layer_weights: float | Mapping[str, float] | None = None,
        cross_entropy_weight: float = 1.0,
        every: int = 1,
        shifted: bool = False,
        distance: DistanceSettings = DistanceSettings(),
    ) -> None:
        super().__init__()
        if not isinstance(distance, DistanceSettings):
            raise TypeError(f"`distance` must be DistanceSettings; got {type(distance).__name__}.")
        self._ruler = Ruler(norm, score, distance.eps, distance.unit)
        self.margin_layers = checked_layers(layers)
        self.layers = captured_layers(self.margin_layers)
        self.norm, self.score, self.gamma, self.top_k = self._ruler.norm, score, gamma, top_k
        self.aggregate, self.lower_clip, self.layer_weights = aggregate, lower_clip, layer_weights
        self.cross_entropy_weight, self.every, self.shifted = cross_entropy_weight, every, shifted
        self.distance = distance
        self._check_settings()
        self._weights = weights_of_layers(layer_weights, self.margin_layers)
        self.margins = LayerMargins(gamma_of_layers(gamma, self.margin_layers))
        if every > 1:
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        """As of any module, but for settings that other parts were made from."""
        if name in self._fixed and "_made" in self.__dict__:
            raise AttributeError(
                f"`{name}` of {type(self).__name__} cannot be changed once it is made, because other parts were made "
                "from it; make another one."
            )
        super().__setattr__(name, value)

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
            "cross_entropy_weight": 0.0,
            "shifted": True,
            "distance": DistanceSettings("element" if math.isinf(float(norm)) else "layer"),
        }
        return cls(layers, norm, gamma, **(settings | changes))

    def _check_settings(self) -> None:
        if self.top_k is not None:
            check_count("top_k", self.top_k)
        check_count("every", self.every)
        check_non_negative("cross_entropy_weight", self.cross_entropy_weight)
        check_choice("aggregate", self.aggregate, get_args(Aggregate))
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
            losses = F.cross_entropy(wide(outputs.logits), labels, reduction="none")
            terms["cross_entropy"] = self.cross_entropy_weight * losses.mean()
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
            full=self.distance.denominator == "full", sweeps=self.distance.sweeps,
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
