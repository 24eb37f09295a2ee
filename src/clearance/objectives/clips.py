"""From distances to losses: how far a sample is short of its margin, and what several rivals come to."""

import math
from typing import Literal

import torch
from torch import Tensor

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
