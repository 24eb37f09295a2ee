"""Whether somebody transforms what is computed, and gradients that can be transformed: by single operations."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd import forward_ad


def transformed() -> bool:
    """Whether a compiler, a tracer, torch.func or forward differentiation asks, which need single operations."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return True
    functions = getattr(torch._C, "_are_functorch_transforms_active", None)  # torch has no public way to ask
    return (functions is not None and functions()) or getattr(forward_ad, "_current_level", -1) >= 0


def by_blocks(*tensors: Tensor | None) -> bool:
    """Whether what is computed from these may be written block by block into one tensor, forward and back."""
    if transformed():
        return False
    given = [one for one in tensors if one is not None]
    # slices on other devices are not to be written through; what inference mode made is not to be kept for backward
    return all(one.device.type in ("cpu", "cuda") and not one.is_inference() for one in given)


def in_place(gradients: Sequence[Tensor | None]) -> bool:
    """Whether what comes of these gradients may be written in place: nobody differentiates it, and none is a batch."""
    functions = getattr(torch._C, "_functorch", None)  # torch has two kinds, and no public way to ask
    asked = [getattr(functions, name, None) for name in ("is_batchedtensor", "is_legacy_batchedtensor")]
    batched = any(ask(one) for one in gradients if one is not None for ask in asked if ask)
    return not (batched or torch.is_grad_enabled() or transformed())


@contextmanager
def as_in_forward(beside: Tensor) -> Iterator[bool]:
    """With a graph and without autocast; tells whether what is done here may be differentiated again."""
    again = torch.is_grad_enabled()
    with torch.enable_grad(), torch.autocast(beside.device.type, enabled=False):
        yield again


def gradients_of(
    made: Sequence[Tensor],
    inputs: Sequence[Tensor | None],
    needed: Sequence[bool],
    gradients: Sequence[Tensor | None],
    again: bool,
) -> list[Tensor | None]:
    """Gradients of those inputs that are needed; None for the others.

    Args:
        made: Of the inputs, by single operations.
        inputs: As they went into them.
        needed: Which of them.
        gradients: Of what was made.
        again: Whether they are to be differentiated again.
    """
    pairs = [(one, g) for one, g in zip(made, gradients, strict=True) if g is not None and one.requires_grad]
    wanted = [one for one, needs in zip(inputs, needed, strict=True) if needs and one is not None]
    if not pairs:
        return [None for _ in needed]
    outputs, of_outputs = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(outputs, wanted, of_outputs, create_graph=again, allow_unused=True))
    return [next(found) if needs else None for needs in needed]
