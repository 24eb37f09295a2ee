"""A variance of each dimension of each class: all that a mixture and its loss need, in one pass and one back."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from clearance.heads._class_blocks import (
    AllClasses,
    all_classes,
    all_classes_backward,
    own_class,
    own_class_backward,
)
from clearance.heads._class_rows import sparse_rows, with_rows
from clearance.heads._mixture_floor import excess_log_variances, floored_log_variance, half_log_determinants
from clearance.heads._remembered import Pass
from clearance.heads._transforms import as_in_forward, by_blocks, gradients_of, in_place
from clearance.heads.mahalanobis import half_distances, scaled_half_squares


def class_diagonal(x: Tensor, means: Tensor, raw: Tensor, floor: float) -> Pass:
    """Of samples (B, D) and classes whose means and raw are (K, D), all of one dtype; variances floor + exp(raw)."""
    if not by_blocks(x, means, raw):
        distances, volumes, excess = _written_out(x, means, raw, floor)
        return Pass(distances, means, raw, volumes, excess)
    distances, volumes, excess, means, raw = _AllClasses.apply(x, means, raw, floor)
    return Pass(distances, means, raw, volumes, excess, joined=True)


def own_class_diagonal(made: Pass, x: Tensor, labels: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Half distance of each sample to one class, exact to rounding, and 1/2 log|Sigma| of that class, (B,) and (B,).

    Args:
        made: By :func:`class_diagonal`: gradients of its tables' rows are sparse, and join its own.
        x: (B, D).
        labels: (B,).
        floor: As there.
    """
    assert made.half_log_determinants is not None
    distance: Tensor = _OwnClass.apply(x, made.means, made.raw, labels, floor)
    return distance, made.half_log_determinants[labels]


class _AllClasses(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, means: Tensor, raw: Tensor, floor: float) -> tuple[Tensor, ...]:
        shift = means.mean(dim=0)
        distances, log_variances, excess = all_classes(x, means, raw, floor, shift)
        ctx.save_for_backward(x, means, raw, shift, distances)
        ctx.floor = floor
        ctx.set_materialize_grads(False)
        return distances, 0.5 * log_variances, 0.5 * excess, means.view_as(means), raw.view_as(raw)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        *inputs, shift, distances = ctx.saved_tensors
        needed = ctx.needs_input_grad[:3]
        if not in_place(gradients):
            with as_in_forward(distances) as again:
                x, means, raw = (tensor.view_as(tensor) for tensor in inputs)
                made = (*_written_out(x, means, raw, ctx.floor), means, raw)
                return *gradients_of(made, (x, means, raw), needed, gradients, again), None
        if gradients[0] is None:
            needed = (False, *needed[1:])
        found = all_classes_backward(inputs, shift, ctx.floor, needed, _of_found(distances, *gradients[:3]))
        return *(with_rows(one, rows) for one, rows in zip(found, (None, *gradients[3:]), strict=True)), None


class _OwnClass(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, means: Tensor, raw: Tensor, labels: Tensor, floor: float) -> Tensor:
        ctx.save_for_backward(x, means, raw, labels)
        ctx.floor = floor
        return own_class(x, means, raw, labels, floor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, labels = ctx.saved_tensors
        if not in_place(gradients):
            with as_in_forward(labels) as again:
                x, means, raw = (tensor.view_as(tensor) for tensor in inputs)
                v = floored_log_variance(raw[labels], ctx.floor)
                made = (scaled_half_squares(x - means[labels], v),)
                return (
                    *gradients_of(made, (x, means, raw), ctx.needs_input_grad[:3], gradients, again),
                    None,
                    None,
                )
        of_x, *rows = own_class_backward(inputs, labels, ctx.floor, *gradients)
        tables = (sparse_rows(one, labels, table.shape) for one, table in zip(rows, inputs[1:], strict=True))
        return of_x, *tables, None, None


def _of_found(
    distances: Tensor, of_distances: Tensor | None, of_volumes: Tensor | None, of_excess: Tensor | None
) -> AllClasses:
    """Gradients of what a pass found, from those of what is handed out."""
    none = distances.new_zeros(distances.shape[1])
    volumes, excess = (none if g is None else 0.5 * g for g in (of_volumes, of_excess))
    if of_distances is None:
        return AllClasses(torch.zeros_like(distances), volumes, excess)
    return AllClasses(of_distances.masked_fill(distances == 0, 0), volumes, excess)


def _written_out(x: Tensor, means: Tensor, raw: Tensor, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    """The same by single operations, which autograd and all that transforms functions can follow."""
    v = floored_log_variance(raw, floor)
    volumes = half_log_determinants(v, None, means)
    return half_distances(x, means, v), volumes, excess_log_variances(v, None, means.shape[1])
