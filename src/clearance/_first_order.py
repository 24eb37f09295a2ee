"""The first-order distance to a boundary: a score gap over the dual norm of its gradient."""

import math

import torch
from torch import Tensor


def dual_exponent(norm: float) -> float:
    """The exponent q whose norm is dual to that of p: 1/p + 1/q = 1.

    Args:
        norm: p, at least 1; ``inf`` for the largest absolute value.

    Raises:
        ValueError: If p is below 1, where there is no norm and no dual.

    >>> dual_exponent(2), dual_exponent(float("inf")), dual_exponent(1), dual_exponent(3)
    (2.0, 1.0, inf, 1.5)
    """
    if math.isnan(norm) or norm < 1:
        raise ValueError(
            f"`norm` must be at least 1 (inf included), because below 1 there is no norm and no dual; got {norm}."
        )
    if norm == 1:
        return math.inf
    return 1.0 if math.isinf(norm) else norm / (norm - 1)


def dual_norm(gradient: Tensor, norm: float, leading: int = 1) -> Tensor:
    """The norm dual to `norm` of each sample's gradient; its own derivative at 0 is 0.

    ||g||_q = (sum_n |g_n|^q)^(1/q),    1/p + 1/q = 1

    It is what a displacement of p-norm 1 can change a linear function by, at most.

    Args:
        gradient: One gradient for each index of the first `leading` axes; the others are summed over.
        norm: p, at least 1: the norm in which displacements are measured.
        leading: How many axes count samples; 1 for (B, ...).

    Returns:
        The first `leading` axes, at least float32: halves are added up in float32, because a sum of absolute
        values leaves the range of float16 and most digits of bfloat16.

    >>> gradient = torch.tensor([[3.0, -4.0], [0.0, 0.0]])
    >>> dual_norm(gradient, 2).tolist(), dual_norm(gradient, float("inf")).tolist()
    ([5.0, 0.0], [7.0, 0.0])
    """
    flat = gradient.unsqueeze(-1) if gradient.ndim == leading else gradient
    dtype = torch.promote_types(flat.dtype, torch.float32)
    # Axes by number and not flattened: a gradient in channels-last order would have to be copied.
    axes = tuple(range(leading, flat.ndim))
    exponent = dual_exponent(norm)
    if exponent in (1.0, 2.0, math.inf):
        return torch.linalg.vector_norm(flat, ord=exponent, dim=axes, dtype=dtype)
    # in units of the largest entry: powers of a norm near 1 leave the range of floating point
    flat = flat.to(dtype)
    peak = flat.detach().abs().amax(dim=axes, keepdim=True)
    unit = torch.where(peak > 0, peak, 1.0)
    return unit.squeeze(axes) * torch.linalg.vector_norm(flat / unit, ord=exponent, dim=axes)


def first_order_distance(gap: Tensor, gradient_norm: Tensor) -> Tensor:
    """Signed distance to where two scores tie, if both were linear: gap / gradient_norm.

    d = (f_y - f_i) / ||grad f_y - grad f_i||_q

    Exact for a linear classifier, and for a piecewise linear one as long as the displacement stays in one
    piece.

    Source: Elsayed et al. (2018), section 3 (without the absolute value: the sign says which side).

    Args:
        gap: f_y - f_i, positive on the right side of the boundary; any shape.
        gradient_norm: Dual norm of the gap's gradient, at least 0, of a shape that broadcasts with it. A small number
            added to it bounds the distance.

    Returns:
        The distance, in the unit in which the gradient was taken. A gap whose gradient is zero is infinitely
        far from a tie, and a tie is at 0.

    Misleads far from linear: it is neither an upper nor a lower bound of the true distance.

    >>> first_order_distance(torch.tensor([6.0, -6.0, 1.0]), torch.tensor([2.0, 2.0, 0.0])).tolist()
    [3.0, -3.0, inf]
    """
    flat = gradient_norm == 0
    # Divided by 1 where it is flat, so that neither value nor derivative of the branch not taken is NaN.
    ratio = gap / torch.where(flat, torch.ones_like(gradient_norm), gradient_norm)
    endless = torch.where(
        gap == 0, torch.zeros_like(ratio), torch.copysign(torch.full_like(ratio, math.inf), gap)
    )
    return torch.where(flat, endless.detach(), ratio)
