"""Anybody's data of any number as an ImageSet: Datasets, loaders, Hugging Face's tables, folders and archives."""

from collections.abc import Iterator, Mapping, Sized
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from clearance.data._pixels import as_labels, as_pixels, numbered_classes
from clearance.data._validity import check_pixels
from clearance.data.columns import columns_of, pair_of
from clearance.data.conversion import as_image_set
from clearance.data.folder import open_folder, picture_array
from clearance.data.image_set import ImageSet
from clearance.data.npz import read_npz
from clearance.data.pixel_store import write_pixels
from clearance.data.preprocessing import Preprocessing, transformed
from clearance.data.stored import StoredImageSet, while_used


def open_images(
    data: Any,
    preprocessing: Preprocessing | None = None,
    *,
    cache: str | PathLike[str] | None = None,
    name: str | None = None,
) -> ImageSet:
    """An ImageSet from whatever holds images with labels; where it is larger than memory, it stays on disk.

    - ``"folder:PATH"`` (see `open_folder`) or ``"npz:PATH"`` (see `read_npz`).
    - An ImageSet, or a tuple (images, labels): see `as_image_set`.
    - Anything with a length and items: (image, label), or a dictionary with an image and a label, such as a Hugging
      Face dataset's (found by its `features`, else by the names in `columns`). Images are Pillow pictures, arrays
      or tensors as `as_image_set` takes them.
    - A DataLoader, or anything else that gives batches (images, labels): read once, in the order that it gives.

    Items are read one at a time and kept in a file, that goes with this process, unless all fit into memory.

    Args:
        data: One of these. Images must lie in [0, 1] or be bytes: leave normalisation to the model.
        preprocessing: What is done to pictures of a folder or a Dataset: resizing and the centre crop.
        cache: Folder for the decoded pictures of a folder.
        name: What tables call the set.

    Raises:
        FileNotFoundError: If a folder or file is not there.
        ValueError: If the data is none of these, or holds what an ImageSet does not take.

    >>> pairs = [(np.zeros((4, 4), dtype=np.uint8), label) for label in (0, 1, 1)]
    >>> open_images(torch.utils.data.DataLoader([(torch.zeros(1, 4, 4), 0), (torch.ones(1, 4, 4), 1)]))
    ImageSet('images', 2 images of shape (1, 4, 4), 2 classes)
    >>> open_images(pairs, name="mine")
    ImageSet('mine', 3 images of shape (1, 4, 4), 2 classes)
    """
    how = preprocessing or Preprocessing()
    if isinstance(data, str):
        found = _named(data, how, cache)
    elif isinstance(data, ImageSet) or (isinstance(data, tuple) and len(data) == 2):
        found = as_image_set(data)
    else:
        items, classes = _items(data)
        found = _read(items, how, classes)
    return found if name is None else found._derived(name=name)


def _named(data: str, how: Preprocessing, cache: str | PathLike[str] | None) -> ImageSet:
    kind, _, path = data.partition(":")
    if kind == "folder" and path:
        return open_folder(Path(path).expanduser(), how, cache=cache)
    if kind == "npz" and path:
        found = read_npz(Path(path).expanduser())
        if how.image_size is not None and found.shape[1:] != (how.image_size, how.image_size):
            raise ValueError(
                f"arrays are taken as they are; {path} holds images of {found.shape[2]}x{found.shape[1]}, not of "
                f"`image_size` {how.image_size}. Leave that out, or write the archive at that size."
            )
        return found
    raise ValueError(f"images must be given as folder:PATH or npz:PATH; got {data!r}.")


def _items(data: Any) -> tuple[Iterator[tuple[Any, Any]], tuple[str, ...]]:
    """Pairs (image, label), one at a time, and the names of the classes where there are some."""
    indexed = isinstance(data, Sized) and hasattr(data, "__getitem__")
    if indexed and not isinstance(data, (Tensor, np.ndarray, Mapping)):
        columns = columns_of(data)
        classes = columns.classes or tuple(str(each) for each in getattr(data, "classes", ()))
        return (pair_of(data[i], columns, i) for i in range(len(data))), classes
    if hasattr(data, "__iter__") and not isinstance(data, (Tensor, np.ndarray, Mapping)):
        inner = getattr(data, "dataset", None)
        columns = columns_of(inner)
        classes = columns.classes or tuple(str(each) for each in getattr(inner, "classes", ()))
        pairs = (pair_of(batch, columns, i) for i, batch in enumerate(data))
        return chain.from_iterable(_unbatched(*pair) for pair in pairs), classes
    raise ValueError(
        "`data` must be folder:PATH, npz:PATH, an ImageSet, a tuple (images, labels), a map-style Dataset or a "
        f"DataLoader; got {type(data).__name__}."
    )


def _unbatched(images: Any, labels: Any) -> Iterator[tuple[Any, Any]]:
    count = len(labels) if isinstance(labels, Sized) and getattr(labels, "shape", None) != () else None
    if not hasattr(images, "shape") or len(images.shape) != 4 or len(images) != count:
        shape = tuple(getattr(images, "shape", ()))
        with_labels = "one label" if count is None else f"{count} labels"
        raise ValueError(
            f"a loader must give batches (images, labels), images (B, C, H, W); got {type(images).__name__} of "
            f"shape {shape} with {with_labels}. Of single images make batches: torch.utils.data.DataLoader(data, 256)."
        )
    return zip(images, labels, strict=True)


def _read(items: Iterator[tuple[Any, Any]], how: Preprocessing, classes: tuple[str, ...]) -> ImageSet:
    def kept(folder: Path) -> StoredImageSet:
        labels: list[Tensor] = []
        store = write_pixels(folder / "images.pixels", _pixels(items, how, labels))
        found = as_labels(torch.stack(labels))
        return StoredImageSet(store, found, classes or numbered_classes(found))

    return while_used(kept)


def _pixels(items: Iterator[tuple[Any, Any]], how: Preprocessing, labels: list[Tensor]) -> Iterator[NDArray]:
    for place, (image, label) in enumerate(items):
        labels.append(_label(label, place))
        yield _one(image, how, place)


def _one(image: Any, how: Preprocessing, place: int) -> NDArray:
    """One image as (C, H, W): bytes where it came as bytes or as a picture, floats in [0, 1] where as floats."""
    if isinstance(image, Image.Image):
        return transformed(Image.fromarray(picture_array(image, keep_grey=True)), how)
    if not isinstance(image, (Tensor, np.ndarray)) or image.ndim not in (2, 3):
        shape = f" of shape {tuple(image.shape)}" if hasattr(image, "shape") else ""
        raise ValueError(
            "every image must be a Pillow picture, or a tensor or array with 2 or 3 axes; "
            f"got {type(image).__name__}{shape} at index {place}."
        )
    if isinstance(image, np.ndarray) and image.dtype == np.uint8:
        return transformed(Image.fromarray(image.squeeze(2) if image.shape[2:] == (1,) else image), how)
    pixels = as_pixels(image[None])
    if image.dtype == torch.uint8:
        return np.asarray(pixels[0].mul(255).round().to(torch.uint8))
    check_pixels(pixels)
    return np.asarray(pixels[0].cpu())


def _label(label: Any, place: int) -> Tensor:
    found = as_labels(label)
    if found.numel() != 1:
        raise ValueError(
            f"every label must be one whole number; got shape {tuple(found.shape)} at index {place}."
        )
    return found.reshape(()).cpu()
