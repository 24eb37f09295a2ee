"""Which rival classes a margin looks at: the highest logits, or the nearest by random projections."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from clearance._checks import check_choice, check_count
from clearance._rng import generator
from clearance.geometry.first_order import dual_exponent
from clearance.objectives._class_pairs import wide
from clearance.objectives._gap_gradients import before_head
from clearance.objectives._margin_layers import affine_weight, full_precision, margin_tensors
from clearance.objectives._sweeps import one_sweep
from clearance.tensors import Outputs


def top_rivals(logits: Tensor, labels: Tensor, count: int) -> Tensor:
    """The `count` wrong classes with the highest logits, highest first.

    Ranking by softmax probability would be the same. The highest need not be the nearest: a class whose gap
    is steep can be nearer than one whose gap is small.

    Args:
        logits: (B, C).
        labels: (B,).
        count: k, at most C - 1.

    Returns:
        (k, B).

    >>> top_rivals(torch.tensor([[5.0, 1.0, 4.0]]), torch.tensor([0]), 2)
    tensor([[2],
            [1]])
    """
    lowest = torch.finfo(logits.dtype).min  # a class that is masked out (-inf) comes before the sample's own
    masked = logits.detach().clamp(min=lowest).scatter(1, labels.unsqueeze(1), -math.inf)
    return masked.topk(count, dim=1).indices.mT


@dataclass(frozen=True)
class Projections:
    """Settings of a shortlist out of all classes whose cost does not grow with their number.

    For random directions u_1 .. u_m at one layer, one forward derivative gives the slopes of all C logits at
    once, and with entries drawn from a q-stable law the slope of a gap is distributed as its gradient's
    q-norm times one such draw. The norms of all gaps are estimated from m slopes, and the `size` classes with
    the smallest estimated distance are taken. It only chooses: distances in a loss are exact for those.

    Source: q-stable sketches after Indyk (2006); for margins, our addition.

    Args:
        layer: Where distances are estimated: a layer of the loss, or ``"features"``. A deep one is cheap: each
            probe costs a forward pass of what lies behind it, and on a CPU four times that in convolutions,
            because torch's derivative of their backward pass computes weight gradients unasked.
        probes: m, at least 1. With 8 the estimate is off by about a quarter for p = 2 and by half for p =
            inf.
        size: How many classes are taken, at least 1; all wrong ones where there are fewer.
        seed: Of the directions, which are drawn anew in every step.

    >>> Projections("extractor.stage3").size
    5
    """

    layer: str
    probes: int = 8
    size: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("probes", self.probes)
        check_count("size", self.size)
        check_count("seed", self.seed, minimum=0)

    def check_fits(self, norm: float, layers: Sequence[str]) -> None:
        """Raise ValueError for a norm whose dual has no stable law (p below 2, that is q above 2), or another layer."""
        if dual_exponent(norm) > 2:
            raise ValueError(
                f"`shortlist` needs `norm` of at least 2, because no random projection estimates the dual of a "
                f"smaller one; got {norm}. Use top_k, or norm=2 or inf."
            )
        check_choice("shortlist.layer", self.layer, (*layers, "features"))
        if self.layer == "logits":
            raise ValueError("`shortlist.layer` must lie before the logits; got 'logits'. Use top_k there.")


def projections_of(given: Any) -> Projections | None:
    """Settings, or none, from themselves or from a mapping.

    Raises:
        TypeError: If they are neither.
        ValueError: If a setting is unknown, or there is no layer.
    """
    if given is None or isinstance(given, Projections):
        return given
    if not isinstance(given, Mapping):
        raise TypeError(
            f"`shortlist` must be Projections, a mapping of its settings, or None; got {type(given).__name__}."
        )
    for name in given:
        check_choice("shortlist", name, [field.name for field in fields(Projections)])
    if "layer" not in given:
        raise ValueError(f"`shortlist` must name a `layer`; got only {sorted(given)}.")
    return Projections(**given)


def stable_draws(exponent: float, shape: tuple[int, ...], stream: torch.Generator) -> Tensor:
    """Draws from the symmetric stable law of an exponent q in (0, 2], of unit scale, float64.

    Chambers, Mallows & Stuck (1976), Eq. 2.2: q = 1 is the Cauchy law, q = 2 the normal law of variance 2.

    >>> stable_draws(2.0, (100_000,), generator(0)).var().round(decimals=1)
    tensor(2., dtype=torch.float64)
    """
    if exponent == 2:
        return math.sqrt(2) * torch.randn(shape, generator=stream, dtype=torch.float64)
    # Kept off the ends, where tan and 1/E are infinite.
    tiny = 1e-12
    angle = math.pi * (torch.rand(shape, generator=stream, dtype=torch.float64).clamp(tiny, 1 - tiny) - 0.5)
    if exponent == 1:
        return angle.tan()
    wait = -torch.rand(shape, generator=stream, dtype=torch.float64).clamp(min=tiny).log().clamp(max=-tiny)
    first = (exponent * angle).sin() / angle.cos() ** (1 / exponent)
    return first * (((1 - exponent) * angle).cos() / wait) ** ((1 - exponent) / exponent)


def stable_scale(draws: Tensor, exponent: float) -> Tensor:
    """The scale of stable draws along the first axis, up to a constant that is the same for all.

    Half the mean square under a root for q = 2, which is the most exact there; the median of the absolute
    value below, where no variance exists.

    >>> stable_scale(torch.tensor([[-2.0], [2.0]]), 2.0)
    tensor([1.4142])
    """
    if exponent == 2:
        return (draws.square().mean(dim=0) / 2).sqrt()
    return draws.abs().quantile(0.5, dim=0)


def directional_slopes(root: Tensor, activation: Tensor, directions: Tensor, layer: str = "") -> Tensor:
    """The slopes of all entries of the root along directions at a layer, (m, B, C).

    A forward derivative by two backward ones: a sweep is linear in the vector that it starts from, and its
    derivative with respect to that vector, along u, is J u.

    Args:
        root: The logits, or the features, (B, C).
        activation: (B, ...); where it is the root itself the slopes are the directions.
        directions: (m, ...), the same for every sample.
        layer: What the activation is called in an error.

    Raises:
        ValueError: If an operation in between cannot be differentiated twice.
    """
    if activation is root:
        return directions.unsqueeze(1).expand(-1, *root.shape)
    start = torch.zeros_like(root, requires_grad=True)
    (swept,) = one_sweep(root, {layer: activation}, start, create_graph=True)
    spread = directions.to(swept.dtype).unsqueeze(1)
    try:
        slopes = [
            torch.autograd.grad(swept, start, along.expand_as(swept), retain_graph=True)[0]
            for along in spread
        ]
    except RuntimeError as error:
        raise ValueError(
            f"`shortlist.layer` {layer!r} has an operation behind it that cannot be differentiated twice, as random "
            "projections ask; name a later layer, such as 'features', or use top_k."
        ) from error
    return torch.stack(slopes)


def projected_rivals(
    outputs: Outputs, labels: Tensor, norm: float, settings: Projections, step: int = 0
) -> Tensor:
    """The wrong classes that are nearest by estimated first-order distance at one layer, nearest first.

    Distances are those of logits, whatever score a loss then takes; the loss's own are exact.

    Under a linear head derivatives are taken of the features and multiplied by its weight once, so that beside
    that product and the choice nothing grows with the number of classes.

    Args:
        outputs: Of a classifier, with the activation at the layer that `settings` names.
        labels: (B,).
        norm: p, at least 2.
        settings: Layer, probes, size and seed.
        step: Other steps draw other directions.

    Returns:
        (size, B), or (C - 1, B) where there are fewer wrong classes.

    Misleads where batch statistics make samples interact: their slopes are then mixed.
    """
    activation = margin_tensors(outputs, (settings.layer,))[settings.layer]
    exponent = dual_exponent(norm)
    stream = generator(settings.seed, "projections", step)
    drawn = stable_draws(exponent, (settings.probes, *activation.shape[1:]), stream)
    # In units of the largest entry: Cauchy draws leave the range of float16, and scale means nothing here.
    directions = (drawn / drawn.abs().amax()).to(activation)
    slopes = _slopes_of_logits(outputs, activation, directions, settings.layer)
    own = labels.unsqueeze(1)
    norms = stable_scale(slopes - slopes.gather(2, own.expand(len(slopes), -1, -1)), exponent)
    scores = outputs.logits.detach().to(norms.dtype)
    distances = (scores.gather(1, own) - scores) / norms.clamp(min=torch.finfo(norms.dtype).tiny)
    farthest = torch.finfo(distances.dtype).max  # a class that is masked out comes before the sample's own
    nearest = (
        distances.clamp(max=farthest)
        .scatter(1, own, math.inf)
        .topk(min(settings.size, scores.shape[1] - 1), dim=1, largest=False)
    )
    return nearest.indices.mT


def _slopes_of_logits(outputs: Outputs, activation: Tensor, directions: Tensor, layer: str) -> Tensor:
    """(m, B, C), at least float32 and without a graph."""
    weight = affine_weight(outputs.head)
    if weight is None or not before_head([layer]):
        return wide(directional_slopes(outputs.logits, activation, directions, layer)).detach()
    slopes = wide(directional_slopes(outputs.features, activation, directions, layer)).detach()
    with full_precision(slopes):
        return slopes @ wide(weight).detach().mT
