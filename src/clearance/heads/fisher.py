"""How far apart two heads are along the straight path between them, by the Fisher information, never formed.

The Fisher matrix of a head has as many rows as the head has parameters. A length needs only its product with
one direction, which is a derivative along that direction: one number for each sample.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from clearance._checks import check_count
from clearance.heads._path_slopes import JvpPath, Parameters, ReluPath, Slopes
from clearance.heads._relu_layers import WeightAndBias, linear_layers
from clearance.heads.stack import HeadStack

SlopesOf = Callable[[Tensor, Tensor], Slopes]
ROW_ELEMENTS = 2**19  # of the widest activation of all points of the path together: 4 MiB


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

    A head that is Linear (ReLU Linear)* goes through formulas written out by hand, for all P points at once
    and with one product of the features for all of them; any other through ``torch.func.jvp``. Everything is
    in float64, and 1 - p_label is the sum of the other probabilities, so that a confident head's distance is
    small, not 0. Dropout is off.

    Args:
        start: theta_0, a stack of one head.
        tangent: One segment, for each parameter name: (theta_P - theta_0) / P, shaped like one head's.
        features: (N, D), N at least 1.
        labels: Class indices, (N,).
        segments: P; 15 is that of Sato et al. (2019), section 4.2.

    Raises:
        ValueError: If `start` holds several heads, or shapes do not fit.

    Misleads: the empirical distance tends to 0 wherever the loss does, so a head that is sure of its answers
    seems close to others. Not finite where logits are not.

    >>> head = HeadStack.initialised(torch.nn.Linear(2, 3), 1, torch.Generator().manual_seed(0))
    >>> tangent = {"weight": torch.ones(3, 2), "bias": torch.zeros(3)}    # moves all logits alike: no change
    >>> found = segment_distances(head, tangent, torch.rand(5, 2), torch.tensor([0, 1, 2, 0, 1]), segments=2)
    >>> found.layers, bool((found.model < 1e-12).all()), found.euclidean[-1].tolist()
    (('', 'all'), True, [2.449489742783178, 2.449489742783178])
    """
    check_count("segments", segments)
    _check_shapes(start, tangent, features, labels)
    own = {id(value): value for value in start.architecture.parameters()}
    head = copy.deepcopy(
        start.architecture, own
    ).eval()  # other modules, the same tensors: nobody writes to them
    origin = {name: value[0].detach().double() for name, value in start.parameters.items()}
    step = {name: tangent[name].detach().double() for name in origin}
    layers = _layers(origin)
    names = linear_layers(head)
    if names is not None:
        pairs = [_pairs(parameters, names) for parameters in (origin, step)]
        path = ReluPath(pairs[0], pairs[1], segments)
        slopes_of, widest = path.slopes, segments * max(len(weight) for weight, _ in pairs[0])
    else:
        slopes_of, widest = JvpPath(head, origin, step, list(layers.values()), segments).slopes, 1
    rows = max(1, ROW_ELEMENTS // max(widest, features.shape[1]))
    parts = list(_by_rows(slopes_of, features, labels, rows))
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

    Args:
        segments: (..., P), at least 0.

    Misleads: it is no length. Cut the same path into twice as many segments, and it falls by the root of 2;
    compare equal P only, or sum the segments.

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


def _pairs(parameters: Parameters, names: list[tuple[str, str | None]]) -> list[WeightAndBias]:
    return [(parameters[weight], None if bias is None else parameters[bias]) for weight, bias in names]


def _by_rows(slopes_of: SlopesOf, features: Tensor, labels: Tensor, rows: int) -> Iterator[Slopes]:
    for part, own in zip(features.detach().split(rows), labels.split(rows), strict=True):
        yield slopes_of(part.double(), own)


def _check_shapes(start: HeadStack, tangent: Parameters, features: Tensor, labels: Tensor) -> None:
    if len(start) != 1:
        raise ValueError(
            f"`start` must hold one head; got {len(start)}. Pass stack.select(torch.tensor([k]))."
        )
    expected = {name: tuple(value.shape[1:]) for name, value in start.parameters.items()}
    found = {name: tuple(value.shape) for name, value in tangent.items()}
    if found != expected:
        raise ValueError(f"`tangent` must have the names and shapes of one head, {expected}; got {found}.")
    if features.ndim != 2 or labels.shape != features.shape[:1] or not len(labels):
        raise ValueError(
            "`features` must be (N, D) and `labels` (N,) with N at least 1; got "
            f"{tuple(features.shape)} and {tuple(labels.shape)}."
        )
