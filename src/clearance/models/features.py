"""Features and predictions of a whole set of images, in evaluation mode."""

import math
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from clearance.data.image_set import ImageSet
from clearance.models._running import device_of, evaluating
from clearance.models.classifier import Classifier
from clearance.tensors import head_logits

_LARGEST_BATCH = 128  # with more images, activations of small networks do not fit into a CPU's cache
_LARGEST_PIXELS = 64 * 3 * 224 * 224  # in a batch: activations of deep networks take many times their memory
_LARGEST_PIXELS_CPU = (
    3 * 3 * 224 * 224
)  # beyond, they leave the cache, and the system hands out memory anew each time


def batch_size_for(model: Classifier, data: ImageSet) -> int:
    """The batch size for evaluation: 128 small images; of 3x224x224 64, and 3 on a CPU; at least one.

    A model without parameters may compute anywhere, as a function that asks a service.

    >>> from clearance.data import gaussian_images
    >>> batch_size_for(Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 3)), gaussian_images())
    128
    """
    here = next(model.parameters(), None) is not None and device_of(model).type == "cpu"
    pixels = _LARGEST_PIXELS_CPU if here else _LARGEST_PIXELS
    return min(_LARGEST_BATCH, max(1, pixels // math.prod(data.shape)))


class ModelError(ValueError):
    """The model raised an error: what, where, and on which images."""


def answered(call: Callable[[Tensor], Tensor], images: Tensor, data: ImageSet, first: int) -> Tensor:
    """What a model gives a batch.

    `call` is the model, or its features; the first image of the batch has the place `first` in `data`.

    Raises:
        ModelError: If the model raises.
    """
    try:
        return call(images)
    except Exception as error:
        raise ModelError(_complaint(call, images, data, first, error)) from error


def _complaint(
    call: Callable[[Tensor], Tensor], images: Tensor, data: ImageSet, first: int, error: Exception
) -> str:
    """The sentence: the first image on which it also raises alone, or the whole batch."""
    which = f"images {first} to {first + len(images) - 1} of {data.name!r} together"
    for place in range(len(images) if not isinstance(error, torch.OutOfMemoryError) else 0):
        try:
            call(images[place : place + 1])
        except Exception as alone:  # noqa: BLE001 - the model may be anybody's
            which, error = f"image {first + place} of {data.name!r}", alone
            break
    frame = traceback.extract_tb(error.__traceback__)[-1]
    said = str(error).strip().partition("\n")[0]
    return (
        f"the model must give an answer to every image; on {which} (counted from 0) it raised "
        f"{type(error).__name__}: {said} ({Path(frame.filename).name}, line {frame.lineno}). Correct the model, or "
        "leave the image out."
    )


def extract_features(
    model: Classifier,
    data: ImageSet,
    on_progress: Callable[[int, int], object] | None = None,
) -> Tensor:
    """Features of every image, shape (N, D), in evaluation mode and without gradient.

    Args:
        model: In any mode; evaluated in evaluation mode.
        data: The images, on any device.
        on_progress: Called after each batch with how many images of how many are done.

    >>> from torch import nn
    >>> from clearance.data import ImageSet
    >>> images = ImageSet(torch.rand(4, 1, 2, 2), torch.tensor([0, 1, 0, 1]), ("a", "b"))
    >>> extract_features(Classifier(nn.Flatten(), nn.Linear(4, 2)), images).shape
    torch.Size([4, 4])
    """
    device = device_of(model)
    features: Tensor | None = None
    at = 0
    with evaluating(model):
        for images, _ in data.batches(batch_size_for(model, data)):
            part = answered(model.features, images.to(device), data, at)
            if features is None:
                # filled in place: joining the parts at the end would hold all features twice
                features = part.new_empty((len(data), *part.shape[1:]))
            features[at : at + len(part)] = part
            at += len(part)
            if on_progress is not None:
                on_progress(at, len(data))
    assert features is not None  # no set is empty
    return features


def predictions(model: Classifier, data: ImageSet) -> Tensor:
    """The class that the model's own head gives each image, shape (N,); -1 where logits are not finite.

    Args:
        model: In any mode; evaluated in evaluation mode.
        data: The images, on any device.

    >>> from clearance.data import gaussian_images
    >>> linear = Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    >>> predictions(linear, gaussian_images(per_class=2)).shape
    torch.Size([6])
    """
    return named_classes(all_logits(model, data))


def all_logits(model: Classifier, data: ImageSet) -> Tensor:
    """The logits of every image, (N, K), in evaluation mode and without gradient; see `predictions`.

    >>> from clearance.data import gaussian_images
    >>> all_logits(Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 3)), gaussian_images(per_class=2)).shape
    torch.Size([6, 3])
    """
    device = device_of(model)
    batches = data.batches(batch_size_for(model, data))
    with evaluating(model):
        return _answers(model, (images.to(device) for images, _ in batches), data)


def logits_from(model: Classifier, features: Tensor, data: ImageSet) -> Tensor:
    """`all_logits` from stored features, to the bit, in the same batches.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> model, data = Classifier(nn.Flatten(), nn.Linear(64, 3)), gaussian_images()
    >>> torch.equal(logits_from(model, extract_features(model, data), data), all_logits(model, data))
    True
    """
    with evaluating(model):
        return _answers(partial(head_logits, model.head), features.split(batch_size_for(model, data)), data)


def named_classes(logits: Tensor) -> Tensor:
    """The class of the largest logit, (N,); -1 where logits are not finite.

    >>> named_classes(torch.tensor([[0.0, 1.0], [2.0, torch.nan]]))
    tensor([ 1, -1])
    """
    return torch.where(logits.isfinite().all(dim=1), logits.argmax(dim=1), -1)


def _answers(call: Callable[[Tensor], Tensor], parts: Iterable[Tensor], data: ImageSet) -> Tensor:
    found: list[Tensor] = []
    for part in parts:
        found.append(answered(call, part, data, sum(map(len, found))))
    return torch.cat(found)
