"""Asking a model for logits and gradients, always in batches of one size."""

import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

Model = Callable[[Tensor], Tensor]
"""Images in, logits (B, C) out; a module in evaluation mode, or any other callable."""

NO_GRAPH = "its logits have no graph to them (torch.no_grad, detach, or NumPy within)"
CHUNK = 64
"""Images that a model sees at once."""


class NoGradientWarning(UserWarning):
    """A model whose logits carry no gradient back to its images: what attacks by gradients leave says nothing."""


def logits_of(model: Model, images: Tensor, *, chunk: int = CHUNK) -> Tensor:
    """Logits of images, without a graph, shape (B, C).

    Arithmetic on a batch depends, in its last bits, on how many images are in it: libraries choose another
    kernel for another shape. An attack asks about fewer and fewer images, and its steps turn last bits into
    whole steps. So the model always sees `chunk` images; where fewer are left, the last one is repeated.

    Args:
        model: Images to logits.
        images: (B, ...), B at least 1.
        chunk: Images that the model sees at once; memory and speed alone are a reason to change it.

    Raises:
        ValueError: If what comes back is not of shape (chunk, C) with C at least 2.

    >>> logits_of(torch.nn.Flatten(), torch.ones(3, 1, 1, 2)).shape
    torch.Size([3, 2])
    """
    # inference mode of a caller would outlive torch.no_grad() in the tensors that are made here
    with torch.inference_mode(False), torch.no_grad():
        return torch.cat([_answer(model, padded)[:size] for padded, size in _chunks(images, chunk)])


def gradients_of(
    model: Model, images: Tensor, loss: Callable[[Tensor, slice], Tensor], *, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """Logits of images, and the gradient of each image's loss with respect to it.

    The sum over a chunk is differentiated, so that no gradient depends on how many images there are.
    Parameters' ``.grad`` and that of `images` stay as they are. A model whose logits do not depend on its
    images in any differentiable way has gradients of zero.

    Warns:
        NoGradientWarning: Of such a model.

    Args:
        model: Images to logits.
        images: (B, ...), B at least 1.
        loss: Turns logits (b, C) and the rows of `images` that they belong to into losses (b,).
        chunk: Images that the model sees at once; see :func:`logits_of`.

    Returns:
        Logits (B, C), without a graph, and gradients of the shape and type of `images`.

    >>> images = torch.tensor([[1.0, 2.0]])
    >>> gradients_of(torch.nn.Identity(), images, lambda logits, rows: logits[:, 0])
    (tensor([[1., 2.]]), tensor([[1., 0.]]))
    """
    logits, gradients = [], []
    with torch.inference_mode(False), torch.enable_grad():
        start = 0
        for padded, size in _chunks(images, chunk):
            leaf = padded.requires_grad_()
            answer = _answer(model, leaf.clone())  # which the model may change in place
            value = loss(answer[:size], slice(start, start + size)).sum()
            logits.append(answer[:size].detach())
            gradients.append(_gradient(value, leaf)[:size])
            start += size
    return torch.cat(logits), torch.cat(gradients)


def _chunks(images: Tensor, chunk: int) -> Iterator[tuple[Tensor, int]]:
    """Copies of `chunk` images each, the last one filled up, and how many of them count."""
    for part in images.detach().split(chunk):
        missing = chunk - len(part)
        yield torch.cat([part, part[-1:].expand(missing, *part.shape[1:])]), len(part)


def _answer(model: Model, images: Tensor) -> Tensor:
    logits = model(images)
    if not isinstance(logits, Tensor):
        raise TypeError(f"`model` must return a tensor of logits; got {type(logits).__name__}.")
    if logits.ndim != 2 or len(logits) != len(images) or logits.shape[1] < 2:
        raise ValueError(
            f"`model` must return logits of shape (B, C) with at least 2 classes; "
            f"got {tuple(logits.shape)} for {len(images)} images."
        )
    return logits


def _gradient(value: Tensor, leaf: Tensor) -> Tensor:
    if not value.requires_grad:
        _warn(NO_GRAPH)
        return torch.zeros_like(leaf)
    try:
        (gradient,) = torch.autograd.grad(value, leaf, allow_unused=True)
    except RuntimeError as error:
        if "derivative for" not in str(error):
            raise
        _warn("a step within has no derivative")  # like `//`, as round() has a gradient of 0
        return torch.zeros_like(leaf)
    if gradient is None:  # the logits depend on parameters alone
        _warn(NO_GRAPH)
        return torch.zeros_like(leaf)
    return gradient.detach()


def _warn(reason: str) -> None:
    warnings.warn(
        f"the model passes no gradient to its images: {reason}. Attacks by gradients will find nothing, which is no "
        "robustness: use SquareSearch, or straight_through(model) where it only rounds.",
        NoGradientWarning,
        stacklevel=2,
    )
