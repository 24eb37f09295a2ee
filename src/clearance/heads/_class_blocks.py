"""Half distances to class means, forward and back, by blocks of classes that fit a cache.

Written as single operations every one of them makes a tensor as large as the means, and at thousands of classes and
dimensions new memory costs as much as the matrix products do. Here all of it is done to a block before the next one
comes. Variances of each dimension of each class are floor + exp(raw).
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from clearance.heads._mixture_floor import log_floor

CPU_BLOCK, BLOCK = 2**22, 2**26  # bytes of a block: what caches hold; few launches elsewhere


def shared_scale(x: Tensor, means: Tensor, root: Tensor | None, shift: Tensor) -> Tensor:
    """Of every sample (B, D) to every class, 1/2 sum_d (root_d (x_d - mu_kd))^2, (B, K); a root of None is 1.

    Args:
        x: (B, D).
        means: (K, D).
        root: (D,).
        shift: (D,), taken off both: distances do not change, and rounding errors shrink.
    """
    scaled = _scaled(x, shift, root)
    halves = 0.5 * scaled.square().sum(dim=1, keepdim=True)
    distances = x.new_empty(len(x), len(means))
    for rows, (mu, *_) in _blocks(means, rooms=1):
        _scaled(means[rows], shift, root, mu)
        block = distances[:, rows]
        torch.addmm(halves, scaled, mu.T, alpha=-1, out=block)
        block.add_(mu.square_().sum(dim=1), alpha=0.5)
    return distances.clamp_(min=0)


def shared_scale_backward(
    inputs: tuple[Tensor, Tensor, Tensor | None],
    shift: Tensor,
    needed: tuple[bool, ...],
    of_distances: Tensor,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of x, means and root; those nobody needs are None. Those of distances cut off at 0 must be 0."""
    x, means, root = inputs
    by_class = of_distances.T.contiguous()
    scaled = _scaled(x, shift, root)
    of_scaled = scaled * of_distances.sum(dim=1, keepdim=True)
    of_means = torch.empty_like(means)
    of_root = None if root is None else torch.zeros_like(root)
    for rows, (mu, *_) in _blocks(means, rooms=1):
        _scaled(means[rows], shift, root, mu)
        if needed[0] or needed[2]:
            of_scaled.addmm_(by_class[rows].T, mu, alpha=-1)
        if needed[1] or needed[2]:
            totals = by_class[rows].sum(dim=1, keepdim=True)
            of_mu = torch.mul(mu, totals, out=of_means[rows]).addmm_(by_class[rows], scaled, alpha=-1)
            if of_root is not None:
                of_root += torch.sub(means[rows], shift, out=mu).mul_(of_mu).sum(dim=0)
            _times(of_mu, root)
    if of_root is not None:
        of_root += (of_scaled * (x - shift)).sum(dim=0)
    found = (_times(of_scaled, root), of_means, of_root)
    first, second, third = (one if needs else None for one, needs in zip(found, needed, strict=True))
    return first, second, third


class AllClasses(NamedTuple):
    """Half distances (B, K), and of each class log|Sigma_k| and log|Sigma_k| + tr Sigma_k^-1 - D, (K,)."""

    half_distances: Tensor
    log_variances: Tensor
    excesses: Tensor


def all_classes(x: Tensor, means: Tensor, raw: Tensor, floor: float, shift: Tensor) -> AllClasses:
    """Of every sample (B, D) to every class, means and raw (K, D), all of one dtype; shift as above."""
    offsets = x - shift
    squares = offsets.square()
    found = AllClasses(x.new_empty(len(x), len(means)), x.new_empty(len(means)), x.new_empty(len(means)))
    for rows, (mu, precision, weighted) in _blocks(means):
        _precision(raw[rows], floor, precision)
        torch.sum(_log_precision(raw[rows], precision, weighted), dim=1, out=found.log_variances[rows])
        # each of its parts is of the second order near 1, and their sums are not
        torch.sum(torch.sub(precision, 1, out=mu).sub_(weighted), dim=1, out=found.excesses[rows])
        torch.sub(means[rows], shift, out=mu)
        torch.mul(mu, precision, out=weighted)
        distances = found.half_distances[:, rows]
        torch.addmm(distances, squares, precision.T, beta=0, alpha=0.5, out=distances)
        distances.addmm_(offsets, weighted.T, alpha=-1).add_(weighted.mul_(mu).sum(dim=1), alpha=0.5)
    found.half_distances.clamp_(min=0)
    found.log_variances.neg_()
    return found


def all_classes_backward(
    inputs: Sequence[Tensor], shift: Tensor, floor: float, needed: tuple[bool, ...], of_found: AllClasses
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of x, means and raw from those of what was found; those nobody needs are None.

    Those of distances that were cut off at 0 must be 0.
    """
    x, means, raw = inputs
    by_class = of_found.half_distances.T.contiguous()
    totals = by_class.sum(dim=1, keepdim=True)
    offsets = x - shift
    squares = offsets.square()
    by_square, by_product = torch.empty_like(x), torch.empty_like(x)
    of_means, of_raw = torch.empty_like(means), torch.empty_like(raw)
    of_log_variance = of_found.log_variances + of_found.excesses
    for rows, (mu, precision, room) in _blocks(means):
        torch.sub(means[rows], shift, out=mu)
        _precision(raw[rows], floor, precision)
        if needed[0]:
            before = 1 if rows.start else 0
            by_square.addmm_(by_class[rows].T, precision, beta=before)
            by_product.addmm_(by_class[rows].T, torch.mul(mu, precision, out=room), beta=before)
        if needed[1] or needed[2]:
            torch.addmm(room, by_class[rows], offsets, beta=0, alpha=-1, out=room)
            of_mu = torch.addcmul(room, mu, totals[rows], out=of_means[rows])
        if needed[2]:
            torch.addcmul(2 * of_found.excesses[rows, None], room.add_(of_mu), mu, out=room)
            room.addmm_(by_class[rows], squares, beta=0.5, alpha=0.5)
            torch.addcmul(of_log_variance[rows, None], precision, room, value=-1, out=room)
            torch.mul(room, _slope(raw[rows], floor, mu), out=of_raw[rows])
        if needed[1]:
            of_mu.mul_(precision)
    of_x = by_square.mul_(offsets).sub_(by_product) if needed[0] else None
    return of_x, of_means if needed[1] else None, of_raw if needed[2] else None


def own_class(x: Tensor, means: Tensor, raw: Tensor, labels: Tensor, floor: float) -> Tensor:
    """Half distance of each sample to one class, by its differences, (B,)."""
    distances = x.new_empty(len(x))
    for rows, (offsets, own_raw, room) in _blocks(x):
        _gathered(x, means, raw, labels, rows, offsets, own_raw)
        squares = offsets.square_().mul_(_precision(own_raw, floor, room))
        torch.sum(squares, dim=1, out=distances[rows])
    return distances.mul_(0.5)


def own_class_backward(
    inputs: Sequence[Tensor], labels: Tensor, floor: float, of_distances: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, and of the row of means and of raw that each sample read, three times (B, D)."""
    x, means, raw = inputs
    of_x, of_means, of_raw = (torch.empty_like(x) for _ in range(3))
    for rows, (offsets, own_raw, room) in _blocks(x):
        _gathered(x, means, raw, labels, rows, offsets, own_raw)
        weights = _precision(own_raw, floor, room).mul_(of_distances[rows, None])
        torch.mul(offsets, weights, out=of_x[rows])
        torch.neg(of_x[rows], out=of_means[rows])
        squares = offsets.mul_(of_x[rows]).mul_(-0.5)
        torch.mul(squares, _slope(own_raw, floor, room), out=of_raw[rows])
    return of_x, of_means, of_raw


def _gathered(
    x: Tensor, means: Tensor, raw: Tensor, labels: Tensor, rows: slice, offsets: Tensor, own_raw: Tensor
) -> None:
    """Write what separates these samples from their means, and their rows of raw."""
    torch.index_select(means, 0, labels[rows], out=offsets)
    torch.sub(x[rows], offsets, out=offsets)
    torch.index_select(raw, 0, labels[rows], out=own_raw)


def _scaled(x: Tensor, shift: Tensor, root: Tensor | None, out: Tensor | None = None) -> Tensor:
    return _times(torch.sub(x, shift, out=out), root)


def _times(table: Tensor, root: Tensor | None) -> Tensor:
    return table if root is None else table.mul_(root)


def _blocks(table: Tensor, rooms: int = 3) -> Iterator[tuple[slice, list[Tensor]]]:
    """Blocks of rows, and room for so many tensors of their size, which the next block takes over."""
    count, width = table.shape
    size = CPU_BLOCK if table.device.type == "cpu" else BLOCK
    rows = min(count, max(1, size // (width * table.element_size())))
    room = [table.new_empty(rows, width) for _ in range(rooms)]
    for start in range(0, count, max(rows, 1)):
        block = slice(start, min(start + rows, count))
        yield block, [tensor[: block.stop - start] for tensor in room]


def _log_precision(raw: Tensor, precision: Tensor, out: Tensor) -> Tensor:
    """Of that precision, so that rounding takes the same from both; -raw where a precision is too small a number."""
    least = torch.finfo(raw.dtype).tiny
    if raw.device.type == "cpu" and bool(raw.amax() < -0.5 * math.log(least)):  # elsewhere looking would wait
        return torch.log(precision, out=out)
    torch.log(precision.clamp_(min=least), out=out)
    return torch.minimum(out, raw.neg(), out=out)


def _precision(raw: Tensor, floor: float, out: Tensor) -> Tensor:
    """1 / (floor + exp(raw)), which neither overflows nor cancels."""
    # over the floor whose logarithm was rounded, or all precisions would be off to one side
    rounded = float(torch.tensor(math.log(floor), dtype=raw.dtype))
    return torch.sub(log_floor(raw, floor), raw, out=out).sigmoid_().mul_(math.exp(-rounded))


def _slope(raw: Tensor, floor: float, out: Tensor) -> Tensor:
    """The derivative of log(floor + exp(raw))."""
    return torch.sub(raw, math.log(floor), out=out).sigmoid_()
