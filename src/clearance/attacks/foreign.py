"""Attacks of other libraries and your own: any callable (model, images, labels) -> images."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from clearance.attacks.attack import Attack, Batch, Model

Images = Callable[[Model, Tensor, Tensor], Any]
"""(model, images, labels) to images: a tensor, or what ``torch.as_tensor`` makes one of."""


@dataclass(frozen=True)
class ForeignAttack(Attack):
    """A callable as an attack; made by :func:`as_attack`."""

    make: Images = field(kw_only=True)

    def _search(self, batch: Batch, *, persist: bool) -> Tensor:
        del persist  # up to the callable
        if batch.targets is not None:
            raise ValueError(
                "`targets` must be None because a callable takes no targets; let it choose its own."
            )
        with torch.enable_grad(), _as_before(batch.model):
            made = self.make(batch.model, batch.images.clone(), batch.labels.clone())
        try:
            return torch.as_tensor(made).detach().to(batch.images)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"an attack must return images as a tensor; it returned {type(made).__name__}."
            ) from error


@contextlib.contextmanager
def _as_before(model: Model) -> Iterator[None]:
    """Restore a module's modes, buffers and parameters' gradients afterwards."""
    if not isinstance(model, nn.Module):
        yield
        return
    modes = {module: module.training for module in model.modules()}
    gradients = {parameter: parameter.grad for parameter in model.parameters()}
    buffers = {buffer: buffer.clone() for buffer in model.buffers()}  # statistics of a batch, for example
    for parameter in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        for parameter, gradient in gradients.items():
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, kept in buffers.items():
                if not torch.equal(buffer, kept):
                    buffer.copy_(kept)


def as_attack(make: Images, epsilon: float, norm: float = math.inf) -> ForeignAttack:
    """Any callable ``(model, images, labels) -> images`` as an attack, verified like every other.

    It gets copies of the images that the model gets right; what it returns is clipped, checked against the ball, and
    scored by asking the model again. The modes of the model's parts, its buffers and the gradients of its parameters
    are restored after it.

    Args:
        make: The callable. It keeps its own radius: give it the same `epsilon`, in the unit of the pixels.
        epsilon: Radius of the ball in which its images must lie.
        norm: inf, 2 or 1.

    Raises:
        ValueError: If `epsilon` or `norm` is out of range; on a call, if images come back outside the ball by
            more than rounding, or in another shape.
        TypeError: If `make` is not a callable; on a call, if it returns no images.

    Whether it depends on batch size, on order or on the scale of logits is up to the callable.

    >>> def darker(model, images, labels):
    ...     return images - 0.25
    >>> attack = as_attack(darker, epsilon=0.25)
    >>> attack(torch.nn.Identity().eval(), torch.tensor([[0.75, 0.1]]), torch.tensor([0])).images
    tensor([[0.5000, 0.0000]])
    """
    if not callable(make):
        raise TypeError(
            f"`make` must be a callable (model, images, labels) -> images; got {type(make).__name__}."
        )
    return ForeignAttack(epsilon, norm, make=make)
