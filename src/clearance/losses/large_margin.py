"""The large-margin loss: a margin to the decision boundary at any set of layers, Elsayed et al. (2018)."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn

from clearance._checks import check_choice, check_count, check_fraction, check_non_negative, check_positive
from clearance._first_order import first_order_distance
from clearance._precision import at_least_float32
from clearance._processes import process_count
from clearance.losses._loss import Loss, check_labels
from clearance.losses.cross_entropy import cross_entropy
from clearance.losses.margins import (
    Ruler,
    Score,
    Sweeps,
    Unit,
    captured_layers,
    check_pairs,
    checked_layers,
    gap_cotangents,
    gaps_and_norms,
    top_rivals,
    unmeasurable,
)
from clearance.tensors import LossTerms, Outputs

Denominator = Literal["detach", "full"]
Aggregate = Literal["max", "sum"]
_LEAST = 1e-12  # smallest margin, also if every distance is 0, and smallest norm that is divided by


@dataclass(frozen=True)
class GammaQuantile:
    """A margin from data: a quantile of the absolute distances, averaged over the first batches.

    The units of hidden layers are arbitrary; a quantile asks of every layer a margin that a share of the samples
    already has there. It is taken over absolute distances to the nearest rival, because in an untrained network most
    samples are on the wrong side. Our addition; Elsayed et al. (2018) search one gamma for all layers.

    Args:
        quantile: In (0, 1): the share of distances that are smaller. 0.5 is their median.
        batches: Steps over which it is averaged, at least 1; afterwards it is fixed. Of several processes each has its
            own until then; it ends at their mean, which is not the quantile of the joint batch.

    Raises:
        ValueError: If a setting is out of range.

    >>> GammaQuantile(0.9).batches
    20
    """

    quantile: float = 0.5
    batches: int = 20

    def __post_init__(self) -> None:
        check_fraction("quantile", self.quantile, open_below=True, open_above=True)
        check_count("batches", self.batches)


Gamma = float | Mapping[str, float | GammaQuantile] | GammaQuantile


@dataclass(frozen=True)
class DistanceSettings:
    """How a loss measures distances, in addition to their norm and score.

    Args:
        unit: ``"layer"``, the unit of the layer's values; ``"element"``, per element of the layer; ``"spread"``,
            the typical deviation of the batch from its mean there, so that scaling a layer and unscaling the next
            changes nothing.
        eps: Added to the gradient's norm, at least 0; 1e-6 as in the script published with Elsayed et al. (2018).
            With 0 and no `lower_clip` the loss is infinite where a misclassified sample has no gradient.
        denominator: ``"detach"`` treats the gradient's norm as a constant in the backward pass, as the paper does;
            ``"full"`` differentiates it too (and so everything twice): exact, at twice the time or more.
        sweeps: How the backward sweeps of several rivals are computed: ``"sequential"``, ``"batched"`` (k rivals in
            one sweep, with k times the memory), or ``"auto"``, batched on CUDA.

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
    r"""Large-margin loss: every sample at least gamma away from its class boundaries, at every named layer.

    L = sum_l w_l mean_k A_{i != y_k} max(0, gamma_l - d_{k,l,i}) + w_CE mean_k CE_k

    d_{k,l,i} = (s_y - s_i)(x_k) / (eps + ||grad_{h_l} (s_y - s_i)(x_k)||_q),    1/p + 1/q = 1

    Source: Elsayed et al. (2018), "Large Margin Deep Networks for Classification", section 3. As there, the
    denominators are constants in the backward pass, so one pass serves the margins of all layers and cross-entropy.

    With g = ||grad_{h_l} (s_y - s_i)||_q, a gap's slope in L is w_l / g, which grows without bound where gradients
    vanish, as in untrained networks: the first steps then destroy the network. So a violation is multiplied by

    min(1, g / f_l),    f_l = |layers| w_l / `max_slope`

    (f_l times the number of rivals with ``"sum"``, times the largest derivative of the gap in a logit with
    ``"softmax"``), with `eps` added to max(g, f_l) in place of g. Then |dL_margin / dz_kj| <= `max_slope` / B for every
    logit j of every image k of B, n times that in the steps that ``every=n`` leaves; cross-entropy's bound is 1 / B.
    Margins are met at the same distance as before, and where g >= f_l the loss is the published one to the bit. The
    bound is our addition.

    Args:
        layers: ``"input"``, names of submodules, ``"features"``, ``"logits"``. The paper's MNIST networks
            use input and hidden layers. ``"logits"`` needs no sweep, nor does ``"features"`` with a linear head.
        norm: p, at least 1, or ``inf``.
        gamma: The margin, above 0, in the layer's unit: one number, one for each layer, or
            :class:`~clearance.losses.large_margin.GammaQuantile`. The paper gives no value; 0.5 at the input in norm 2
            is our choice: on digits, networks trained by cross-entropy have a median distance of 0.56.
        top_k: Number of rivals, those with the highest logits, at most C - 1; None is all. 1 as in the
            published code.
        aggregate: How the violations against several rivals become one: ``"max"`` (the nearest counts) or ``"sum"``.
        score: A boundary is where two scores are equal: ``"logits"``, or ``"softmax"`` probabilities, which are equal
            at the same places but stretch distances exponentially, so that gamma has to be far larger.
        lower_clip: a >= 1: no gradient for samples that are wrong by more than (a - 1) gamma, which protects
            against false labels; None for no clip, as in the paper's formula.
        layer_weights: w_l, at least 0: one for each layer or one for all; None is 1/L, the mean over layers.
        cross_entropy_weight: w_CE, at least 0. With 0, samples beyond every margin have no gradient; 1 is our
            choice.
        every: n: the margin is computed only in every n-th step, with n times its weight; needs cross-entropy.
        max_slope: The bound above, in units of cross-entropy's, above 0; None is the published formula. 0.25 is our
            choice: on digits g is near 0.2 at the input and 0.1 at the features of an untrained network, and near 100
            and 5 in a trained one, so that the bound acts in the first steps only.
        shifted: Whether gamma is subtracted from each layer's value, as in the published code.
        distance: Unit, eps, denominator and sweeps.

    Shapes:
        outputs.logits (B, C); labels (B,).

    Raises:
        ValueError: If a setting is out of range or does not fit another; in ``forward``, if there are fewer
            rivals than asked for, or an activation is missing or has no graph.
        TypeError: If `distance` is something else.

    ``every`` and quantiles count steps by ``after_step``, which your own loop must call as ``fit`` does. There
    ``total.backward(inputs=[p for p in [*model.parameters(), *criterion.parameters()] if p.requires_grad])`` saves the
    gradient at the images, which is not used. Batch normalisation in training mode couples samples, so their gradients
    are mixed (as in the published code), and under checkpointing every sweep updates its statistics once more. Dropout
    does not matter: sweeps use the masks of the forward pass.

    Misleads where activations can grow: a hidden layer's margin is met by inflating that layer.
    The unit ``"spread"``, normalisation or weight decay prevent that. With ``"softmax"``, a saturated network
    has hardly any gradient. The loss is a mean over samples, not a minimum: if gamma is larger than the classes
    allow, the nearest samples are sacrificed for the others, and gaps and gradients grow together without end, which
    training with Adam at high rates may not survive. At the input the loss is in pixel units, so a gamma of
    0.1 weighs little against cross-entropy; ``layer_weights`` of 1 / gamma make it free of units.

    >>> images, labels = torch.rand(4, 1, 2, 2), torch.tensor([0, 1, 2, 0])
    >>> from clearance.models import Classifier
    >>> model = Classifier(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    >>> loss = LargeMarginLoss(("input", "logits"), norm=2, gamma=1.0)
    >>> terms = loss(model.outputs(images, loss.layers), labels)
    >>> list(terms.terms)
    ['margin', 'cross_entropy']
    >>> terms.total.backward()
    """

    groups: ClassVar = {"distance": DistanceSettings}  # a recipe names its fields as settings of the loss
    _still = 0.02
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
    _checked: ClassVar = {"top_k", "aggregate", "lower_clip", "cross_entropy_weight", "max_slope"}
    steps: Tensor

    def __init__(
        self,
        layers: Sequence[str] = ("input",),
        norm: float = 2.0,
        gamma: Gamma = 0.5,
        top_k: int | None = 1,
        aggregate: Aggregate = "max",
        score: Score = "logits",
        *,
        lower_clip: float | None = None,
        layer_weights: float | Mapping[str, float] | None = None,
        cross_entropy_weight: float = 1.0,
        every: int = 1,
        max_slope: float | None = 0.25,
        shifted: bool = False,
        distance: DistanceSettings = DistanceSettings(),
    ) -> None:
        super().__init__()
        if not isinstance(distance, DistanceSettings):
            raise TypeError(
                f"`distance` must be DistanceSettings; got {type(distance).__name__}. Write "
                "DistanceSettings(unit=...)."
            )
        self._ruler = Ruler(norm, score, distance.eps, distance.unit)
        self.margin_layers = checked_layers(layers)
        self.layers = captured_layers(self.margin_layers)
        self.norm, self.score, self.gamma, self.top_k = self._ruler.norm, score, gamma, top_k
        self.aggregate, self.lower_clip, self.layer_weights = aggregate, lower_clip, layer_weights
        self.cross_entropy_weight, self.every, self.shifted = cross_entropy_weight, every, shifted
        self.max_slope = max_slope
        self.distance = distance
        self._check_settings()
        self._weights = _weights_of_layers(layer_weights, self.margin_layers)
        self.margins = LayerMargins(_gamma_of_layers(gamma, self.margin_layers))
        self._said_without = False
        if every > 1:
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; refuse settings from which other parts were made, and values that a new loss refuses."""
        if name in self._fixed and "_made" in self.__dict__:
            raise AttributeError(
                f"`{name}` of {type(self).__name__} cannot be changed, because other parts depend on it; construct a "
                "new loss."
            )
        before: Any = getattr(self, name, None)
        super().__setattr__(name, value)
        if name in self._checked and "_made" in self.__dict__:
            try:
                self._check_settings()
            except (TypeError, ValueError):
                super().__setattr__(name, before)
                raise

    @classmethod
    def paper(
        cls, layers: Sequence[str] = ("input",), norm: float = 2.0, gamma: float = 1.0, **changes: Any
    ) -> Self:
        """The paper's formula: the maximum over all wrong classes, the sum over layers, no cross-entropy, no bound.

        Args:
            layers: As above.
            norm: As above.
            gamma: As above.
            changes: Other settings by name.

        >>> LargeMarginLoss.paper(("input", "logits"), norm=1).top_k is None
        True
        """
        settings: dict[str, Any] = {
            "top_k": None,
            "layer_weights": 1.0,
            "cross_entropy_weight": 0.0,
            "max_slope": None,
        }
        return cls(layers, norm, gamma, **(settings | changes))

    @classmethod
    def reference(
        cls, layers: Sequence[str] = ("input",), norm: float = math.inf, gamma: float = 1e4, **changes: Any
    ) -> Self:
        """The published code's loss: softmax scores, one rival, and a window of [-gamma, 3 gamma].

        L = mean_l mean_k -clip(d, gamma (1 - a), gamma) with a = 4, and d per element if p is inf. Its authors clip
        the gradient to a norm of 5.

        Args:
            layers: As above.
            norm: As above.
            gamma: As above.
            changes: Other settings by name.

        >>> LargeMarginLoss.reference(("input",)).lower_clip
        4.0
        """
        settings: dict[str, Any] = {
            "score": "softmax",
            "lower_clip": 4.0,
            "cross_entropy_weight": 0.0,
            "max_slope": None,
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
        if self.max_slope is not None:
            check_positive("max_slope", self.max_slope)
        if self.lower_clip is not None:
            check_non_negative("lower_clip", self.lower_clip)
        if self.lower_clip is not None and self.lower_clip < 1:
            raise ValueError(
                "`lower_clip` must be a finite number of at least 1, because below 1 samples at the boundary have no "
                f"gradient; got {self.lower_clip}."
            )
        if self.every > 1 and self.cross_entropy_weight == 0:
            raise ValueError(
                "`every` must be 1 without cross-entropy, because the other steps would have no loss; got "
                f"{self.every}. Raise `cross_entropy_weight`."
            )

    @property
    def _without_steps(self) -> str | None:  # type: ignore[override]
        if self.every > 1:
            return f"every batch was the first of {self.every}, so that the margin counts {self.every}-fold in all"
        return "gamma is each batch's own quantile, and none is fixed" if self.margins.from_data else None

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """Terms ``margin`` and, unless its weight is 0, ``cross_entropy``."""
        check_pairs(outputs.logits, None)
        check_labels(outputs.logits, labels)
        trains = self.training and torch.is_grad_enabled()
        due = self.every == 1 or not trains or int(self.steps) % self.every == 0
        terms = {}
        if not due:
            terms["margin"] = at_least_float32(outputs.logits.new_zeros(()))
        elif torch.is_grad_enabled():
            terms["margin"] = self._margin(outputs, labels, self.margin_layers)
        else:
            terms |= self._evaluated(outputs, labels)
        if self.cross_entropy_weight > 0:
            terms["cross_entropy"] = self.cross_entropy_weight * cross_entropy(outputs.logits, labels).mean()
        return LossTerms(terms)

    @torch.no_grad()
    def after_step(self, outputs: Outputs, labels: Tensor) -> None:
        """Count the step; update the margins that come from data."""
        super().after_step(outputs, labels)
        self.margins.after_step()
        if "steps" in self._buffers:
            self.steps += 1

    def _evaluated(self, outputs: Outputs, labels: Tensor) -> dict[str, Tensor]:
        """The margin in an evaluation without gradients: in a graph of its own, without layers that allow none.

        Raises:
            ValueError: If no term is left.

        Warns:
            UserWarning: Once, if layers are left out.
        """
        with torch.inference_mode(mode=False), torch.no_grad():
            outputs = outputs.with_graph()
            labels = labels.clone()  # those of inference mode fit into no graph
            without = unmeasurable(outputs, self.margin_layers)
            layers = [name for name in self.margin_layers if name not in without]
            found = {"margin": self._margin(outputs, labels, layers)} if layers else {}
        if without and not (found or self.cross_entropy_weight):
            raise ValueError(next(iter(without.values())))
        if without and not self._said_without:
            self._said_without = True
            warnings.warn(
                f"this evaluation leaves out the margin at {', '.join(map(repr, without))}: "
                f"{next(iter(without.values()))}",
                UserWarning,
                stacklevel=6,
            )
        return found

    def _margin(self, outputs: Outputs, labels: Tensor, layers: Sequence[str]) -> Tensor:
        places = [self.margin_layers.index(name) for name in layers]
        rivals = top_rivals(outputs.logits, labels, check_pairs(outputs.logits, self.top_k))
        gaps, norms = gaps_and_norms(
            outputs, labels, rivals, layers, self._ruler,
            full=self.distance.denominator == "full", sweeps=self.distance.sweeps,
        )  # fmt: skip
        distances = first_order_distance(gaps, norms + self._ruler.eps)
        # without a gradient no boundary is known, and gap / eps is not a distance
        gamma = self.margins(torch.where(norms == 0, math.inf, distances), places)[:, None, None]
        weights: Tensor = gamma.new_tensor([self._weights[place] for place in places])
        if self.max_slope is not None:
            least = self._least_norms(outputs.logits, labels, rivals, weights, self.max_slope)
            bounded = torch.maximum(norms, least)
            distances = first_order_distance(gaps, bounded + self._ruler.eps)
            short = margin_violation(distances, gamma * (norms / bounded), self.lower_clip)
        else:
            short = margin_violation(distances, gamma, self.lower_clip)
        losses = (short.amax(dim=1) if self.aggregate == "max" else short.sum(dim=1)).mean(dim=1)
        if self.shifted:
            summed = short.shape[1] if self.aggregate == "sum" else 1
            losses = losses - summed * gamma.flatten()
        skipped = self.every if self.training and torch.is_grad_enabled() else 1
        return skipped * (losses * weights).sum()

    def _least_norms(
        self, logits: Tensor, labels: Tensor, rivals: Tensor, weights: Tensor, max_slope: float
    ) -> Tensor:
        """f_l, from which on a violation counts fully: (L, 1, 1), or (L, k, B) for probabilities."""
        summed = len(rivals) if self.aggregate == "sum" else 1
        share = len(self._weights) * summed / max_slope
        least = (weights[:, None, None] * share).clamp(min=_LEAST)  # a weight may be 0
        if self.score == "logits":
            return least
        still = logits if self.distance.denominator == "full" else logits.detach()
        pulls = gap_cotangents(still, labels, rivals, self.score).abs().amax(dim=2)
        return (least * pulls).clamp(min=_LEAST)


class LayerMargins(nn.Module):
    """Gamma of every layer; quantiles from data are accumulated in buffers.

    There is one setting for each layer.
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

    def forward(self, distances: Tensor, places: Sequence[int]) -> Tensor:
        """Gamma, (L,), for distances (L, k, B) of the layers at `places`.

        Until a quantile is fixed, this batch counts for it, together with the other batches before the next
        ``after_step`` (accumulated gradients). Batches without gradients or in evaluation mode do not count.
        """
        layers = [self._layers[place] for place in places]
        gammas = distances.new_tensor([0.0 if isinstance(one, GammaQuantile) else one for one in layers])
        if not self.from_data:
            return gammas
        nearest = distances.detach().amin(dim=1).abs()
        seen, done = torch.zeros_like(gammas), int(self.batches)
        for row, (place, layer) in enumerate(zip(places, layers, strict=True)):
            if isinstance(layer, GammaQuantile):
                finite = nearest[row][nearest[row].isfinite()]  # the others have no known boundary
                seen[row] = finite.quantile(layer.quantile) if len(finite) else _LEAST
                before = self.total[place].to(gammas)
                settled = before / layer.batches
                now = (before + seen[row]) / (done + 1)
                gammas[row] = torch.clamp(settled if done >= layer.batches else now, min=_LEAST)
        if torch.is_grad_enabled() and self.training:
            self._seen.append(seen)
        return gammas

    @torch.no_grad()
    def after_step(self) -> None:
        """Add the mean quantile since the last step, averaged over processes."""
        if not self._seen:
            return
        seen = torch.stack([one.to(self.total) for one in self._seen]).mean(dim=0)
        if process_count() > 1:
            dist.all_reduce(seen)
            seen /= process_count()
        for place, layer in enumerate(self._layers):
            if isinstance(layer, GammaQuantile) and int(self.batches) < layer.batches:
                self.total[place] += seen[place]
        self.batches += 1
        self._seen.clear()


def _gamma_of_layers(gamma: Any, layers: Sequence[str]) -> list[float | GammaQuantile]:
    """Gamma of each layer as a number or GammaQuantile, which may be given as a mapping of its settings.

    >>> _gamma_of_layers({"input": 0.5, "logits": {"quantile": 0.9}}, ("input", "logits"))
    [0.5, GammaQuantile(quantile=0.9, batches=20)]
    """
    if isinstance(gamma, Mapping) and not gamma.keys() & {"quantile", "batches"}:
        for name in gamma:
            check_choice("gamma", name, layers)
        missing = [name for name in layers if name not in gamma]
        if missing:
            raise ValueError(f"`gamma` must name every layer or be one number; got none for {missing}.")
        return [_gamma_of(gamma[name]) for name in layers]
    return [_gamma_of(gamma) for _ in layers]


def _gamma_of(gamma: Any) -> float | GammaQuantile:
    if isinstance(gamma, Mapping):
        for name in gamma:
            check_choice("gamma", name, ("quantile", "batches"))
        return GammaQuantile(**gamma)
    if isinstance(gamma, GammaQuantile):
        return gamma
    check_positive("gamma", gamma)
    return float(gamma)


def _weights_of_layers(given: float | Mapping[str, float] | None, layers: Sequence[str]) -> tuple[float, ...]:
    """A weight for each layer; by default equal weights with sum 1.

    Raises:
        ValueError: If a layer is missing or unknown, or a weight is below 0.
    """
    if given is None:
        return tuple(1 / len(layers) for _ in layers)
    if isinstance(given, Mapping):
        for name in given:
            check_choice("layer_weights", name, layers)
        missing = [name for name in layers if name not in given]
        if missing:
            raise ValueError(
                f"`layer_weights` must name every layer or be one number; got none for {missing}."
            )
    weights = tuple(given[name] if isinstance(given, Mapping) else given for name in layers)
    for weight in weights:
        check_non_negative("layer_weights", weight)
    return weights


def margin_violation(distance: Tensor, gamma: Tensor | float, lower_clip: float | None = None) -> Tensor:
    """How far the distance is short of the margin: max(0, min(gamma - d, lower_clip * gamma)).

    Beyond gamma the loss is 0. With a lower clip a, a sample that is wrong by more than (a - 1) gamma has a
    constant loss and no gradient, so a false label has no more effect.

    Source: Elsayed et al. (2018), section 3; the lower clip is from their published code, where a = 4.

    `distance` is signed, positive on the right side; `gamma`, above 0, has a shape that broadcasts with it; a is at
    least 1, or None for no clip.

    >>> margin_violation(torch.tensor([2.0, 0.5, -9.0]), 1.0, lower_clip=4.0).tolist()
    [0.0, 0.5, 4.0]
    """
    short = torch.relu(gamma - distance)
    if lower_clip is None:
        return short
    return torch.minimum(short, torch.as_tensor(lower_clip * gamma, dtype=short.dtype, device=short.device))
