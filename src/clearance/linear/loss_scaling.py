"""How the size of the weights rescales a loss: the same data, seen as errors alone or as distances alone.

s(x) = ||w|| d(x), so that a loss of scores is a scaled loss of distances,  f_scale(z) = f(scale z). Large weights make
it count the errors' depth only (the error distance); small weights make it linear, so that all data count (the
adversarial distance).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from clearance._checks import check_choice, check_positive
from clearance.linear._arguments import Points, as_float64, check_finite


@dataclass(frozen=True)
class ScaledLoss:
    """A loss with its linear limit for small weights,  f(z) ~ alpha - beta z  near 0.

    Args:
        function: f, elementwise.
        alpha: f(0); None where the loss has no slope there.
        beta: -f'(0).
    """

    function: Callable[[Tensor], Tensor]
    alpha: float | None
    beta: float | None


LOSSES = {
    "zero_one": ScaledLoss(lambda z: (z <= 0).to(z.dtype), None, None),
    "hinge": ScaledLoss(lambda z: (1 - z).clamp_min(0), 1.0, 1.0),
    "softplus": ScaledLoss(lambda z: torch.logaddexp(-z, torch.zeros_like(z)), math.log(2.0), 0.5),
}


def scaled_loss(loss: str, z: Points, scale: float) -> Tensor:
    """f_scale(z) = f(scale z), elementwise: the loss at a distance z when ||w|| is `scale`.

    Source: Tanay and Griffin (2018), "scaling the loss function". A hinge's kink sits at z = 1 / scale.

    The loss is ``"zero_one"``, ``"hinge"`` or ``"softplus"``; z are distances y d(x), any shape; `scale` is ||w||,
    above 0.

    Raises:
        ValueError: If there is no such loss, a distance is not finite, or the scale is not above 0.

    >>> scaled_loss("hinge", [0.0, 0.25, 0.5], scale=2.0).tolist()
    [1.0, 0.5, 0.0]
    """
    return _known(loss).function(_distances(z, scale) * scale)


def large_scale_limit(loss: str, z: Points, scale: float) -> Tensor:
    """What f_scale(z) tends to for large weights, elementwise: scale max(-z, 0); its mean is scale d_err.

    For the hinge the difference is in [0, 1], for softplus in (0, ln 2]. The 0-1 loss is its own limit.

    >>> large_scale_limit("softplus", [-2.0, 2.0], scale=10.0).tolist()
    [20.0, 0.0]
    """
    known, distances = _known(loss), _distances(z, scale)
    return known.function(distances) if known.beta is None else scale * (-distances).clamp_min(0)


def small_scale_limit(loss: str, z: Points, scale: float) -> Tensor:
    """What f_scale(z) tends to for small weights, elementwise: alpha - beta scale z; its mean has -beta scale d_adv.

    Exact for the hinge while scale max z <= 1; for softplus the difference is in [0, (scale z)^2 / 8].

    Raises:
        ValueError: For the 0-1 loss, which no scale makes linear.

    >>> small_scale_limit("hinge", [-2.0, 2.0], scale=0.25).tolist()
    [1.5, 0.5]
    """
    known, distances = _known(loss), _distances(z, scale)
    if known.alpha is None or known.beta is None:
        raise ValueError("`loss` must be 'hinge' or 'softplus', because no scale makes the 0-1 loss linear.")
    return known.alpha - known.beta * scale * distances


def _known(loss: str) -> ScaledLoss:
    check_choice("loss", loss, LOSSES)
    return LOSSES[loss]


def _distances(z: Points, scale: float) -> Tensor:
    check_positive("scale", scale)
    distances = as_float64(z)
    check_finite("z", distances)
    return distances
