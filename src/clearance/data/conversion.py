"""Anybody's data as an ImageSet."""

from collections.abc import Mapping, Sized
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from clearance.data._pixels import as_labels, as_pixels, numbered_classes
from clearance.data.folder import picture_array
from clearance.data.image_set import ImageSet


def as_image_set(data: Any) -> ImageSet:
    """An ImageSet from an ImageSet, a pair (images, labels), or a map-style Dataset of such pairs.

    - An ImageSet is returned as it is.
    - A tuple (images, labels) of tensors or NumPy arrays. uint8 is divided by 255; floats must lie in [0, 1].
      Images are (N, C, H, W) or grey (N, H, W), but uint8 NumPy arrays are (N, H, W, C) or (N, H, W).
    - Anything with ``len(data)`` and ``data[i]`` giving (image, label), the image a tensor, an array (same
      rule without N) or a Pillow picture (grey stays grey). It is read once, in order; random transforms of
      the Dataset are therefore frozen, so leave them out and use ImageSet.augmented.

    Class names come from `data.classes` where there is one, else they are "0", "1", ...

    Raises:
        ValueError: If the data is none of these, images differ in size, or the pixels or labels are not what
            an ImageSet takes.

    >>> as_image_set((np.zeros((4, 8, 8), dtype=np.uint8), [0, 1, 0, 1]))
    ImageSet('images', 4 images of shape (1, 8, 8), 2 classes)
    """
    if isinstance(data, ImageSet):
        return data
    if isinstance(data, tuple) and len(data) == 2:
        return _from_pair(*data)
    indexed = isinstance(data, Sized) and hasattr(data, "__getitem__")
    if indexed and not isinstance(data, (Tensor, np.ndarray, str, Mapping)):
        return _from_items(data)
    raise ValueError(
        "`data` must be an ImageSet, a tuple (images, labels) or a map-style Dataset with a length; "
        f"got {type(data).__name__}; gather a stream into tensors first."
    )


def _from_pair(images: Any, labels: Any) -> ImageSet:
    if not isinstance(images, (Tensor, np.ndarray)):
        raise ValueError(  # noqa: TRY004 - bad input is a ValueError everywhere in this library
            f"`images` must be a tensor or a NumPy array; got {type(images).__name__}; stack them first."
        )
    found = as_labels(labels)
    return ImageSet(as_pixels(images), found, numbered_classes(found))


def _from_items(data: Any) -> ImageSet:
    if len(data) == 0:
        raise ValueError("`data` must hold at least one image; got a Dataset of length 0.")
    images: list[Tensor] = []
    labels: list[Tensor] = []
    for i in range(len(data)):
        image, label = _item(data, i)
        if images and image.shape != images[0].shape:
            raise ValueError(
                f"all images must have one shape; got {tuple(images[0].shape)} at index 0 and "
                f"{tuple(image.shape)} at index {i}; resize them in the Dataset."
            )
        images.append(image)
        labels.append(label)
    found = as_labels(torch.stack(labels))
    named = tuple(str(name) for name in getattr(data, "classes", ()))
    return ImageSet(torch.stack(images), found, named or numbered_classes(found))


def _item(data: Any, i: int) -> tuple[Tensor, Tensor]:
    item = data[i]
    if not (isinstance(item, (tuple, list)) and len(item) == 2):
        raise ValueError(
            f"every item of `data` must be a pair (image, label); got {type(item).__name__} at {i}."
        )
    image, label = item
    if isinstance(image, Image.Image):
        image = picture_array(image, keep_grey=True)
    if not isinstance(image, (Tensor, np.ndarray)) or image.ndim not in (2, 3):
        shape = f" of shape {tuple(image.shape)}" if hasattr(image, "shape") else ""
        raise ValueError(
            "every image must be a Pillow picture, or a tensor or array with 2 or 3 axes; "
            f"got {type(image).__name__}{shape} at index {i}."
        )
    return as_pixels(image[None])[0], _one_label(label, i)


def _one_label(label: Any, i: int) -> Tensor:
    found = as_labels(label)
    if found.numel() != 1:
        raise ValueError(
            f"every label must be one whole number; got shape {tuple(found.shape)} at index {i}."
        )
    return found.reshape(()).cpu()
