"""The balls that attacks move in: norms, projections and steps of most gain, with the bounds of the pixels active.

Everywhere below an image may only stay between its bounds, so the ball is met by a box that contains its
centre; what is returned is exact for the two together, not for one after the other.
"""

import math

import torch
from torch import Tensor

from clearance.vocabulary import Bounds

NORMS = (math.inf, 2.0, 1.0)
"""The norms that have a ball here."""

STEP_SHARE = 0.01
"""Share of the pixels that one step of norm 1 moves: the 99 % quantile of Tramer and Boneh (2019), SLIDE.

The steepest step of norm 1 moves a single pixel, which makes forty steps visit at most forty pixels; moving
all of them would be a step of another norm.
"""

_LONGEST = 1e6  # of a step, in units of one that meets no bound
_MOST_ROUNDS = 100  # of the search for a common factor; each round settles at least one pixel, mostly many


def check_norm(norm: float) -> None:
    """Raise ValueError unless there is a ball of this norm.

    >>> check_norm(3)
    Traceback (most recent call last):
    ValueError: `norm` must be one of inf, 2, 1; got 3.
    """
    if norm not in NORMS:
        raise ValueError(f"`norm` must be one of inf, 2, 1; got {norm!r}.")


def norm_of(delta: Tensor, norm: float) -> Tensor:
    """The norm of each displacement, of at least float32 and safe from overflow and underflow.

    Args:
        delta: (B, ...).
        norm: inf, 2 or 1.

    Returns:
        (B,).

    >>> norm_of(torch.tensor([[3.0, -4.0]]), 2), norm_of(torch.tensor([[3.0, -4.0]]), 1)
    (tensor([5.]), tensor([7.]))
    """
    check_norm(norm)
    size = _wide(delta).flatten(1).abs()
    if norm == 1:
        return size.sum(dim=1)
    peak = size.amax(dim=1)
    if norm == math.inf:
        return peak
    unit = torch.where(peak > 0, peak, 1)
    return unit * (size / unit.unsqueeze(1)).square().sum(dim=1).sqrt()


def projected(delta: Tensor, images: Tensor, epsilon: float | Tensor, norm: float, bounds: Bounds) -> Tensor:
    """The displacement nearest to `delta` (Euclidean) that stays in the ball and within the bounds.

    With the room c_i that pixel i has left in the direction of delta_i, and every sign kept::

        inf   |d_i| = min(|delta_i|, epsilon, c_i)
        2     |d_i| = min(t |delta_i|, c_i), t <= 1 so that the norm is at most epsilon
        1     |d_i| = min(max(|delta_i| - s, 0), c_i), s >= 0 likewise

    The factor t is found by rounds that each settle pixels for good, s at the kinks of a piecewise linear
    function; neither is an approximation.

    Args:
        delta: Displacements, (B, ...).
        images: What is displaced, the same shape, within `bounds`.
        epsilon: Radius in pixel units, at least 0: one number, or one an image, (B,).
        norm: inf, 2 or 1.
        bounds: Of pixel values.

    >>> projected(torch.tensor([[2.0, 1.0]]), torch.tensor([[0.0, 0.5]]), 1.0, 1, Bounds())
    tensor([[1., 0.]])
    """
    check_norm(norm)
    room = _room(delta, images, bounds)
    radius = _one_an_image(epsilon, delta)
    size = delta.abs()
    if norm == math.inf:
        return torch.copysign(torch.minimum(torch.minimum(size, room), radius), delta)
    flat, space, limit = _wide(size).flatten(1), _wide(room).flatten(1), _wide(radius).flatten(1)
    if norm == 2:
        factor = _common_factor(flat, space, limit).clamp(max=1)
        moved = torch.minimum(factor * flat, space)
    else:
        moved = torch.minimum((flat - _common_threshold(flat, space, limit)).clamp(min=0), space)
    return torch.copysign(_within(moved, limit, norm).to(delta.dtype).view_as(delta), delta)


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
    flat = _wide(gradient).flatten(1)
    # in units of the largest entry, so that squares neither vanish nor overflow
    peak = flat.abs().amax(dim=1, keepdim=True)
    flat = flat / torch.where(peak > 0, peak, 1)
    space = None if room is None else _wide(room).flatten(1)
    step = _unit_vector(flat, space) if norm == 2 else _few_pixels(flat, space)
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
    radius = _one_an_image(epsilon, images)
    room = _room(gradient, images, bounds)
    if norm == math.inf:
        return torch.minimum(radius, room) * gradient.sign()
    flat, limit = _wide(gradient).flatten(1), _wide(radius).flatten(1)
    peak = flat.abs().amax(dim=1, keepdim=True)
    size = flat.abs() / torch.where(peak > 0, peak, 1)
    space = torch.where(size > 0, _wide(room).flatten(1), 0)
    if norm == 2:
        moved = torch.where(size > 0, torch.minimum(_common_factor(size, space, limit) * size, space), 0)
    else:
        moved = _largest_first(size, space, limit)
    return (_within(moved, limit, norm) * flat.sign()).to(images.dtype).view_as(images)


def room_along(direction: Tensor, images: Tensor, bounds: Bounds) -> Tensor:
    """How far each pixel can move in the direction's sign before it meets a bound, at least 0.

    >>> room_along(torch.tensor([[1.0, -1.0]]), torch.tensor([[0.75, 0.75]]), Bounds())
    tensor([[0.2500, 0.7500]])
    """
    return _room(direction, images, bounds)


def _room(direction: Tensor, images: Tensor, bounds: Bounds) -> Tensor:
    return torch.where(direction > 0, bounds.upper - images, images - bounds.lower).clamp(min=0)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _one_an_image(epsilon: float | Tensor, images: Tensor) -> Tensor:
    """The radius in the shape (B, 1, ...), or (1, ...) where all images share it."""
    radius = torch.as_tensor(epsilon, dtype=images.dtype, device=images.device)
    return radius.reshape(-1, *[1] * (images.ndim - 1))


def _unit_vector(gradient: Tensor, room: Tensor | None) -> Tensor:
    if room is None:
        length = gradient.square().sum(dim=1, keepdim=True).sqrt()
        return gradient / torch.where(length > 0, length, 1)
    size = gradient.abs()
    factor = _common_factor(size, torch.where(size > 0, room, 0), torch.ones_like(size[:, :1]))
    # where there is less room than a step needs, the farthest pixel reaches its bound
    most = torch.where(size > 0, room / size, 0).amax(dim=1, keepdim=True).clamp(max=_LONGEST)
    return gradient * torch.minimum(factor, most)


def _few_pixels(gradient: Tensor, room: Tensor | None) -> Tensor:
    size = gradient.abs()
    share = torch.full_like(size, 1 / math.ceil(STEP_SHARE * size.shape[1]))
    if room is not None:
        share = torch.minimum(share, room.to(share))
    whole = torch.ones_like(size[:, :1])
    return _largest_first(size, torch.where(size > 0, share, 0), whole) * gradient.sign()


def _common_factor(size: Tensor, room: Tensor, radius: Tensor) -> Tensor:
    """The t of (B, 1) with ||min(t size, room)||_2 = radius; infinite where all the room is less than that.

    A pixel that is at its bound for some t is there for every larger one. So t is raised to what the other
    pixels would need alone, as long as that brings further ones to their bound.
    """
    factor = torch.zeros_like(size[:, :1])
    at_bound = room <= 0
    for _ in range(_MOST_ROUNDS):
        spent = torch.where(at_bound, room, 0).square().sum(dim=1, keepdim=True)
        free = torch.where(at_bound, 0, size).square().sum(dim=1, keepdim=True)
        needed = ((radius.square() - spent).clamp(min=0) / free).sqrt()
        factor = torch.maximum(factor, torch.where(free > 0, needed, math.inf))
        further = at_bound | (torch.where(size > 0, factor * size, 0) >= room)
        if torch.equal(further, at_bound):
            break
        at_bound = further
    return factor


def _common_threshold(size: Tensor, room: Tensor, radius: Tensor) -> Tensor:
    """The s >= 0 of (B, 1) with sum_i min(max(size_i - s, 0), room_i) = radius; 0 where the sum is less there.

    Seen from large s to small, a pixel's term starts to grow at s = size_i and stops at s = size_i - room_i.
    """
    kinks = torch.cat([size, (size - room).clamp(min=0)], dim=1)
    change = torch.cat([torch.ones_like(size), -torch.ones_like(size)], dim=1)
    kinks, order = kinks.sort(dim=1, descending=True, stable=True)
    slope = change.gather(1, order).cumsum(dim=1)
    grown = (slope[:, :-1] * (kinks[:, :-1] - kinks[:, 1:])).cumsum(dim=1)
    total = torch.cat([torch.zeros_like(grown[:, :1]), grown], dim=1)
    # the last kink at which the sum still is within the radius, and how far below it the rest is used up
    last = (total <= radius).sum(dim=1, keepdim=True) - 1
    left = radius - total.gather(1, last)
    return (kinks.gather(1, last) - left / slope.gather(1, last).clamp(min=1)).clamp(min=0)


def _largest_first(size: Tensor, room: Tensor, radius: Tensor) -> Tensor:
    order = size.argsort(dim=1, descending=True, stable=True)
    space = room.gather(1, order)
    before = space.cumsum(dim=1) - space
    filled = torch.minimum((radius - before).clamp(min=0), space)
    return torch.zeros_like(size).scatter(1, order, filled)


def _within(moved: Tensor, radius: Tensor, norm: float) -> Tensor:
    """Rounding may leave the ball by a few units in the last place; a common factor leads back."""
    length = norm_of(moved, norm).unsqueeze(1)
    return moved * torch.where(length > radius, radius / length, 1)
