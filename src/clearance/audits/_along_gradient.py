"""What lies along the gradient: where the rival wins, and where it wins by as much as it lost by."""

from collections.abc import Callable

import torch
from torch import Tensor

from clearance.audits._nearest_rival import NearestRival, gap_to, lead_of
from clearance.models.classifier import Classifier

DOUBLINGS = 7  # of the first-order distance: up to 64 times as far
HALVINGS = {torch.float32: 26, torch.float64: 52}


def first_crossing(value: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
    """A t above 0 where `value` turns from positive to negative or 0, infinite where none was found up to 64.

    The smallest of 1, 2, 4 ... 64 at which it has turned, halved down: the first crossing where there is one alone.

    Args:
        value: From t (B,) to numbers (B,).
        like: Any (B,) of the precision that is wanted.

    >>> first_crossing(lambda t: 3 - t, torch.zeros(1, dtype=torch.float64))
    tensor([3.], dtype=torch.float64)
    """
    low, high = torch.zeros_like(like), torch.full_like(like, torch.inf)
    for power in range(DOUBLINGS):
        at = torch.full_like(like, 2.0**power)
        turned = value(at) <= 0
        high = torch.where(turned & high.isinf(), at, high)
        low = torch.where(high.isinf(), at, low)
        if not bool(high.isinf().any()):
            break
    found = high.isfinite()
    for _ in range(HALVINGS.get(like.dtype, HALVINGS[torch.float32])):
        middle = torch.where(found, (low + high) / 2, low)
        turned = value(middle) <= 0
        high = torch.where(found & turned, middle, high)
        low = torch.where(found & ~turned, middle, low)
    return torch.where(found, (low + high) / 2, high)


def bisected_distances(model: Classifier, rivals: NearestRival, norm: float) -> Tensor:
    """How far along the steepest step of p-norm 1 any rival wins, (B,): 0 where one does already, infinite if never.

    Args:
        model: In evaluation mode.
        rivals: Of the images.
        norm: p, that of the step.
    """
    lead = lead_of(model, rivals)
    wrong = ~(lead(rivals.images) > 0)
    times = first_crossing(_on_the_way(lead, rivals, norm), rivals.distance.abs())
    length = times * rivals.distance.abs()
    length = torch.where(rivals.usable, length, torch.inf)
    return torch.where(wrong, 0.0, length)


def mirror_images(model: Classifier, rivals: NearestRival, norm: float) -> tuple[Tensor, Tensor]:
    """Images as sure of the nearest rival as they are of their class now, and how far that is over 2 |d|.

    x_m = x + t d v  with  m(x_m) = -m(x):  t = 2 to first order, found by a search along the steepest step v.

    Source: Tanay and Griffin (2018), the mirror image x - 2 d(x) w / ||w|| of a linear classifier.

    Args:
        model: In evaluation mode.
        rivals: Of the images.
        norm: p, that of the step.

    Returns:
        Images (B, C, H, W), not clipped to the range of pixels, and t / 2, (B,): infinite where none was found; the
        image is then itself.
    """
    gap = gap_to(model, rivals)
    moved = _on_the_way(gap, rivals, norm, signed=True)

    def left(times: Tensor) -> Tensor:
        """In units of the image's own gap: 2 at the image, 0 at its mirror image."""
        return moved(2 * times) / torch.where(rivals.gap == 0, 1.0, rivals.gap) + 1

    stretch = torch.where(rivals.usable & (rivals.gap != 0), first_crossing(left, rivals.distance), torch.inf)
    step = torch.where(stretch.isfinite() & rivals.usable, 2 * stretch * rivals.distance, 0.0)
    return rivals.images + _shaped(step, rivals.images) * rivals.direction(norm), stretch


def _on_the_way(
    value: Callable[[Tensor], Tensor], rivals: NearestRival, norm: float, *, signed: bool = False
) -> Callable[[Tensor], Tensor]:
    """`value` as a function of t, t first-order distances along the steepest step."""
    unit = rivals.distance if signed else rivals.distance.abs()
    unit = torch.where(rivals.usable, unit, 0.0)
    step = _shaped(unit, rivals.images) * rivals.direction(norm)

    def at(times: Tensor) -> Tensor:
        return value(rivals.images + _shaped(times, rivals.images) * step)

    return at


def _shaped(numbers: Tensor, images: Tensor) -> Tensor:
    return numbers.view(-1, *[1] * (images.ndim - 1))
