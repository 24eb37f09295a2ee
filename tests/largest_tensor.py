"""The largest tensor of a computation, for tests of memory."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation makes or reads."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for value in torch.utils._pytree.tree_leaves((made, args)):
            if isinstance(value, torch.Tensor):
                self.elements = max(self.elements, value.numel())
        return made
