"""A variance of each dimension of each class: all that a mixture and its loss need, in one pass and one back.

What a pass made is kept beside the logits that came of it, so that the loss, which sees them, reads the rest there and
adds its own gradients to tables that the pass writes anyway.
"""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad
from torch.utils.weak import WeakIdKeyDictionary

from clearance.heads._class_blocks import (
    AllClasses,
    all_classes,
    all_classes_backward,
    own_class,
    own_class_backward,
)
from clearance.heads._mixture_floor import excess_log_variances, floored_log_variance, half_log_determinants
from clearance.heads.mahalanobis import half_distances, scaled_half_squares


class ClassDiagonal(NamedTuple):
    """Half distances (B, K); of each class 1/2 log|Sigma| and 1/2 (log|Sigma| + tr Sigma^-1 - D), (K,).

    ``means`` and ``raw`` are the parameters as they went through the pass, to which gradients are best given.
    """

    half_distances: Tensor
    half_log_determinants: Tensor
    excess_log_variances: Tensor
    means: Tensor
    raw: Tensor


class _Kept(NamedTuple):
    made: ClassDiagonal
    parameters: tuple[weakref.ref[Tensor], ...]
    states: list[tuple[int, int]]


_OF_LOGITS: WeakIdKeyDictionary = WeakIdKeyDictionary()


def remember(logits: Tensor, made: ClassDiagonal | None, parameters: Sequence[Tensor | None]) -> None:
    """Keep what these logits were made of for as long as they live and can be differentiated.

    Args:
        logits: Whose key it is.
        made: Nothing is kept of None.
        parameters: Of the head, which may be of another dtype than what went through the pass.
    """
    if made is not None and logits.requires_grad and not _transformed():
        refs = tuple(weakref.ref(one) for one in parameters if one is not None)
        _OF_LOGITS[logits] = _Kept(made, refs, _states(parameters))


def remembered(logits: Tensor | None, parameters: Sequence[Tensor | None]) -> ClassDiagonal | None:
    """What these logits were made of, or None where that is not known, or not of these parameters as they are now."""
    if logits is None or _transformed() or (kept := _OF_LOGITS.get(logits)) is None:
        return None
    own = [ref() for ref in kept.parameters]
    same = all(one is other for one, other in zip(own, parameters, strict=True))
    return kept.made if same and kept.states == _states(parameters) else None


def _states(parameters: Sequence[Tensor | None]) -> list[tuple[int, int]]:
    return [(one._version, one.data_ptr()) for one in parameters if one is not None]


def class_diagonal(x: Tensor, means: Tensor, raw: Tensor, floor: float) -> ClassDiagonal:
    """Of samples (B, D) and classes whose means and raw are (K, D), all of one dtype; variances floor + exp(raw)."""
    if _transformed():
        return ClassDiagonal(*_written_out(x, means, raw, floor), means, raw)
    return ClassDiagonal(*_AllClasses.apply(x, means, raw, floor))


def own_class_diagonal(made: ClassDiagonal, x: Tensor, labels: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Half distance of each sample to one class, exact to rounding, and 1/2 log|Sigma| of that class, (B,) and (B,)."""
    distance, volume = _OwnClass.apply(x, made.means, made.raw, labels, floor)
    return distance, volume


class _AllClasses(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, means: Tensor, raw: Tensor, floor: float) -> tuple[Tensor, ...]:
        distances, log_variances, traces = all_classes(x, means, raw, floor)
        ctx.save_for_backward(x, means, raw, distances)
        ctx.floor = floor
        ctx.set_materialize_grads(False)
        excess = 0.5 * (log_variances + traces - means.shape[1])
        return distances, 0.5 * log_variances, excess, means.view_as(means), raw.view_as(raw)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        *inputs, distances = ctx.saved_tensors
        needed = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled() or _batched(gradients):
            with _written_out_mode(distances):
                x, means, raw = (tensor.view_as(tensor) for tensor in inputs)
                made = (*_written_out(x, means, raw, ctx.floor), means, raw)
                return *_differentiable((x, means, raw), needed, made, gradients), None
        found = all_classes_backward(inputs, ctx.floor, needed, _of_found(distances, *gradients[:3]))
        return *(_with_rows(one, rows) for one, rows in zip(found, (None, *gradients[3:]), strict=True)), None


class _OwnClass(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, means: Tensor, raw: Tensor, labels: Tensor, floor: float
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, means, raw, labels)
        ctx.floor = floor
        distances, log_variances = own_class(x, means, raw, labels, floor)
        return distances, 0.5 * log_variances

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, labels = ctx.saved_tensors
        if torch.is_grad_enabled() or _batched(gradients):
            with _written_out_mode(labels):
                x, means, raw = (tensor.view_as(tensor) for tensor in inputs)
                v = floored_log_variance(raw[labels], ctx.floor)
                made = (scaled_half_squares(x - means[labels], v), half_log_determinants(v, None, means))
                needed = ctx.needs_input_grad[:3]
                return *_differentiable((x, means, raw), needed, made, gradients), None, None
        of_x, *rows = own_class_backward(inputs, labels, ctx.floor, gradients[0], 0.5 * gradients[1])
        tables = (_sparse(one, labels, table) for one, table in zip(rows, inputs[1:], strict=True))
        return of_x, *tables, None, None


def _of_found(
    distances: Tensor, of_distances: Tensor | None, of_volumes: Tensor | None, of_excess: Tensor | None
) -> AllClasses:
    """Gradients of what a pass found, from those of what is handed out."""
    none = distances.new_zeros(distances.shape[1])
    volumes, excess = (none if g is None else 0.5 * g for g in (of_volumes, of_excess))
    if of_distances is None:
        return AllClasses(torch.zeros_like(distances), volumes + excess, excess)
    return AllClasses(of_distances.masked_fill(distances == 0, 0), volumes + excess, excess)


def _sparse(rows: Tensor, labels: Tensor, table: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(labels[None], rows, table.shape, check_invariants=False)


def _with_rows(found: Tensor | None, rows: Tensor | None) -> Tensor | None:
    if found is None or rows is None:
        return found
    if not rows.is_sparse:
        return found.add_(rows)
    return found.index_add_(0, rows._indices()[0], rows._values())


def _written_out(x: Tensor, means: Tensor, raw: Tensor, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    """The same by single operations, which autograd and all that transforms functions can follow."""
    v = floored_log_variance(raw, floor)
    volumes = half_log_determinants(v, None, means)
    return half_distances(x, means, v), volumes, excess_log_variances(v, None, means.shape[1])


def _differentiable(
    inputs: Sequence[Tensor],
    needed: Sequence[bool],
    made: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Gradients of the inputs that can be differentiated again."""
    pairs = [(one, g) for one, g in zip(made, gradients, strict=True) if g is not None and one.requires_grad]
    wanted = [one for one, needs in zip(inputs, needed, strict=True) if needs]
    if not pairs:
        return [None for _ in needed]
    outputs, of_outputs = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(outputs, wanted, of_outputs, create_graph=True, allow_unused=True))
    return [next(found) if needs else None for needs in needed]


@contextmanager
def _written_out_mode(beside: Tensor) -> Iterator[None]:
    """As in forward: no autocast, and a graph."""
    with torch.enable_grad(), torch.autocast(beside.device.type, enabled=False):
        yield


def _batched(gradients: Sequence[Tensor | None]) -> bool:
    """Whether each of these stands for many, as with ``is_grads_batched``: what is written in place cannot."""
    functions = getattr(
        torch._C, "_functorch", None
    )  # torch has two kinds, and no public way to ask for either
    asked = [getattr(functions, name, None) for name in ("is_batchedtensor", "is_legacy_batchedtensor")]
    return any(ask(one) for one in gradients if one is not None for ask in asked if ask)


def _transformed() -> bool:
    """Whether a compiler, a tracer, torch.func or forward differentiation asks, which do not go into a pass."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return True
    functions = getattr(torch._C, "_are_functorch_transforms_active", None)
    return (functions is not None and functions()) or getattr(forward_ad, "_current_level", -1) >= 0
