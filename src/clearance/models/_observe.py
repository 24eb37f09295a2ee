"""What a module does with an example: which submodules run, in which order, on what."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Call:
    """One call of a submodule; `received` is the shape of its input, None unless that is one tensor."""

    module: nn.Module
    received: tuple[int, ...] | None


@contextmanager
def in_evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards every submodule has its own mode back."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """The same without gradients."""
    with in_evaluation_mode(module), torch.no_grad():
        yield


def observed_calls(module: nn.Module, inputs: Tensor) -> tuple[Any, list[Call]]:
    """The module's output, and the calls of its submodules in the order in which they began."""
    calls: list[Call] = []

    def hook(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        single = len(args) == 1 and not kwargs and isinstance(args[0], Tensor)
        calls.append(Call(part, tuple(args[0].shape) if single else None))

    # Prepended: what arrives, before the module's own hooks change it.
    handles = [
        part.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)
        for part in module.modules()
        if part is not module and not isinstance(part, torch.jit.ScriptModule)  # which take no such hook
    ]
    try:
        return module(inputs), calls
    finally:
        for handle in handles:
            handle.remove()


def own_normalisation(module: nn.Module, calls: list[Call], channels: int) -> str | None:
    """Where the module seems to normalise its input itself, in words; None where it does not.

    Looks for a first layer whose class is called Normalize or the like, and for `mean` and `std` kept side
    by side with one value or one a channel. A module that does it by other means goes unnoticed.
    """
    leaves = [call.module for call in calls if next(call.module.children(), None) is None]
    if leaves and "normali" in type(leaves[0]).__name__.lower():
        return f"its first layer is a {type(leaves[0]).__name__}"
    for name, part in module.named_modules():
        mean, std = _values(part, "mean", channels), _values(part, "std", channels)
        if mean is not None and std is not None and min(std) > 0 and (any(mean) or set(std) != {1.0}):
            where = f"submodule {name!r}" if name else "it"
            return f"{where} keeps mean {mean} and std {std}"
    return None


def _values(part: nn.Module, name: str, channels: int) -> list[float] | None:
    """The numbers kept under `name`, rounded, if there is one or one a channel."""
    try:
        values = torch.as_tensor(getattr(part, name, None), dtype=torch.float64).flatten().tolist()
    except (TypeError, ValueError, RuntimeError):  # a method, a module, None
        return None
    return [round(value, 4) for value in values] if len(values) in (1, channels) else None
