"""Images of things that a model was never meant to know, in the form in which it gets its own: no labels needed."""

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearance.data._pixels import as_pixels
from clearance.data._validity import check_images
from clearance.data.folder import open_pictures
from clearance.data.image_set import UNLABELLED, ImageSet
from clearance.data.intake import open_images
from clearance.data.npz import read_npz_images
from clearance.data.preprocessing import Preprocessing
from clearance.data.stored import StoredImageSet, unchecked

_GREY = (0.299, 0.587, 0.114)  # of red, green and blue, as Pillow's mode "L"


def open_unlabelled(
    data: Any,
    like: ImageSet,
    preprocessing: Preprocessing | None = None,
    *,
    cache: str | PathLike[str] | None = None,
) -> ImageSet:
    """Images alone, as `like` has them: labels are passed over where there are some.

    - ``"folder:PATH"``: every picture in the folder and in the folders inside it, resized and cropped as
      `preprocessing` says. Without an `image_size` they are brought to the size of `like`, where that is square.
    - ``"npz:PATH"``: its `images` (or `x`).
    - A tensor or array of images, or whatever `open_images` takes.

    Grey becomes three equal channels, and colour grey, where `like` is so.

    Args:
        data: One of these.
        like: The images that the model knows.
        preprocessing: That of `like`.
        cache: Folder for decoded pictures.

    Raises:
        FileNotFoundError: If a folder or file is not there, or holds no picture.
        ValueError: If the data is none of these, or its images have another size than those of `like`.

    >>> from clearance.data import gaussian_images
    >>> open_unlabelled(torch.zeros(4, 3, 8, 8), like=gaussian_images())
    ImageSet('images', 4 images of shape (1, 8, 8), 1 classes)
    """
    found = _read(data, _like(like, preprocessing), cache)
    if found.shape[1:] != like.shape[1:]:
        got, expected = ("x".join(map(str, some.shape[:0:-1])) for some in (found, like))
        raise ValueError(
            f"unknown images must be of the size of the test images, {expected}; got {got} in {found.name!r}. Resize "
            "them, or give them as a folder of pictures, which is resized as the test images are."
        )
    return _with_channels(found, like.shape[0])


def _like(like: ImageSet, preprocessing: Preprocessing | None) -> Preprocessing:
    how = preprocessing or Preprocessing()
    _, height, width = like.shape
    return how if how.image_size is not None or height != width else replace(how, image_size=width)


def _read(data: Any, how: Preprocessing, cache: str | PathLike[str] | None) -> ImageSet:
    kind, _, path = data.partition(":") if isinstance(data, str) else ("", "", "")
    if kind == "folder" and path:
        return open_pictures(Path(path).expanduser(), how, cache=cache)
    if kind == "npz" and path:
        file = Path(path).expanduser()
        return _unlabelled(read_npz_images(file), file.stem)
    if isinstance(data, Tensor | np.ndarray):
        return _unlabelled(as_pixels(data), "images")
    return open_images(data, how, cache=cache).unlabelled()


def _unlabelled(images: Tensor, name: str) -> ImageSet:
    check_images(images)
    labels = torch.zeros(len(images), dtype=torch.int64)
    return unchecked(images=images, labels=labels, classes=(UNLABELLED,), name=name, augmentation=None)


def _with_channels(found: ImageSet, channels: int) -> ImageSet:
    have = found.shape[0]
    if have == channels:
        return found
    if isinstance(found, StoredImageSet) or {have, channels} != {1, 3}:
        raise ValueError(
            f"unknown images must have as many channels as the test images, {channels}; got {have} in {found.name!r}."
        )
    if channels == 3:
        return found._derived(images=found.images.expand(-1, 3, -1, -1))
    grey = torch.tensor(_GREY, device=found.images.device).view(1, 3, 1, 1)
    return found._derived(images=(found.images * grey).sum(dim=1, keepdim=True).clamp(0, 1))
