"""Stacked parameters laid out in one flat buffer, so that an SGD update is a handful of operations."""

from collections.abc import Mapping

import torch
from torch import Tensor


class FlatParameters:
    """Values, gradients and momentum of named tensors, each kind in one contiguous buffer.

    The update is that of torch.optim.SGD: g + wd p, then momentum, then Nesterov's look-ahead.
    """

    def __init__(self, initial: Mapping[str, Tensor]) -> None:
        sizes = [value.numel() for value in initial.values()]
        self._values = torch.cat([value.detach().reshape(-1) for value in initial.values()])
        self._gradients = torch.zeros_like(self._values)
        self._momentum = torch.zeros_like(self._values)
        shapes = {name: value.shape for name, value in initial.items()}
        self.values = _views(self._values, shapes, sizes)
        self.gradients = _views(self._gradients, shapes, sizes)

    def sgd_step(self, lr: float, momentum: float, weight_decay: float, *, nesterov: bool) -> None:
        """One step of all heads."""
        gradient = self._gradients
        if weight_decay:
            gradient.add_(self._values, alpha=weight_decay)
        if momentum:
            self._momentum.mul_(momentum).add_(gradient)
            gradient = gradient.add_(self._momentum, alpha=momentum) if nesterov else self._momentum
        self._values.sub_(gradient, alpha=lr)


def _views(flat: Tensor, shapes: Mapping[str, torch.Size], sizes: list[int]) -> dict[str, Tensor]:
    pieces = flat.split(sizes)
    return {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}
