"""Where a module's numbers lie and how long they are: what images must be brought to."""

from itertools import chain

import torch
from torch import Tensor, nn


def device_of(model: nn.Module) -> torch.device:
    """The device of its first parameter, or, where it has none (weights that are fixed for good), first buffer."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def dtype_of(model: nn.Module) -> torch.dtype:
    """The dtype of its first parameter or, where it has none, buffer that is of floating point."""
    tensors: chain[Tensor] = chain(model.parameters(), model.buffers())
    found = (tensor.dtype for tensor in tensors if tensor.is_floating_point())
    return next(found, torch.get_default_dtype())
