"""Steps of most gain to first order: from an image, and as far as ball and box allow."""

import math

import torch
from torch import Tensor

from clearance.attacks.balls import common_factor, one_an_image, room_along, within
from clearance.attacks.norms import check_norm, wide
from clearance.vocabulary import Bounds

STEP_SHARE = 0.01
"""Share of the pixels that one step of norm 1 moves: the 99 % quantile of Tramer and Boneh (2019), SLIDE.

The steepest step of norm 1 moves a single pixel, which makes forty steps visit at most forty pixels; moving
all of them would be a step of another norm.
"""

_LONGEST = 1e6  # of a step, in units of one that meets no bound; less where its square would be no number


def steepest(gradient: Tensor, norm: float, room: Tensor | None = None) -> Tensor:
    """The step of norm 1 in which to first order the most is gained: sign, unit vector, or few pixels.

    A gradient that is zero, or not a number, gives no step. Multiplying the gradient by a power of two
    changes no bit.

    Args:
        gradient: (B, ...).
        norm: inf, 2 or 1. The step of norm 1 is shared evenly by the `STEP_SHARE` of pixels with the
            largest gradient (rounded up; ties by position), more of them where there is no room.
        room: How far each pixel can still move along its gradient, in lengths of the step, same shape. What a
            pixel has no room for then goes to the others: in norm 1 to the one with the next smaller
            gradient, in norm 2 by a longer step in the same direction, whose part within the bounds has norm
            1. (All of it is asked for, so that a projection leaves pixels at their bound where they are.)

    >>> steepest(torch.tensor([[3.0, -4.0, 0.0]]), 2)
    tensor([[ 0.6000, -0.8000,  0.0000]])
    >>> steepest(torch.tensor([[3.0, -4.0, 0.0]]), 1)
    tensor([[ 0., -1.,  0.]])
    """
    check_norm(norm)
    gradient = torch.nan_to_num(gradient, nan=0.0)
    if norm == math.inf:
        return gradient.sign()
    flat = wide(gradient).flatten(1)
    # in units of the largest entry, so that squares neither vanish nor overflow
    peak = flat.abs().amax(dim=1, keepdim=True)
    flat = flat / torch.where(peak > 0, peak, 1)
    space = None if room is None else wide(room).flatten(1)
    longest = min(_LONGEST, math.sqrt(torch.finfo(gradient.dtype).max) / 4)
    step = _unit_vector(flat, space, longest) if norm == 2 else _few_pixels(flat, space)
    return step.to(gradient.dtype).view_as(gradient)


def linear_optimum(
    gradient: Tensor, images: Tensor, epsilon: float | Tensor, norm: float, bounds: Bounds
) -> Tensor:
    """The displacement in the ball and within the bounds that gains most to first order.

    It maximises <gradient, d> exactly: for a linear model this is the strongest attack there is. ::

        inf   d = epsilon sign(g), clipped
        2     d = clip(t g), t so that the norm is epsilon (or every pixel is at its bound)
        1     the largest |g| is moved to its bound first, then the next, until epsilon is spent

    Args:
        gradient: (B, ...); entries that are zero or not a number are left alone.
        images: What is displaced, the same shape, within `bounds`.
        epsilon: Radius in pixel units, at least 0: one number, or one an image, (B,).
        norm: inf, 2 or 1.
        bounds: Of pixel values.

    >>> images, gradient = torch.tensor([[0.9, 0.5]]), torch.tensor([[4.0, 3.0]])
    >>> linear_optimum(gradient, images, 0.5, 1, Bounds())
    tensor([[0.1000, 0.4000]])
    """
    check_norm(norm)
    gradient = torch.nan_to_num(gradient, nan=0.0)
    radius = one_an_image(epsilon, images)
    room = room_along(gradient, images, bounds)
    if norm == math.inf:
        return torch.minimum(radius, room) * gradient.sign()
    flat, limit = wide(gradient).flatten(1), wide(radius).flatten(1)
    peak = flat.abs().amax(dim=1, keepdim=True)
    size = flat.abs() / torch.where(peak > 0, peak, 1)
    space = torch.where(size > 0, wide(room).flatten(1), 0)
    if norm == 2:
        moved = torch.where(size > 0, torch.minimum(common_factor(size, space, limit) * size, space), 0)
    else:
        moved = _largest_first(size, space, limit)
    return (within(moved, limit, norm) * flat.sign()).to(images.dtype).view_as(images)


def _unit_vector(gradient: Tensor, room: Tensor | None, longest: float) -> Tensor:
    if room is None:
        length = gradient.square().sum(dim=1, keepdim=True).sqrt()
        return gradient / torch.where(length > 0, length, 1)
    size = gradient.abs()
    factor = common_factor(size, torch.where(size > 0, room, 0), torch.ones_like(size[:, :1]))
    # where there is less room than a step needs, the farthest pixel reaches its bound
    most = torch.where(size > 0, room / size, 0).amax(dim=1, keepdim=True).clamp(max=longest)
    return gradient * torch.minimum(factor, most)


def _few_pixels(gradient: Tensor, room: Tensor | None) -> Tensor:
    size = gradient.abs()
    share = torch.full_like(size, 1 / math.ceil(STEP_SHARE * size.shape[1]))
    if room is not None:
        share = torch.minimum(share, room.to(share))
    whole = torch.ones_like(size[:, :1])
    return _largest_first(size, torch.where(size > 0, share, 0), whole) * gradient.sign()


def _largest_first(size: Tensor, room: Tensor, radius: Tensor) -> Tensor:
    order = size.argsort(dim=1, descending=True, stable=True)
    space = room.gather(1, order)
    before = space.cumsum(dim=1) - space
    filled = torch.minimum((radius - before).clamp(min=0), space)
    return torch.zeros_like(size).scatter(1, order, filled)
