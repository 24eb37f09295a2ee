"""Filters that lie in memory as convolutions on a CPU like them best."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from clearance.models.classifier import Classifier

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
