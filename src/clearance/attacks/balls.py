"""Balls that attacks move in: the nearest point of ball and box together.

Everywhere in this package an image may only stay between its bounds, so the ball is met by a box that contains its
centre; what is returned is exact for the two together, not for one after the other.
"""

import math

import torch
from torch import Tensor

from clearance.attacks.norms import check_norm, norm_of, wide
from clearance.vocabulary import Bounds

_MOST_ROUNDS = 100  # of the search for a common factor; each round settles at least one pixel, mostly many


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
    room = room_along(delta, images, bounds)
    radius = one_an_image(epsilon, delta)
    size = delta.abs()
    if norm == math.inf:
        return torch.copysign(torch.minimum(torch.minimum(size, room), radius), delta)
    flat, space, limit = wide(size).flatten(1), wide(room).flatten(1), wide(radius).flatten(1)
    if norm == 2:
        factor = common_factor(flat, space, limit).clamp(max=1)
        moved = torch.minimum(factor * flat, space)
    else:
        moved = torch.minimum((flat - _common_threshold(flat, space, limit)).clamp(min=0), space)
    return torch.copysign(within(moved, limit, norm).to(delta.dtype).view_as(delta), delta)


def room_along(direction: Tensor, images: Tensor, bounds: Bounds) -> Tensor:
    """How far each pixel can move in the direction's sign before it meets a bound, at least 0.

    >>> room_along(torch.tensor([[1.0, -1.0]]), torch.tensor([[0.75, 0.75]]), Bounds())
    tensor([[0.2500, 0.7500]])
    """
    return torch.where(direction > 0, bounds.upper - images, images - bounds.lower).clamp(min=0)


def one_an_image(epsilon: float | Tensor, images: Tensor) -> Tensor:
    """The radius in the shape (B, 1, ...), or (1, ...) where all images share it."""
    radius = torch.as_tensor(epsilon, dtype=images.dtype, device=images.device)
    return radius.reshape(-1, *[1] * (images.ndim - 1))


def common_factor(size: Tensor, room: Tensor, radius: Tensor) -> Tensor:
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


def within(moved: Tensor, radius: Tensor, norm: float) -> Tensor:
    """Rounding may leave the ball by a few units in the last place; a common factor leads back."""
    length = norm_of(moved, norm).unsqueeze(1)
    return moved * torch.where(length > radius, radius / length, 1)
