"""What all attacks share: how a model is asked, the balls of a norm, the losses, and the call that verifies.

An attack sees a callable `model(images) -> logits` with bounds, and nothing else of a classifier.

| loss | scale-free | source |
|---|---|---|
| cross_entropy | no | Goodfellow, Shlens and Szegedy (2015) |
| logit_margin | yes | Carlini and Wagner (2017), without their floor |
| dlr | yes | Croce and Hein (2020), equations 6 and 7 |
| scaled_cross_entropy | yes | cross-entropy in units of the sample's own logits, as log odds |

*Scale-free*: logits times c > 0 is the same classifier, and an attack on it takes the same steps: bit for bit
where c is a power of two, up to rounding elsewhere. Plain cross-entropy saturates instead: its gradient becomes
exactly zero, and a classifier looks robust only because its logits are large.
"""

import hashlib
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearance._checks import check_count, check_non_negative
from clearance._precision import at_least_float32
from clearance._rng import generator
from clearance.vocabulary import Bounds

# asking the model -------------------------------------------------------------------------------------------

Model = Callable[[Tensor], Tensor]
"""Images in, logits (B, C) out; a module in evaluation mode, or any other callable."""

NO_GRAPH = "its logits have no graph to them (torch.no_grad, detach, or NumPy within)"
CHUNK = 64
"""Images that a model sees at once."""


class NoGradientWarning(UserWarning):
    """A model whose logits carry no gradient back to its images: the result of gradient attacks means nothing."""


def logits_of(model: Model, images: Tensor, *, chunk: int = CHUNK) -> Tensor:
    """Logits of images, without a graph, shape (B, C).

    Arithmetic on a batch depends, in its last bits, on how many images are in it: libraries choose another
    kernel for another shape. An attack asks about fewer and fewer images, and its steps turn last bits into
    whole steps. So the model always sees `chunk` images; where fewer are left, the last one is repeated.

    Args:
        model: Images to logits.
        images: (B, ...), B at least 1.
        chunk: Images that the model sees at once; change it only for memory or speed.

    Raises:
        ValueError: If what comes back is not of shape (chunk, C) with C at least 2.

    >>> logits_of(torch.nn.Flatten(), torch.ones(3, 1, 1, 2)).shape
    torch.Size([3, 2])
    """
    # inference mode of a caller would outlive torch.no_grad() in the tensors that are made here
    with torch.inference_mode(False), torch.no_grad():
        return torch.cat([_answer(model, padded)[:size] for padded, size in _chunks(images, chunk)])


def gradients_of(
    model: Model, images: Tensor, loss: Callable[[Tensor, slice], Tensor], *, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """Logits of images, and the gradient of each image's loss with respect to it.

    The sum over a chunk is differentiated, so that no gradient depends on how many images there are.
    Parameters' ``.grad`` and that of `images` stay as they are. A model whose logits do not depend on its
    images in any differentiable way has gradients of zero.

    Warns:
        NoGradientWarning: Of such a model.

    Args:
        model: Images to logits.
        images: (B, ...), B at least 1.
        loss: Turns logits (b, C) and the rows of `images` that they belong to into losses (b,).
        chunk: Images that the model sees at once; see :func:`logits_of`.

    Returns:
        Logits (B, C), without a graph, and gradients of the shape and type of `images`.

    >>> images = torch.tensor([[1.0, 2.0]])
    >>> gradients_of(torch.nn.Identity(), images, lambda logits, rows: logits[:, 0])
    (tensor([[1., 2.]]), tensor([[1., 0.]]))
    """
    logits, gradients = [], []
    with torch.inference_mode(False), torch.enable_grad():
        start = 0
        for padded, size in _chunks(images, chunk):
            leaf = padded.requires_grad_()
            answer = _answer(model, leaf.clone())  # which the model may change in place
            value = loss(answer[:size], slice(start, start + size)).sum()
            logits.append(answer[:size].detach())
            gradients.append(_gradient(value, leaf)[:size])
            start += size
    return torch.cat(logits), torch.cat(gradients)


def _chunks(images: Tensor, chunk: int) -> Iterator[tuple[Tensor, int]]:
    """Copies of `chunk` images each, the last one filled up, and how many of them count."""
    for part in images.detach().split(chunk):
        missing = chunk - len(part)
        yield torch.cat([part, part[-1:].expand(missing, *part.shape[1:])]), len(part)


def chunk_count(images: int, chunk: int) -> int:
    """How many chunks so many images fill: dropping some saves time only where this falls."""
    return math.ceil(images / chunk)


def _answer(model: Model, images: Tensor) -> Tensor:
    logits = model(images)
    if not isinstance(logits, Tensor):
        raise TypeError(f"`model` must return a tensor of logits; got {type(logits).__name__}.")
    if logits.ndim != 2 or len(logits) != len(images) or logits.shape[1] < 2:
        raise ValueError(
            f"`model` must return logits of shape (B, C) with at least 2 classes; "
            f"got {tuple(logits.shape)} for {len(images)} images."
        )
    return logits


def _gradient(value: Tensor, leaf: Tensor) -> Tensor:
    if not value.requires_grad:
        _warn(NO_GRAPH)
        return torch.zeros_like(leaf)
    try:
        (gradient,) = torch.autograd.grad(value, leaf, allow_unused=True)
    except RuntimeError as error:
        if "derivative for" not in str(error):
            raise
        _warn("a step within has no derivative")  # like `//`, as round() has a gradient of 0
        return torch.zeros_like(leaf)
    if gradient is None:  # the logits depend only on parameters
        _warn(NO_GRAPH)
        return torch.zeros_like(leaf)
    return gradient.detach()


def _warn(reason: str) -> None:
    warnings.warn(
        f"the model passes no gradient to its images: {reason}. Gradient attacks will find nothing, which does not "
        "make it robust: use SquareSearch, or straight_through(model) where it only rounds.",
        NoGradientWarning,
        stacklevel=2,
    )


# balls of a norm within the bounds --------------------------------------------------------------------------

NORMS = (math.inf, 2.0, 1.0)
"""The norms that have a ball here."""


def check_norm(norm: float) -> None:
    """Raise ValueError unless the norm is inf, 2 or 1.

    >>> check_norm(3)
    Traceback (most recent call last):
    ValueError: `norm` must be one of inf, 2, 1; got 3.
    """
    if norm not in NORMS:
        raise ValueError(f"`norm` must be one of inf, 2, 1; got {norm!r}.")


def as_norm(norm: float | str) -> float:
    """A norm as a number if it is a word, as in recipes; anything else unchanged.

    >>> as_norm("inf"), as_norm("2"), as_norm(1)
    (inf, 2.0, 1)
    """
    words = {"inf": math.inf, "2": 2.0, "1": 1.0}
    found: Any = words.get(norm, norm) if isinstance(norm, str) else norm
    return found


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
    size = at_least_float32(delta).flatten(1).abs()
    if norm == 1:
        return size.sum(dim=1)
    peak = size.amax(dim=1)
    if norm == math.inf:
        return peak
    unit = torch.where(peak > 0, peak, 1)
    return unit * (size / unit.unsqueeze(1)).square().sum(dim=1).sqrt()


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
    check_norm(norm)
    gradient = torch.nan_to_num(gradient, nan=0.0)
    if norm == math.inf:
        return gradient.sign()
    flat = at_least_float32(gradient).flatten(1)
    # in units of the largest entry, so that squares neither vanish nor overflow
    peak = flat.abs().amax(dim=1, keepdim=True)
    flat = flat / torch.where(peak > 0, peak, 1)
    space = None if room is None else at_least_float32(room).flatten(1)
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
        gradient: (B, ...); entries that are zero or not a number are not moved.
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


def random_starts(
    images: Tensor, epsilon: float, norm: float, bounds: Bounds, *, seed: int, stream: int
) -> Tensor:
    """A displacement for each image, uniform in the ball and then clipped to the bounds.

    The draw follows from the seed, the stream and the image's own pixels. So an image gets the same one
    at any place in a batch, with any other images, and on every device; equal images get
    equal ones. float64 and float32 images with the same values are equal.

    Args:
        images: (B, ...), within `bounds`.
        epsilon: Radius in the unit of the pixels.
        norm: inf, 2 or 1.
        bounds: Of pixel values.
        seed: At least 0.
        stream: Distinguishes several draws of one seed.

    Returns:
        Displacements of the shape and type of `images`.

    >>> images = torch.rand(4, 9)
    >>> starts = random_starts(images, 0.5, 2, Bounds(), seed=0, stream=1)
    >>> bool((norm_of(starts, 2) <= 0.5).all())
    True
    >>> torch.equal(random_starts(images[2:], 0.5, 2, Bounds(), seed=0, stream=1), starts[2:])
    True
    """
    check_norm(norm)
    size = images[0].numel()
    drawn = [_uniform(size, norm, draws) for draws in streams_of(images, seed, "start", stream)]
    delta = (epsilon * torch.stack(drawn)).to(images).view_as(images)
    # towards the centre at most, so the ball is not left
    return torch.maximum(torch.minimum(delta, bounds.upper - images), bounds.lower - images)


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


# losses of one sample each ----------------------------------------------------------------------------------

Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits (B, C), labels (B,)) to (B,)."""
TargetedLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(logits (B, C), labels (B,), targets (B,)) to (B,)."""


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """-log softmax(z)[y]: what most published attacks ascend.

    Misleads where logits are large: softmax is exactly one-hot in floating point, and the gradient zero.

    >>> cross_entropy(torch.zeros(1, 2), torch.tensor([0]))
    tensor([0.6931])
    """
    return F.cross_entropy(at_least_float32(logits), labels, reduction="none")


def logit_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """max_{i != y} z_i - z_y: positive where the sample is broken.

    >>> logit_margin(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0]))
    tensor([-1.])
    """
    logits = at_least_float32(logits)
    return _best_but(logits, labels) - _at(logits, labels)


def dlr(logits: Tensor, labels: Tensor) -> Tensor:
    """(max_{i != y} z_i - z_y) / (z_(1) - z_(3)), z_(k) being the k-th largest logit: difference of logits ratio.

    Raises:
        ValueError: For two classes, where there is no third logit.

    >>> dlr(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0]))
    tensor([-0.5000])
    """
    _check_third_class(logits)
    top = at_least_float32(logits).topk(3, dim=1).values
    return logit_margin(logits, labels) / _or_one(top[:, 0] - top[:, 2])


def scaled_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of z / s as log odds, log((1 - p_y) / p_y), s being the sample's own spread of logits.

    log sum_{i != y} exp(z_i / s) - z_y / s

    s = (max_i z_i - min_i z_i) / SPREAD_IN_UNITS, constant in the gradient, and 1 where all logits are equal. Its
    gradient has the direction of cross-entropy's and, unlike that, never vanishes: with two classes p_y is 1 to the
    last digit in any such units. Numerator and denominator of z / s are multiplied by the same power of two without
    rounding, so that not even the last bit changes.

    >>> logits, labels = torch.randn(5, 10), torch.arange(5)
    >>> torch.equal(scaled_cross_entropy(64 * logits, labels), scaled_cross_entropy(logits, labels))
    True
    """
    own = _in_own_units(logits)
    return own.scatter(1, labels.unsqueeze(1), -torch.inf).logsumexp(dim=1) - _at(own, labels)


def targeted_cross_entropy(logits: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
    """Log-probability of the target, log softmax(z)[t]; the labels are not read.

    >>> targeted_cross_entropy(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([1]))
    tensor([-0.6931])
    """
    del labels
    return -cross_entropy(logits, targets)


def targeted_logit_margin(logits: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
    """z_t - max_{i != t} z_i: positive where the sample is taken for the target; the labels are not read.

    >>> targeted_logit_margin(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0]), torch.tensor([1]))
    tensor([-2.])
    """
    del labels
    return -logit_margin(logits, targets)


def targeted_dlr(logits: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
    """(z_t - z_y) / (z_(1) - (z_(3) + z_(4)) / 2); with three classes z_(3) replaces the mean.

    Raises:
        ValueError: For two classes.

    >>> targeted_dlr(torch.tensor([[4.0, 1.0, 2.0, 1.0]]), torch.tensor([0]), torch.tensor([2]))
    tensor([-0.6667])
    """
    _check_third_class(logits)
    values = at_least_float32(logits)
    top = values.topk(min(4, values.shape[1]), dim=1).values
    return (_at(values, targets) - _at(values, labels)) / _or_one(top[:, 0] - top[:, 2:].mean(dim=1))


def targeted_scaled_cross_entropy(logits: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
    """Log odds of the target, log(p_t / (1 - p_t)) of z / s as in :func:`scaled_cross_entropy`.

    The labels are not read.

    >>> targeted_scaled_cross_entropy(torch.tensor([[0.0, 2.0]]), torch.tensor([0]), torch.tensor([1]))
    tensor([20.])
    """
    del labels
    return -scaled_cross_entropy(logits, targets)


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "logit_margin": logit_margin,
    "dlr": dlr,
    "scaled_cross_entropy": scaled_cross_entropy,
}
"""Losses by name, to be ascended away from the label."""

TARGETED_LOSSES: dict[str, TargetedLoss] = {
    "cross_entropy": targeted_cross_entropy,
    "logit_margin": targeted_logit_margin,
    "dlr": targeted_dlr,
    "scaled_cross_entropy": targeted_scaled_cross_entropy,
}
"""Losses by name, to be ascended towards a target."""

SCALE_FREE = ("logit_margin", "dlr", "scaled_cross_entropy")
"""Names of the losses whose attacks the scale of logits cannot mislead."""

SPREAD_IN_UNITS = 20.0
"""What the spread of a sample's logits becomes in :func:`scaled_cross_entropy`.

Of 1, 3, 5, 10, 20 and 40 the one that leaves least accuracy to one step and to forty on two small networks of the
digits, in all three norms; 10 is as good for forty steps, smaller values are clearly weaker.
"""


def _at(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.gather(1, classes.unsqueeze(1)).squeeze(1)


def _best_but(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.scatter(1, classes.unsqueeze(1), -torch.inf).amax(dim=1)


def _or_one(spread: Tensor) -> Tensor:
    """Tied logits have no scale to divide by."""
    return torch.where(spread > 0, spread, 1)


def _in_own_units(logits: Tensor) -> Tensor:
    values = at_least_float32(logits)
    still = values.detach()
    spread = (still.amax(dim=1) - still.amin(dim=1)) / SPREAD_IN_UNITS
    return values / _or_one(spread).unsqueeze(1)


def _check_third_class(logits: Tensor) -> None:
    if logits.shape[1] < 3:
        raise ValueError(
            f"`loss` 'dlr' must have at least 3 classes because it divides by the gap to the third logit; "
            f"got {logits.shape[1]}; use 'logit_margin'."
        )


# attacks ----------------------------------------------------------------------------------------------------

ROUNDING = 1e-4
"""Share of epsilon by which rounding may leave the ball; more than that is a mistake of the attack."""


@dataclass(frozen=True)
class Attacked:
    """Images after an attack; all three are verified, none is taken from the attack.

    Args:
        images: Within bounds and ball, shape and type of the originals. An image that the model got wrong
            before the attack is the original.
        success: (B,), whether the model is wrong on it: the class of the largest logit differs from the
            label (or equals the target, if there is one).
        distance: (B,), norm of `images` minus the originals, in pixel units, of successes and failures alike.

    >>> hit = Attacked(torch.zeros(2, 3), torch.tensor([True, False]), torch.zeros(2))
    >>> hit.success_rate
    0.5
    """

    images: Tensor
    success: Tensor
    distance: Tensor

    @property
    def success_rate(self) -> float:
        """Share of images on which the model is wrong; NaN without images."""
        return float(self.success.double().mean())


def broken(logits: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """Whether the class of the largest logit differs from the label, or equals the target if there is one.

    Logits that are not finite name no class: they are wrong for every label and reach no target.

    >>> broken(torch.tensor([[1.0, 2.0], [float("nan"), 0.0]]), torch.tensor([1, 0]))
    tensor([False,  True])
    """
    named = logits.argmax(dim=1)
    nothing = ~logits.isfinite().all(dim=1)
    if targets is None:
        return (named != labels) | nothing
    return (named == targets) & ~nothing


@torch.no_grad()
def rescored(
    model: Model,
    originals: Tensor,
    candidates: Tensor,
    labels: Tensor,
    *,
    norm: float,
    bounds: Bounds,
    epsilon: float | None = None,
    targets: Tensor | None = None,
    chunk: int = CHUNK,
    before: Tensor | None = None,
) -> Attacked:
    """Clip, check the range, ask the model again.

    An image on which the model was wrong before (or which it took for the target) is a success at distance
    0 and returned unchanged. Pixels that are not numbers are reset to the original.

    Args:
        model: Images to logits.
        originals: (B, ...), within `bounds`.
        candidates: What the attack found, the same shape.
        labels: (B,).
        norm: inf, 2 or 1; of the ball and of the distance.
        bounds: Of pixel values.
        epsilon: Radius of the ball in pixel units; None where the attack searches for the distance itself.
        targets: (B,), the classes wanted; None if any wrong class counts.
        chunk: Images that the model sees at once.
        before: (B,), whether the originals are broken, if known; else the model is asked.

    Raises:
        ValueError: If candidates have another shape, or are outside the ball by more than rounding.

    >>> originals = torch.tensor([[0.9, 0.1]])
    >>> hit = rescored(torch.nn.Identity(), originals, torch.tensor([[0.5, 0.75]]), torch.tensor([0]),
    ...                norm=1, bounds=Bounds())
    >>> hit.success, hit.distance
    (tensor([True]), tensor([1.0500]))
    """
    originals = originals.detach()
    found = confined(candidates, originals, norm=norm, bounds=bounds, epsilon=epsilon)
    if not len(originals):
        return Attacked(found, labels.new_zeros(0, dtype=torch.bool), norm_of(found - originals, norm))
    if before is None:
        before = broken(logits_of(model, originals, chunk=chunk), labels, targets)
    found = torch.where(before.view(-1, *[1] * (found.ndim - 1)), originals, found)
    success = broken(logits_of(model, found, chunk=chunk), labels, targets) | before
    return Attacked(found, success, norm_of(found - originals, norm))


def confined(
    candidates: Tensor, originals: Tensor, *, norm: float, bounds: Bounds, epsilon: float | None
) -> Tensor:
    """What an attack found, clipped and range-checked; pixels that are not numbers are reset to the original.

    Args:
        candidates: What it found.
        originals: (B, ...), within `bounds`.
        norm: Of the ball.
        bounds: Of pixel values.
        epsilon: Radius of the ball; None without a ball.

    Raises:
        ValueError: If candidates have another shape, or are outside the ball by more than rounding.
    """
    if candidates.shape != originals.shape:
        raise ValueError(
            f"an attack must return images of shape {tuple(originals.shape)}, as it got; "
            f"it returned {tuple(candidates.shape)}."
        )
    found = candidates.detach().to(originals)
    found = torch.where(found.isnan(), originals, found).clamp(bounds.lower, bounds.upper)
    return found if epsilon is None else _inside(found, originals, epsilon, norm, bounds)


def _inside(found: Tensor, originals: Tensor, epsilon: float, norm: float, bounds: Bounds) -> Tensor:
    """Within the ball; what is outside by rounding is projected back, anything farther outside is an error."""
    delta = found - originals
    distance = norm_of(delta, norm)
    largest = max(float(one.abs().max()) for one in (found, originals)) if len(found) else 0.0
    grain = torch.finfo(originals.dtype).eps * largest
    outside = distance > epsilon
    # every pixel may be off by its own rounding, which adds up in norm 1
    if bool((distance > epsilon * (1 + ROUNDING) + grain * _unit_norm(delta, norm)).any()):
        raise ValueError(
            f"an attack must stay within `epsilon` {epsilon} in norm {norm:g}; it returned an image at "
            f"{float(distance.max()):.6g}; give it the same radius, in pixel units."
        )
    repaired = originals + projected(delta, originals, epsilon, norm, bounds)
    return torch.where(outside.view(-1, *[1] * (found.ndim - 1)), repaired, found)


def _unit_norm(delta: Tensor, norm: float) -> float:
    """The norm of an image whose every pixel is 1."""
    pixels = delta[:1].numel() if len(delta) else 0
    return 1.0 if norm == float("inf") else pixels ** (1 / norm)


@dataclass(frozen=True)
class Batch:
    """Images under attack, and the model that is asked about them.

    Args:
        model: Images to logits.
        images: The originals, (B, ...).
        labels: (B,).
        targets: (B,), the classes wanted, or None if any wrong class counts.
        logits: Of the originals, (B, C).
        chunk: Images that the model sees at once.
    """

    model: Model
    images: Tensor
    labels: Tensor
    targets: Tensor | None
    logits: Tensor
    chunk: int = CHUNK

    @classmethod
    def checked(
        cls, model: Model, images: Tensor, labels: Tensor, targets: Tensor | None, bounds: Bounds, chunk: int
    ) -> "Batch":
        """A batch whose arguments have been checked; the model is asked for its logits.

        Raises:
            ValueError: If the model is in training mode, images are outside `bounds`, shapes do not fit, or
                a class is not among the model's.
            TypeError: If images, labels or targets are not tensors of the right kind.
        """
        check_mode(model)
        check_images(images, bounds)
        images = _plain(images)
        labels = _plain(checked_classes("labels", labels, images))
        logits = logits_of(model, images, chunk=chunk) if len(images) else images.new_zeros(0, 2)
        check_range("labels", labels, logits.shape[1])
        if targets is not None:
            targets = _plain(checked_classes("targets", targets, images))
            check_range("targets", targets, logits.shape[1])
        return cls(model, images, labels, targets, logits, chunk)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, chosen: Tensor) -> "Batch":
        """Some of the images, by number or by mask."""
        targets = None if self.targets is None else self.targets[chosen]
        return replace(
            self,
            images=self.images[chosen],
            labels=self.labels[chosen],
            targets=targets,
            logits=self.logits[chosen],
        )

    def broken(self, logits: Tensor) -> Tensor:
        """Whether the attack has what it wants, for logits of these images."""
        return broken(logits, self.labels, self.targets)

    def margin(self, logits: Tensor) -> Tensor:
        """How near each image is to what the attack wants, (B,): positive where it is broken."""
        if self.targets is None:
            return logit_margin(logits, self.labels)
        return targeted_logit_margin(logits, self.labels, self.targets)

    def ascent(self, images: Tensor, loss: str, towards: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Logits of changed `images`, and the gradient of the loss named, as :meth:`loss` steers it."""

        def value(logits: Tensor, rows: slice) -> Tensor:
            return self.loss(logits, loss, towards, rows)

        return gradients_of(self.model, images, value, chunk=self.chunk)

    def loss(
        self, logits: Tensor, name: str, towards: Tensor | None = None, rows: slice = slice(None)
    ) -> Tensor:
        """The loss named, of logits of some of the images.

        It is steered towards the class `towards` if given, else towards the targets if there are any,
        else away from the labels.
        """
        steered = self.targets if towards is None else towards
        if steered is None:
            return LOSSES[name](logits, self.labels[rows])
        return TARGETED_LOSSES[name](logits, self.labels[rows], steered[rows])


def _plain(tensor: Tensor) -> Tensor:
    """Without a graph, and not a tensor of inference mode, which no graph may hold."""
    with torch.inference_mode(False):
        return tensor.detach().clone() if tensor.is_inference() else tensor.detach()


@dataclass(frozen=True)
class Attack(ABC):
    """An attack in a ball: settings that are called with a model, images and labels.

    A subclass implements `_search`. What it finds is clipped, range-checked and scored
    by asking the model again (:func:`rescored`).

    Args:
        epsilon: Radius in the unit of the pixels, at least 0; of the width of `bounds` at most in norm inf.
        norm: inf, 2 or 1.
        bounds: Of pixel values; [0, 1] everywhere in Clearance.
        chunk: Images that the model sees at once. Change it only for memory or speed.

    Raises:
        ValueError: If a setting is out of range.

    >>> from clearance.attacks import FGSM
    >>> model = torch.nn.Linear(1, 2).eval()  # bright pixels are class 1
    >>> _ = model.load_state_dict({"weight": torch.tensor([[0.0], [1.0]]), "bias": torch.tensor([0.5, 0.0])})
    >>> attacked = FGSM(epsilon=0.25)(model, torch.tensor([[0.7], [0.9]]), torch.tensor([1, 1]))
    >>> attacked.success.tolist()
    [True, False]
    """

    epsilon: float
    norm: float = math.inf
    bounds: Bounds = field(default=Bounds(), kw_only=True)
    chunk: int = field(default=CHUNK, kw_only=True)

    def __post_init__(self) -> None:
        check_bounds(self.bounds)
        object.__setattr__(self, "norm", as_norm(self.norm))
        check_radius(self.epsilon, self.norm, self.bounds)
        check_count("chunk", self.chunk)

    @final
    @torch.inference_mode(False)  # a caller's inference mode would make tensors without gradients
    @torch.no_grad()
    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, targets: Tensor | None = None
    ) -> Attacked:
        """Attack the images that the model gets right.

        Args:
            model: Images to logits; a module must be in evaluation mode. Its parameters' ``.grad`` and the
                images' stay unchanged.
            images: (B, ...) within the bounds, floating point.
            labels: (B,), the true classes.
            targets: (B,), the classes wanted; by default any wrong class counts.

        Returns:
            Verified images; those that the model got wrong before are unchanged, at distance 0.

        Raises:
            ValueError: If the model is in training mode, images are outside the bounds, shapes do not fit, or
                a class is not among the model's.
            TypeError: If images, labels or targets are not tensors of the right kind.
        """
        batch = Batch.checked(model, images, labels, targets, self.bounds, self.chunk)
        check_other(batch.targets, batch.labels)
        before = batch.broken(batch.logits)
        found = batch.images.clone()
        if not bool(before.all()):
            found[~before] = self._search(batch[~before], persist=False).to(found)
        return rescored(
            model,
            batch.images,
            found,
            batch.labels,
            norm=self.norm,
            bounds=self.bounds,
            epsilon=self.epsilon,
            targets=batch.targets,
            chunk=self.chunk,
            before=before,
        )

    @final
    @torch.inference_mode(False)
    @torch.no_grad()
    def perturbed(
        self, model: Model, images: Tensor, labels: Tensor, targets: Tensor | None = None
    ) -> Tensor:
        """The images after every step of the attack, whether or not the model is wrong on them already.

        Transfer wants these: images that are broken early are changed further. They are clipped and range-checked,
        but no success is claimed. Arguments and errors are those of a call.
        """
        batch = Batch.checked(model, images, labels, targets, self.bounds, self.chunk)
        check_other(batch.targets, batch.labels)
        if not len(batch):
            return batch.images
        found = self._search(batch, persist=True)
        return confined(found, batch.images, norm=self.norm, bounds=self.bounds, epsilon=self.epsilon)

    @abstractmethod
    def _search(self, batch: Batch, *, persist: bool) -> Tensor:
        """Candidates for every image of the batch, of which there is at least one.

        Args:
            batch: Images to change.
            persist: Whether to continue with an image that is broken.
        """


AnyAttack = Callable[[Model, Tensor, Tensor], Attacked]
"""Whatever takes attacks takes any of these; a callable that returns images becomes one by :func:`as_attack`."""


FARTHER = (1.0005, 1.002, 1.01, 1.02)
"""By how much a candidate on the very boundary is moved out, as factors of its distance, one after the other."""


@dataclass(frozen=True)
class DistanceAttack(ABC):
    """An attack without a radius: it searches for the nearest image that the model gets wrong.

    Args:
        norm: inf, 2 or 1; of the distance.
        bounds: Of pixel values; [0, 1] everywhere in Clearance.
        chunk: Images that the model sees at once. Change it only for memory or speed.

    Raises:
        ValueError: If a setting is out of range.
    """

    norm: float = 2.0
    bounds: Bounds = field(default=Bounds(), kw_only=True)
    chunk: int = field(default=CHUNK, kw_only=True)

    def __post_init__(self) -> None:
        check_bounds(self.bounds)
        object.__setattr__(self, "norm", as_norm(self.norm))
        check_norm(self.norm)
        check_count("chunk", self.chunk)

    @final
    @torch.inference_mode(False)  # a caller's inference mode would make tensors without gradients
    @torch.no_grad()
    def __call__(self, model: Model, images: Tensor, labels: Tensor) -> Attacked:
        """The nearest wrong images found for those that the model gets right.

        Args:
            model: Images to logits; a module must be in evaluation mode. No ``.grad`` is touched.
            images: (B, ...) within the bounds, floating point.
            labels: (B,), the true classes.

        Returns:
            Verified images with their distances in pixel units: 0 for an image that the model got wrong
            before, infinity (and the original) for one where no wrong image was found.

        Raises:
            ValueError: If the model is in training mode, images are outside the bounds, shapes do not fit, or
                a class is not among the model's.
            TypeError: If images or labels are not tensors of the right kind.
        """
        batch = Batch.checked(model, images, labels, None, self.bounds, self.chunk)
        before = batch.broken(batch.logits)
        found = batch.images.clone()
        if not bool(before.all()):
            found[~before] = self._search(batch[~before])
            found = self._settled(batch, found, before)
        hit = rescored(
            model,
            batch.images,
            found,
            batch.labels,
            norm=self.norm,
            bounds=self.bounds,
            chunk=self.chunk,
            before=before,
        )
        failed = hit.success.logical_not()
        images = chosen(failed, batch.images, hit.images)
        return replace(hit, images=images, distance=torch.where(failed, torch.inf, hit.distance))

    def _settled(self, batch: Batch, found: Tensor, before: Tensor) -> Tensor:
        """Candidates that lie so near the boundary that rounding decides, moved a little farther out.

        Logits of an image can differ in the last bit between a search and the whole batch.
        """
        for farther in FARTHER:
            wrong = before | batch.broken(logits_of(batch.model, found, chunk=batch.chunk))
            if bool(wrong.all()):
                break
            share = torch.full_like(found.flatten(1)[:, 0], farther)
            found = chosen(wrong, found, blended(batch.images, found, share, self.bounds))
        return found

    @abstractmethod
    def _search(self, batch: Batch) -> Tensor:
        """Candidates within the bounds for every image of the batch, of which there is at least one."""


def blended(images: Tensor, far: Tensor, share: Tensor, bounds: Bounds) -> Tensor:
    """Images moved towards others by a share of the way each, (B,)."""
    moved = images + _column(share, images).to(images) * (far - images)
    return moved.clamp(bounds.lower, bounds.upper)


def shortened(batch: Batch, far: Tensor, bounds: Bounds, halvings: int) -> Tensor:
    """Wrong images nearer to the originals, on the straight way to `far`, found by bisection.

    Precise to 2^-halvings of the way; exact where the way crosses the boundary once. Rows of `far` that are
    not wrong themselves are returned unchanged, or nearly.

    >>> model = torch.nn.Identity().eval()                                  # the larger pixel names the class
    >>> batch = Batch.checked(model, torch.tensor([[1.0, 0.5]]), torch.tensor([0]), None, Bounds(), 64)
    >>> near = shortened(batch, torch.tensor([[0.0, 0.5]]), Bounds(), halvings=12)
    >>> round(float(near[0, 0]), 3)
    0.5
    """
    low, high = torch.zeros_like(far.flatten(1)[:, 0]), torch.ones_like(far.flatten(1)[:, 0])
    for _ in range(halvings):
        middle = (low + high) / 2
        logits = logits_of(batch.model, blended(batch.images, far, middle, bounds), chunk=batch.chunk)
        wrong = batch.broken(logits)
        low, high = torch.where(wrong, low, middle), torch.where(wrong, middle, high)
    return blended(batch.images, far, high, bounds)


def chosen(which: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Whole images of `first` where `which` is true, of `second` elsewhere; `which` is (B,)."""
    return torch.where(_column(which, first), first, second)


def _column(numbers: Tensor, images: Tensor) -> Tensor:
    return numbers.view(-1, *[1] * (images.ndim - 1))


def check_radius(epsilon: float, norm: float, bounds: Bounds) -> None:
    """Raise ValueError unless `epsilon` is a radius of `norm` in the unit of `bounds`."""
    check_norm(norm)
    check_non_negative("epsilon", epsilon)
    width = bounds.upper - bounds.lower
    if norm == math.inf and epsilon > width:
        raise ValueError(
            f"`epsilon` must be at most {width:g}, the width of the bounds, in norm inf; got {epsilon}; "
            "it is in the unit of the pixels: divide grey levels by 255."
        )


def check_bounds(bounds: Any) -> None:
    """Raise TypeError unless these are :class:`Bounds`."""
    if not isinstance(bounds, Bounds):
        raise TypeError(
            f"`bounds` must be clearance.vocabulary.Bounds(lower, upper); got {type(bounds).__name__}."
        )


def check_mode(model: Any) -> None:
    """Raise ValueError if `model` is a module that is in training mode, or holds one that is."""
    if not isinstance(model, nn.Module):
        if getattr(model, "training", False):
            raise ValueError("`model` must not be in training mode; call `model.eval()` first.")
        return
    found = next((name for name, module in model.named_modules() if module.training), None)
    if found is not None:
        which = f"its {found!r} is in training mode" if found else "got one in training mode"
        raise ValueError(
            f"`model` must be in evaluation mode because dropout and batch normalisation would make its answer "
            f"depend on chance and on the other images; {which}; call `model.eval()` first."
        )
    found = next((name for name, module in model.named_modules() if _by_the_batch(module)), None)
    if found is not None:
        raise ValueError(
            f"`model` must give logits that depend on one image only; its {found!r} normalises by the statistics "
            "of the whole batch, also in evaluation mode. Give it running statistics (track_running_stats=True)."
        )


def _by_the_batch(module: nn.Module) -> bool:
    normalises = isinstance(module, nn.modules.batchnorm._BatchNorm)
    return normalises and module.running_mean is None and module.running_var is None


def check_images(images: Any, bounds: Bounds) -> None:
    """Raise unless `images` are a batch of floating point images within `bounds`."""
    if not isinstance(images, Tensor) or not images.is_floating_point():
        got = str(images.dtype) if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(f"`images` must be a tensor of floating point numbers; got {got}.")
    if images.ndim < 2 or images[:1].numel() == 0 < len(images):
        raise ValueError(f"`images` must be of shape (B, ...); got {tuple(images.shape)}.")
    if not len(images):
        return
    low, high = (float(end) for end in images.detach().aminmax())
    if not (low >= bounds.lower and high <= bounds.upper):  # also where a pixel is not a number
        raise ValueError(
            f"`images` must lie in [{bounds.lower:g}, {bounds.upper:g}]; got values from {low:.6g} to {high:.6g}; "
            "normalise inside the model, not before it."
        )


def checked_classes(name: str, classes: Any, images: Tensor) -> Tensor:
    """Labels or targets as whole numbers on the device of `images`.

    Raises:
        TypeError: If they are not a tensor of whole numbers.
        ValueError: If there is not one for each image.
    """
    if not isinstance(classes, Tensor) or classes.is_floating_point() or classes.dtype == torch.bool:
        got = str(classes.dtype) if isinstance(classes, Tensor) else type(classes).__name__
        raise TypeError(f"`{name}` must be a tensor of whole numbers; got {got}.")
    if classes.shape != (len(images),):
        raise ValueError(
            f"`{name}` must be of shape ({len(images)},), one for each image; got {tuple(classes.shape)}."
        )
    return classes.detach().to(images.device, torch.long)


def check_other(targets: Tensor | None, labels: Tensor) -> None:
    """Raise ValueError if a target is the image's own label, which every image would reach unchanged."""
    if targets is not None and len(same := (targets == labels).nonzero().flatten()):
        raise ValueError(
            f"`targets` must be other classes than `labels`; got the label itself, {int(labels[same[0]])}, for "
            f"{len(same)} of {len(labels)} images, the first at place {int(same[0])}. Leave those images out."
        )


def check_range(name: str, classes: Tensor, count: int) -> None:
    """Raise ValueError unless all `classes` are among the `count` that the model has logits for."""
    outside = classes[(classes < 0) | (classes >= count)]
    if len(outside):
        raise ValueError(
            f"`{name}` must lie in 0 ... {count - 1} because the model returns {count} logits; got {int(outside[0])}."
        )
