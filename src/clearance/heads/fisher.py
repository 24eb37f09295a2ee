"""Fisher distance between two heads along the straight path between them, without forming the Fisher matrix.

The Fisher matrix of a head has one row for each parameter. A length needs only its product with one direction,
which is a derivative along that direction: one number for each sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearance.heads.stack import HeadStack, WeightAndBias, linear_layers, weights_and_biases

Parameters = Mapping[str, Tensor]
Slopes = tuple[Tensor, Tensor]
ROW_ELEMENTS = 2**19  # of the widest activation over all points of the path: 4 MiB


@dataclass(frozen=True)
class SegmentDistances:
    """The length of every segment of a path, for each layer and for all layers together, float64.

    Args:
        layers: Names of the L parameter-holding modules, then ``"all"``.
        empirical: Fisher information with the true labels, shape (L + 1, P), nats.
        model: Fisher information with labels as the head itself draws them, shape (L + 1, P), nats.
        euclidean: Displacement of the parameters, shape (L + 1, P), in their own unit.
    """

    layers: tuple[str, ...]
    empirical: Tensor
    model: Tensor
    euclidean: Tensor


@torch.no_grad()
def segment_distances(
    start: HeadStack, tangent: Parameters, features: Tensor, labels: Tensor, segments: int = 15
) -> SegmentDistances:
    """Fisher distances between neighbours on the straight path theta_a = start + a tangent, a = 0..P.

    d(theta_a, theta_{a+1})^2 = mean over samples of (tangent . grad L)^2    (empirical)
    d(theta_a, theta_{a+1})^2 = mean over samples of Var_{c ~ p} (tangent . grad log p_c)    (model)

    both at theta_a, the left end; L = -log p_label. For a layer, only that layer's part of the tangent counts,
    weight and bias together, while the whole head moves along the path.

    Source: Sato et al. (2019), Eq. 14 and 16, whose Fisher information is the empirical one.

    Closed form, for all P points at once and with one product of the features for all of them, in float64. 1 - p_label
    is computed as the sum of the other probabilities, so that a confident head's distance is small, not 0.

    Args:
        start: theta_0, a stack of one head, which is Linear (ReLU Linear)*.
        tangent: One segment, for each parameter name: (theta_P - theta_0) / P, shaped like one head's.
        features: (N, D), N at least 1.
        labels: Class indices, (N,).
        segments: P; 15 as in Sato et al. (2019), section 4.2.

    Misleads: the empirical distance tends to 0 wherever the loss does, so a confident head seems close to others.
    Not finite where logits are not.

    >>> head = HeadStack.initialised(torch.nn.Linear(2, 3), 1, torch.Generator().manual_seed(0))
    >>> tangent = {"weight": torch.ones(3, 2), "bias": torch.zeros(3)}    # moves all logits alike: no change
    >>> found = segment_distances(head, tangent, torch.rand(5, 2), torch.tensor([0, 1, 2, 0, 1]), segments=2)
    >>> found.layers, bool((found.model < 1e-12).all()), found.euclidean[-1].tolist()
    (('', 'all'), True, [2.449489742783178, 2.449489742783178])
    """
    origin = {name: value[0].detach().double() for name, value in start.parameters.items()}
    step = {name: tangent[name].detach().double() for name in origin}
    layers = _layers(origin)
    names = linear_layers(start.architecture)
    assert names is not None
    weights, moves = (weights_and_biases(parameters, names) for parameters in (origin, step))
    path = ReluPath(weights, moves, segments)
    widest = segments * max(len(weight) for weight, _ in weights)
    rows = max(1, ROW_ELEMENTS // max(widest, features.shape[1]))
    batches = zip(features.detach().split(rows), labels.split(rows), strict=True)
    parts = [path.slopes(part.double(), own) for part, own in batches]
    empirical = torch.cat([loss for loss, _ in parts], dim=-1)
    deviation = torch.cat([answer for _, answer in parts], dim=-1)
    moved = {name: _norm(value.flatten()) for name, value in step.items()}
    euclidean = torch.stack(
        [_norm(torch.stack([moved[name] for name in owned])) for owned in [*layers.values(), list(step)]]
    )
    root = len(labels) ** 0.5
    return SegmentDistances(
        layers=(*layers, "all"),
        empirical=_norm(empirical) / root,
        model=_norm(deviation) / root,
        euclidean=euclidean[:, None].expand(-1, segments).contiguous(),
    )


def path_distance(segments: Tensor) -> Tensor:
    """The distance between the ends of a path: the root of the sum of its segments' squares, shape (...).

    d(theta_0, theta_P) = [ sum_a d(theta_a, theta_{a+1})^2 ]^(1/2)

    Source: Sato et al. (2019), Eq. 15.

    Segments are (..., P), at least 0.

    Misleads: it is not a length. With twice as many segments of the same path it falls by the root of 2;
    compare only equal P, or sum the segments.

    >>> path_distance(torch.tensor([3.0, 4.0]))
    tensor(5.)
    """
    return _norm(segments)


def _norm(values: Tensor) -> Tensor:
    """Euclidean norm over the last dimension; squares of numbers below 1e-162 would be 0."""
    largest = values.abs().amax(dim=-1, keepdim=True)
    unit = torch.where((largest > 0) & largest.isfinite(), largest, 1)
    return (values / unit).square().sum(dim=-1).sqrt() * unit[..., 0]


def _layers(parameters: Parameters) -> dict[str, list[str]]:
    """Parameter names of each module that holds any, in the architecture's order."""
    layers: dict[str, list[str]] = {}
    for name in parameters:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    return layers


class ReluPath:
    """All points of a path of Linear (ReLU Linear)* heads at once.

    At point a a layer gives h (W + a dW)^T + b + a db = (h W^T + b) + a m with m = h dW^T + db, and m is
    also that layer's own derivative along the path. The features enter only the first layer's two products,
    which serve every a.
    """

    def __init__(self, origin: Sequence[WeightAndBias], step: Sequence[WeightAndBias], segments: int) -> None:
        self.origin, self.step = origin, step
        self.at = torch.arange(segments, dtype=torch.float64, device=origin[0][0].device)[:, None, None]

    def slopes(self, features: Tensor, labels: Tensor) -> Slopes:
        """Slope of each sample's loss and deviation of its answers' slopes, both (L + 1, P, n)."""
        first, moved = nn.functional.linear(features, *self.origin[0]), []
        moved.append(nn.functional.linear(features, *self.step[0]))
        hidden = first + self.at * moved[0]
        derivatives = moved[0].expand_as(hidden)[None]
        entered = []
        for layer, step in zip(self.origin[1:], self.step[1:], strict=True):
            active = hidden > 0
            hidden = torch.where(active, hidden, 0)
            entered.append(active)
            moved.append(nn.functional.linear(hidden, *step))
            derivatives = self._times_weight(torch.where(active, derivatives, 0), layer[0], step[0])
            derivatives = torch.cat([derivatives, moved[-1][None]])
            hidden = nn.functional.linear(hidden, *layer) + self.at * moved[-1]
        losses = self._backward(_logit_gradient(hidden, labels), entered, moved)
        with_sums = [torch.cat([each, each.sum(dim=0, keepdim=True)]) for each in (losses, derivatives)]
        return with_sums[0], _deviation(hidden, with_sums[1])

    def _backward(self, delta: Tensor, entered: list[Tensor], moved: list[Tensor]) -> Tensor:
        """u_l = sum_out delta_l (a_{l-1} dW_l^T + db_l) with delta_l = dL/dz_l, shape (L, P, n)."""
        slopes = [(delta * moved[-1]).sum(dim=-1)]
        for above in range(len(moved) - 1, 0, -1):
            delta = self._times_weight(delta, self.origin[above][0].T, self.step[above][0].T)
            delta = torch.where(entered[above - 1], delta, 0)
            slopes.append((delta * moved[above - 1]).sum(dim=-1))
        return torch.stack(slopes[::-1])

    def _times_weight(self, values: Tensor, weight: Tensor, step: Tensor) -> Tensor:
        """The values (..., P, n, i) times the transposed weight at each point of the path."""
        return (values @ step.T).mul_(self.at).add_(values @ weight.T)


def _logit_gradient(logits: Tensor, labels: Tensor) -> Tensor:
    """Softmax minus one-hot, the label's entry as minus the sum of the others: p_label may round to 1."""
    own = nn.functional.one_hot(labels, logits.shape[-1]).bool()
    others = torch.where(own, 0, torch.log_softmax(logits, dim=-1).exp())
    return torch.where(own, -others.sum(dim=-1, keepdim=True), others)


def _deviation(logits: Tensor, derivatives: Tensor) -> Tensor:
    """Standard deviation of the logits' derivatives (..., C) under softmax(logits), shape (...).

    Measured from the most likely class, whose difference is then 0: the variance of a confident head would
    otherwise be the difference of two nearly equal numbers.
    """
    chances = torch.log_softmax(logits, dim=-1).exp()
    best = logits.argmax(dim=-1, keepdim=True).expand(*derivatives.shape[:-1], 1)
    differences = derivatives - derivatives.gather(-1, best)
    mean = (chances * differences).sum(dim=-1)
    second = (chances * differences.square()).sum(dim=-1)
    return (second - mean.square()).clamp(min=0).sqrt()
