"""Balls of a norm within the bounds of pixels: projections, steps and random points, none of them an approximation."""

import hashlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from clearance._checks import check_non_negative
from clearance._precision import at_least_float32
from clearance._rng import generator

NORMS = (math.inf, 2.0, 1.0)
"""The norms that have a ball here."""


def as_norm(norm: float | str) -> float:
    """A norm as a number, also if it is a word, as in recipes.

    Raises:
        ValueError: Unless it is inf, 2 or 1.

    >>> as_norm("inf"), as_norm("2"), as_norm(1)
    (inf, 2.0, 1)
    """
    words = {"inf": math.inf, "2": 2.0, "1": 1.0}
    found: float = words.get(norm, norm)  # type: ignore[arg-type]  # other words are refused below
    if found not in NORMS:
        raise ValueError(f"`norm` must be one of inf, 2, 1; got {norm!r}.")
    return found


def norm_of(delta: Tensor, norm: float) -> Tensor:
    """The norm of each displacement, of at least float32 and safe from overflow and underflow.

    Displacements are (B, ...), norms (B,), of p = inf, 2 or 1.

    >>> norm_of(torch.tensor([[3.0, -4.0]]), 2), norm_of(torch.tensor([[3.0, -4.0]]), 1)
    (tensor([5.]), tensor([7.]))
    """
    size = at_least_float32(delta).flatten(1).abs()
    if norm == 1:
        return size.sum(dim=1)
    peak = size.amax(dim=1)
    if norm == math.inf:
        return peak
    unit = torch.where(peak > 0, peak, 1)
    return unit * (size / unit.unsqueeze(1)).square().sum(dim=1).sqrt()


STEEP = 10.0
"""Times an image's largest finite slope: what an infinite one counts, so that the other pixels are moved too."""


def finite_slopes(gradient: Tensor) -> Tensor:
    """The gradient, (B, ...), with numbers in place of what is none.

    A slope that is not a number is 0. An infinite one, as of a square root at a black pixel, is `STEEP` times the
    largest finite one of its image, or 1 where there is none.

    >>> finite_slopes(torch.tensor([[-math.inf, 2.0, math.nan], [1.0, 0.5, 0.0]]))
    tensor([[-20.0000,   2.0000,   0.0000],
            [  1.0000,   0.5000,   0.0000]])
    """
    low, high = gradient.aminmax()  # NaN where one is; faster than to look at each entry
    if bool((low - high).isfinite()):
        return gradient
    finite = gradient.isfinite()
    known = torch.where(finite, gradient, 0)
    peak = known.flatten(1).abs().amax(dim=1).view(-1, *[1] * (gradient.ndim - 1))
    steep = torch.where(peak > 0, STEEP * peak, 1).clamp(max=torch.finfo(gradient.dtype).max)
    return torch.where(gradient.isinf(), gradient.sign() * steep, known)


def of_all_pixels(images: Tensor, norm: float) -> float:
    """The norm of an image whose every pixel is 1: in [0, 1] no two images are farther apart.

    >>> of_all_pixels(torch.zeros(3, 1, 2, 2), 2)
    2.0
    """
    return 1.0 if norm == math.inf else float(images.shape[1:].numel() ** (1 / norm))


_MOST_ROUNDS = 100  # of the search for a common factor; each round settles at least one pixel, mostly many


def projected(delta: Tensor, images: Tensor, epsilon: float | Tensor, norm: float) -> Tensor:
    """The displacement nearest to `delta` (Euclidean) that stays in the ball and within the bounds.

    With the room c_i that pixel i has left in the direction of delta_i, and every sign kept::

        inf   |d_i| = min(|delta_i|, epsilon, c_i)
        2     |d_i| = min(t |delta_i|, c_i), t <= 1 so that the norm is at most epsilon
        1     |d_i| = min(max(|delta_i| - s, 0), c_i), s >= 0 likewise

    The factor t is found by rounds that each settle pixels for good, s at the kinks of a piecewise linear
    function; neither is an approximation.

    Displacements are (B, ...); `images`, what is displaced, has the same shape, in [0, 1]. `epsilon` is in pixel
    units, at least 0: one number, or one an image, (B,). `norm` is inf, 2 or 1.

    >>> projected(torch.tensor([[2.0, 1.0]]), torch.tensor([[0.0, 0.5]]), 1.0, 1)
    tensor([[1., 0.]])
    """
    room = room_along(delta, images)
    radius = one_an_image(epsilon, delta)
    size = delta.abs()
    if norm == math.inf:
        return torch.copysign(torch.minimum(torch.minimum(size, room), radius), delta)
    flat, space, limit = (
        at_least_float32(size).flatten(1),
        at_least_float32(room).flatten(1),
        at_least_float32(radius).flatten(1),
    )
    if norm == 2:
        factor = common_factor(flat, space, limit).clamp(max=1)
        moved = torch.minimum(factor * flat, space)
    else:
        moved = torch.minimum((flat - _common_threshold(flat, space, limit)).clamp(min=0), space)
    return torch.copysign(within(moved, limit, norm).to(delta.dtype).view_as(delta), delta)


def room_along(direction: Tensor, images: Tensor) -> Tensor:
    """How far each pixel can move in the direction's sign before it meets a bound, at least 0.

    >>> room_along(torch.tensor([[1.0, -1.0]]), torch.tensor([[0.75, 0.75]]))
    tensor([[0.2500, 0.7500]])
    """
    return torch.where(direction > 0, 1 - images, images).clamp(min=0)


def one_an_image(epsilon: float | Tensor, images: Tensor) -> Tensor:
    """The radius in the shape (B, 1, ...), or (1, ...) where all images share it."""
    radius = torch.as_tensor(epsilon, dtype=images.dtype, device=images.device)
    return radius.reshape(-1, *[1] * (images.ndim - 1))


def common_factor(size: Tensor, room: Tensor, radius: Tensor) -> Tensor:
    """The t of (B, 1) with ||min(t size, room)||_2 = radius; infinite where all the room is less than that.

    A pixel that is at its bound for some t is there for every larger one. So t is raised to what the other
    pixels would need on their own, as long as that brings more of them to their bound.
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
    if norm == math.inf:
        return torch.nan_to_num(gradient, nan=0.0).sign()
    gradient = finite_slopes(gradient)
    flat = at_least_float32(gradient).flatten(1)
    # in units of the largest entry, so that squares neither vanish nor overflow
    peak = flat.abs().amax(dim=1, keepdim=True)
    flat = flat / torch.where(peak > 0, peak, 1)
    space = None if room is None else at_least_float32(room).flatten(1)
    longest = min(_LONGEST, math.sqrt(torch.finfo(gradient.dtype).max) / 4)
    step = _unit_vector(flat, space, longest) if norm == 2 else _few_pixels(flat, space)
    return step.to(gradient.dtype).view_as(gradient)


def linear_optimum(gradient: Tensor, images: Tensor, epsilon: float | Tensor, norm: float) -> Tensor:
    """The displacement in the ball and within the bounds that gains most to first order.

    It maximises <gradient, d> exactly: for a linear model this is the strongest attack there is. ::

        inf   d = epsilon sign(g), clipped
        2     d = clip(t g), t so that the norm is epsilon (or every pixel is at its bound)
        1     the largest |g| is moved to its bound first, then the next, until epsilon is spent

    The gradient is (B, ...), and entries that are zero or not a number are not moved; `images`, what is displaced, has
    the same shape, in [0, 1]. `epsilon` is in pixel units, at least 0: one number, or one an image, (B,). `norm`
    is inf, 2 or 1.

    >>> images, gradient = torch.tensor([[0.9, 0.5]]), torch.tensor([[4.0, 3.0]])
    >>> linear_optimum(gradient, images, 0.5, 1)
    tensor([[0.1000, 0.4000]])
    """
    gradient = finite_slopes(gradient)
    radius = one_an_image(epsilon, images)
    room = room_along(gradient, images)
    if norm == math.inf:
        return torch.minimum(radius, room) * gradient.sign()
    flat, limit = at_least_float32(gradient).flatten(1), at_least_float32(radius).flatten(1)
    peak = flat.abs().amax(dim=1, keepdim=True)
    size = flat.abs() / torch.where(peak > 0, peak, 1)
    space = torch.where(size > 0, at_least_float32(room).flatten(1), 0)
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


def random_starts(images: Tensor, epsilon: float, norm: float, *, seed: int, stream: int) -> Tensor:
    """A displacement for each image, uniform in the ball and then clipped to the bounds.

    The draw follows from the seed, the stream and the image's own pixels. So an image gets the same one
    at any place in a batch, with any other images, and on every device; equal images get
    equal ones. float64 and float32 images with the same values are equal.

    Images are (B, ...), in [0, 1], and displacements have their shape and type. `epsilon` is in the unit of the
    pixels, `norm` is inf, 2 or 1, `seed` is at least 0, and `stream` distinguishes several draws of one seed.

    >>> images = torch.rand(4, 9)
    >>> starts = random_starts(images, 0.5, 2, seed=0, stream=1)
    >>> bool((norm_of(starts, 2) <= 0.5).all())
    True
    >>> torch.equal(random_starts(images[2:], 0.5, 2, seed=0, stream=1), starts[2:])
    True
    """
    size = images[0].numel()
    drawn = [_uniform(size, norm, draws) for draws in streams_of(images, seed, "start", stream)]
    delta = (epsilon * torch.stack(drawn)).to(images).view_as(images)
    # towards the centre at most, so the ball is not left
    return torch.maximum(torch.minimum(delta, 1 - images), -images)


def streams_of(images: Tensor, seed: int, *names: str | int) -> Iterator[torch.Generator]:
    """A stream of random numbers for each image, which follows from the seed, the names and its own pixels.

    >>> one, other = streams_of(torch.tensor([[0.0, 0.5], [-0.0, 0.5]]), 0, "example")
    >>> one.initial_seed() == other.initial_seed()
    True
    """
    for pixels in images.detach().to("cpu", torch.float64):
        bits = (pixels + 0.0).numpy().tobytes()  # + 0.0 makes one zero of two
        yield generator(seed, *names, hashlib.sha256(bits).hexdigest())


def _uniform(size: int, norm: float, draws: torch.Generator) -> Tensor:
    """A point of the unit ball: a direction that is uniform on its surface, times U^(1 / size)."""
    if norm == math.inf:
        return 2 * torch.rand(size, generator=draws, dtype=torch.float64) - 1
    direction = torch.randn(size, generator=draws, dtype=torch.float64)
    if norm == 1:
        # uniform on the surface of the cross-polytope: exponential sizes, random signs
        uniform = torch.rand(size, generator=draws, dtype=torch.float64)
        direction = direction.sign() * -torch.log1p(-uniform)
    radius = torch.rand(1, generator=draws, dtype=torch.float64) ** (1 / size)
    return radius * direction / norm_of(direction.unsqueeze(0), norm)


def check_radius(epsilon: float, norm: float) -> None:
    """Raise ValueError unless `epsilon` is a radius of the norm in the unit of the pixels."""
    check_non_negative("epsilon", epsilon)
    if norm == math.inf and epsilon > 1:
        raise ValueError(
            f"`epsilon` must be at most 1, the range of a pixel, in norm inf; got {epsilon}; "
            "it is in the unit of the pixels: divide grey levels by 255."
        )


def chosen(which: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Whole images of `first` where `which` is true, of `second` elsewhere; `which` is (B,)."""
    return torch.where(which.view(-1, *[1] * (first.ndim - 1)), first, second)
