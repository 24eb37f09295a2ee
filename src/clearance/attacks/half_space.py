"""The nearest image on the other side of a hyperplane, inside the pixel bounds: exact, in every norm."""

import math

import torch
from torch import Tensor

from clearance.attacks.norms import wide
from clearance.vocabulary import Bounds


def shortest_step(
    points: Tensor, gradient: Tensor, rise: Tensor, norm: float, bounds: Bounds | None = None
) -> Tensor:
    r"""The shortest step that raises a linear function by `rise` and stays inside the bounds.

        minimise ||d||_p   subject to   gradient . d >= rise,   lower <= points + d <= upper

    With r_i the room of pixel i in the direction of its gradient: for p = inf ``d = sign(g) min(t, r)``, for
    1 < p < inf ``|d| = min(t |g|^(1 / (p - 1)), r)`` with the one t that reaches the rise (found by sorting the
    pixels by the t at which they reach their bound), and for p = 1 the pixels with the largest gradient go
    to their bounds one after the other. Away from the bounds ||d||_p = rise / ||gradient||_q.

    Source: Elsayed et al. (2018), the distance of a linear classifier, for the unbounded case; the bounds are
    the Karush-Kuhn-Tucker conditions of the problem above.

    Args:
        points: Where the step begins, inside the bounds.
        gradient: Of the linear function; 0 for a row gives no step.
        rise: Wanted for each row; 0 and below give no step. Where no image inside the bounds reaches it, the
            step goes as far as the bounds allow, and the rise falls short.
        norm: p, at least 1; ``math.inf`` for the largest change of a pixel.
        bounds: Of pixel values, by default [0, 1].

    Shapes:
        points and gradient (B, ...); rise (B,); returns (B, ...).

    >>> step = shortest_step(torch.tensor([[0.5, 0.9]]), torch.tensor([[1.0, 1.0]]), torch.tensor([0.5]), math.inf)
    >>> [round(change, 4) for change in step[0].tolist()]           # the second pixel has room for 0.1 only
    [0.4, 0.1]
    """
    bounds = Bounds() if bounds is None else bounds
    # sums over pixels would lose what half precision has
    slopes, at, rise = wide(gradient).flatten(1), wide(points).flatten(1), wide(rise)
    room = torch.where(slopes > 0, bounds.upper - at, at - bounds.lower).clamp(min=0.0)
    steep = slopes.abs()
    length = _filled(steep, room, rise) if norm == 1 else _raised_together(steep, room, rise, norm)
    return (slopes.sign() * length).to(points.dtype).view_as(points)


def _raised_together(steep: Tensor, room: Tensor, rise: Tensor, norm: float) -> Tensor:
    """Lengths min(t speed, room) of all pixels, with the least t that gives the rise."""
    speed = (steep > 0).to(steep) if math.isinf(norm) else _unit(steep) ** (1 / (norm - 1))
    full_at = torch.where(speed > 0, room / speed, torch.inf)  # the t at which a pixel reaches its bound
    order = full_at.argsort(dim=1)
    times, gains = full_at.gather(1, order), (steep * room).gather(1, order)
    pace = (steep * speed).gather(1, order)
    banked = gains.cumsum(1) - gains  # by the pixels that are at their bounds before this one
    left = pace.flip(1).cumsum(1).flip(1)  # what all others gain as t grows by one
    reached = torch.where(left > 0, banked + times * left, banked)
    enough = reached >= rise[:, None]
    first = enough.to(torch.int8).argmax(dim=1, keepdim=True)
    t = (rise[:, None] - banked.gather(1, first)) / left.gather(1, first)
    t = torch.where(enough.any(dim=1, keepdim=True) & t.isfinite(), t, torch.inf).clamp(min=0.0)
    return torch.minimum(torch.where(speed > 0, t * speed, 0.0), room)


def _unit(steep: Tensor) -> Tensor:
    """The gradient in units of its largest entry, so that no power of it overflows."""
    return steep / steep.amax(dim=1, keepdim=True).clamp(min=torch.finfo(steep.dtype).tiny)


def _filled(steep: Tensor, room: Tensor, rise: Tensor) -> Tensor:
    """Lengths for p = 1: pixels to their bounds, steepest first, the last one part of the way."""
    order = steep.argsort(dim=1, descending=True, stable=True)
    slopes, space = steep.gather(1, order), room.gather(1, order)
    gains = slopes * space
    missing = (rise[:, None] - (gains.cumsum(1) - gains)).clamp(min=0.0)
    part = torch.where(slopes > 0, torch.minimum(missing / slopes, space), 0.0)
    return torch.zeros_like(steep).scatter(1, order, part)
