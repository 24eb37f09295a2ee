"""Running a network: in evaluation mode, on its device and in its precision, with filters laid out for a CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn

from clearance.models.classifier import Classifier


def device_of(model: nn.Module) -> torch.device:
    """The device of its first parameter, or, where it has none (weights that are fixed for good), first buffer."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def dtype_of(model: nn.Module) -> torch.dtype:
    """The dtype of its first parameter or, where it has none, buffer that is of floating point."""
    tensors: chain[Tensor] = chain(model.parameters(), model.buffers())
    found = (tensor.dtype for tensor in tensors if tensor.is_floating_point())
    return next(found, torch.get_default_dtype())


OBLIVIOUS = ("torch.nn.modules.", "clearance.")  # code that asks nowhere how a tensor lies in memory


def with_channels_last(model: Classifier) -> Classifier:
    """The same classifier, whose filters now lie in memory with their channels last: only rounding differs."""
    moved: Classifier = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # stubs lack it
    return moved


@contextmanager
def filters_channels_last(module: nn.Module) -> Iterator[None]:
    """Channels last for as long as it is looked at; afterwards every filter is the tensor that it was.

    Nothing changes for what may ask how tensors lie in memory (a forward pass of the user's own with a ``view``,
    say), on other devices, and in other precisions than float32, for which processors have no such kernels.
    """
    filters = _filters(module)
    before = [weight.data for weight in filters]
    for weight in filters:
        # not `contiguous`, which leaves filters of one channel as they are, and with them what they give
        weight.data = weight.data.to(memory_format=torch.channels_last)
    try:
        yield
    finally:
        for weight, data in zip(filters, before, strict=True):
            weight.data = data


def _filters(module: nn.Module) -> list[Tensor]:
    if not all(type(part).__module__.startswith(OBLIVIOUS) for part in module.modules()):
        return []  # a part is of a class of the user's own
    weights = {part.weight for part in module.modules() if isinstance(part, nn.Conv2d)}
    return [one for one in weights if one.device.type == "cpu" and one.dtype is torch.float32]


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
