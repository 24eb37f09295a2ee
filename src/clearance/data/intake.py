"""Other data as an ImageSet: tensors, Datasets, loaders, Hugging Face datasets, folders, archives."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, replace
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
)

from clearance._rng import cuda_in_use
from clearance._text import as_text
from clearance.data.folder import open_folder, open_pictures, picture_array
from clearance.data.image_set import (
    GREY,
    UNLABELLED,
    ImageSet,
    as_labels,
    as_pixels,
    check_images,
    check_pixels,
    classes_of,
    labelled,
    unchecked,
)
from clearance.data.npz import read_npz, read_npz_images
from clearance.data.preprocessing import Preprocessing, transformed
from clearance.data.stored import StoredImageSet, while_used, write_pixels
from clearance.data.subsets import evenly_spaced

_IMAGES = ("image", "img", "images", "pixel_values", "x")
_LABELS = ("label", "labels", "fine_label", "class", "target", "y")
_READ_TWICE = 16  # items; a flip of half of the images then shows in all but 1 of 65,536 sets
_OUTSIDE = 1e-3  # of [0, 1], that they may leave where pixels are no bytes
_LOOKED_AT = 256  # images
_ROUNDING = 0.02  # 255ths: what normalising and undoing it in float32 may leave


def open_images(
    data: Any,
    preprocessing: Preprocessing | None = None,
    *,
    cache: str | PathLike[str] | None = None,
    name: str | None = None,
    normalised: "tuple[Tensor, Tensor] | None" = None,
    like: ImageSet | None = None,
) -> ImageSet:
    """An ImageSet from any source of images with labels; if it is larger than 1 GiB, it stays on disk.

    - ``"folder:PATH"`` (see `open_folder`) or ``"npz:PATH"`` (see `read_npz`).
    - An ImageSet, which is returned unchanged.
    - A tuple (images, labels) of tensors or NumPy arrays. uint8 is divided by 255; floats must lie in [0, 1]. Images
      are (N, C, H, W) or grey (N, H, W), but uint8 NumPy arrays are (N, H, W, C) or (N, H, W).
    - A map-style Dataset whose items are (image, label) or a dictionary with an image and a label, such as a Hugging
      Face dataset, also behind ``with_transform`` (columns are found by its `features`, else by the usual names).
      Images are Pillow pictures (grey stays grey), arrays or tensors (the same rule without N).
    - A DataLoader, or another iterable of batches (images, labels), or of dictionaries with both: read once, in its
      order.

    Class names are those of the Dataset (`classes`, or the `features` of a Hugging Face dataset), also behind a
    Subset, as ``random_split`` gives them; else "0", "1", ... Random transforms of a Dataset are applied once, and a
    warning says so: leave them out, and train with ImageSet.augmented.

    Items are read one at a time into a temporary file, which is deleted with the set, or at once if all fit into
    memory.

    Args:
        data: One of these. Images must lie in [0, 1] or be bytes; normalisation belongs to the model.
        preprocessing: Resizing and centre crop for pictures of a folder or a Dataset.
        cache: Folder for the decoded pictures of a folder.
        name: Name of the set in tables.
        normalised: Mean and standard deviation that tensors, Datasets and loaders were normalised with, one value or
            (C, 1, 1): this is undone, and rounded to whole 255ths where all values are within 0.02 of them.
        like: The training images of which these are the test images: classes keep their numbers, and one may have no
            image here. Labels without names are then those of `like`, if it has none either.

    Raises:
        FileNotFoundError: If a folder or file does not exist.
        ValueError: If the data is none of these, or its images or labels are not valid for an ImageSet.

    >>> pairs = [(np.zeros((4, 4), dtype=np.uint8), label) for label in (0, 1, 1)]
    >>> open_images(torch.utils.data.DataLoader([(torch.zeros(1, 4, 4), 0), (torch.ones(1, 4, 4), 1)]))
    ImageSet('images', 2 images of shape (1, 4, 4), 2 classes)
    >>> open_images(pairs, name="mine")
    ImageSet('mine', 3 images of shape (1, 4, 4), 2 classes)
    """
    how = preprocessing or Preprocessing()
    if isinstance(data, str):
        found = _named(data, how, cache, like)
    elif isinstance(data, ImageSet):
        found = data
    elif isinstance(data, tuple) and len(data) == 2:
        found = _from_pair(
            data[0] if normalised is None else unnormalised(data[0], *normalised), data[1], like
        )
    else:
        # a DataLoader and random transforms draw from the caller's random numbers
        with torch.random.fork_rng(devices=cuda_in_use()):
            _warn_of_random_transforms(data)
            items, classes = _items(data)
            if normalised is not None:
                items = ((unnormalised(image, *normalised), label) for image, label in items)
            found = _read(items, how, classes, like)
    if normalised is not None:
        _check_was_normalised(found, *normalised)
    return found if name is None else found._derived(name=name)


def open_unlabelled(
    data: Any,
    like: ImageSet,
    preprocessing: Preprocessing | None = None,
    *,
    cache: str | PathLike[str] | None = None,
    normalised: "tuple[Tensor, Tensor] | None" = None,
) -> ImageSet:
    """Images without labels, of the same shape as those of `like`; labels in the data are ignored.

    - ``"folder:PATH"``: every picture in the folder and in the folders inside it, resized and cropped as in
      `preprocessing`. Without a `size` they are resized to the size of `like`, if that is square.
    - ``"npz:PATH"``: its `images` (or `x`).
    - A tensor or array of images, or anything that `open_images` takes.

    Grey images become three equal channels, or colour images grey, if `like` has that form.

    `like` has the images of the classes that the model knows, `preprocessing` is theirs; `cache` is a folder for
    decoded pictures, `normalised` is as in `open_images`.

    Raises:
        FileNotFoundError: If a folder or file does not exist, or holds no picture.
        ValueError: If the data is none of these, or its images differ in size from those of `like`.

    >>> from clearance.data import gaussian_images
    >>> open_unlabelled(torch.zeros(4, 3, 8, 8), like=gaussian_images())
    ImageSet('images', 4 images of shape (1, 8, 8), 1 classes)
    """
    if normalised is not None and isinstance(data, Tensor | np.ndarray):
        data = unnormalised(data, *normalised)
    found = _read_unlabelled(data, _like(like, preprocessing), cache, normalised)
    if normalised is not None:
        _check_was_normalised(found, *normalised)
    if found.shape[1:] != like.shape[1:]:
        got, expected = ("x".join(map(str, some.shape[:0:-1])) for some in (found, like))
        raise ValueError(
            f"unlabelled images must have the size of the test images, {expected}; got {got} in {found.name!r}. Resize "
            "them, or give them as a folder of pictures, which is resized like the test images."
        )
    return _with_channels(found, like.shape[0])


def unnormalised(images: Any, mean: Tensor, std: Tensor) -> Any:
    """Floats times `std` plus `mean`; pictures and bytes as they are.

    >>> image = torch.tensor([[[0.0, 51.0], [102.0, 255.0]]]) / 255
    >>> torch.equal(unnormalised((image - 0.5) / 0.25, torch.tensor(0.5), torch.tensor(0.25)), image)
    True
    """
    if isinstance(images, np.ndarray) and images.dtype.kind == "f":
        images = torch.from_numpy(images)
    if not isinstance(images, Tensor) or not images.is_floating_point():
        return images
    found = images.detach().cpu().float() * std.cpu() + mean.cpu()
    levels = (255 * found).round()
    if bool((255 * found - levels).abs().max() < _ROUNDING):
        return levels / 255
    inside = found.clamp(0, 1)  # what normalising and undoing it have rounded
    # not where a pixel is not a number, which is said later
    if bool((found - inside).abs().max() >= _OUTSIDE):
        undone = f"mean {_shown(mean)} and std {_shown(std)}"
        raise ValueError(
            f"`normalised=True` undoes {undone}, those of the model; then images must lie in [0, 1], and they lie in "
            f"{float(found.min()):.3g} to {float(found.max()):.3g}. Give wrap the mean and std that they were "
            "normalised with."
        )
    return inside


def _shown(values: Tensor) -> str:
    """Numbers for each channel, one if they are equal."""
    each = values.flatten().tolist()
    return ", ".join(f"{value:.4g}" for value in (each[:1] if len(set(each)) == 1 else each))


def _check_was_normalised(found: ImageSet, mean: Tensor, std: Tensor) -> None:
    """Raise ValueError if normalisation was undone of images that lay in [0, 1], judged by the first ones."""
    images, _ = found.batch(torch.arange(min(len(found), _LOOKED_AT)))
    undone = (images.cpu() - mean.cpu()) / std.cpu()
    low, high = (float(end) for end in undone.aminmax())
    if bool(mean.any()) and low > -_OUTSIDE and high < 1 + _OUTSIDE:
        raise ValueError(
            f"`normalised=True` is for images less the mean, divided by the std; got values from {max(low, 0):g} to "
            f"{min(high, 1):g}, as images have that were not normalised. Leave it out."
        )


def _from_pair(images: Any, labels: Any, like: ImageSet | None) -> ImageSet:
    if not isinstance(images, (Tensor, np.ndarray)):
        raise ValueError(  # noqa: TRY004 - bad input is a ValueError everywhere in this library
            f"`images` must be a tensor or a NumPy array; got {type(images).__name__}; stack them first."
        )
    return labelled(as_pixels(images), as_labels(labels), like=like)


def _check_array(image: Any, place: int) -> None:
    if not isinstance(image, (Tensor, np.ndarray)) or image.ndim not in (2, 3):
        shape = f" of shape {tuple(image.shape)}" if hasattr(image, "shape") else ""
        raise ValueError(
            "every image must be a Pillow picture, or a tensor or array with 2 or 3 axes; "
            f"got {type(image).__name__}{shape} at index {place}."
        )


def _named(
    data: str, how: Preprocessing, cache: str | PathLike[str] | None, like: ImageSet | None
) -> ImageSet:
    kind, _, path = data.partition(":")
    if kind == "folder" and path:
        return open_folder(Path(path).expanduser(), how, cache=cache, like=like)
    if kind == "npz" and path:
        found = read_npz(Path(path).expanduser(), like=like)
        if how.size is not None and found.shape[1:] != (how.size, how.size):
            raise ValueError(
                f"images of an .npz file are not resized and must have `size` {how.size}; got "
                f"{found.shape[2]}x{found.shape[1]} in {path}. Write images of that size, or, if the model takes those "
                f"of the file, give `size` {min(found.shape[1:])}."
            )
        return found
    raise ValueError(f"images must be given as folder:PATH or npz:PATH; got {data!r}.")


def _items(data: Any) -> tuple[Iterator[tuple[Any, Any]], tuple[str, ...]]:
    """Pairs (image, label), one at a time, and the class names, if any."""
    whole = isinstance(data, (Tensor, np.ndarray, Mapping))
    streamed = isinstance(data, IterableDataset)  # has a __getitem__ that raises
    if not (whole or streamed) and isinstance(data, Sized) and hasattr(data, "__getitem__"):
        columns = _columns_of(data)
        return (_pair_of(data[i], columns, i) for i in range(len(data))), columns.classes
    if not whole and hasattr(data, "__iter__"):
        data = _in_order(data) if isinstance(data, DataLoader) else data
        columns = _columns_of(getattr(data, "dataset", None))
        pairs = (_pair_of(batch, columns, i) for i, batch in enumerate(data))
        return chain.from_iterable(_unbatched(*pair) for pair in pairs), columns.classes
    raise ValueError(
        "`data` must be folder:PATH, npz:PATH, an ImageSet, a tuple (images, labels), a map-style Dataset or a "
        f"DataLoader; got {type(data).__name__}."
    )


def _in_order(loader: "DataLoader[Any]") -> "DataLoader[Any]":
    """A loader of the same images in the order of the dataset, all of them: findings name images by their place.

    Warns:
        UserWarning: If its sampler is none of torch's own that read each image once: it is then used as it is.
    """
    data, batches = loader.dataset, loader.batch_sampler
    sampler: Any = loader.sampler
    size, dropped = loader.batch_size, loader.drop_last
    if isinstance(data, IterableDataset) or batches is None:
        return loader
    if size is None and type(batches) is BatchSampler:  # it was given
        sampler, size, dropped = batches.sampler, batches.batch_size, batches.drop_last
    elif size is None:
        sampler = batches
    if isinstance(sampler, SequentialSampler) and not dropped:
        return loader
    if isinstance(sampler, SubsetRandomSampler):
        data = Subset(data, list(sampler.indices))
    elif not isinstance(sampler, SequentialSampler) and not _is_a_shuffle(sampler):
        warnings.warn(
            f"images are read as the loader's {type(sampler).__name__} draws them: their numbers are places in this "
            "order, and some may be missing or there twice. Give the dataset itself (loader.dataset), or a loader "
            "without a sampler.",
            UserWarning,
            stacklevel=2,
        )
        return loader
    return DataLoader(
        data,
        batch_size=size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
    )


def _is_a_shuffle(sampler: Any) -> bool:
    """Whether it draws every image once."""
    whole = isinstance(sampler, RandomSampler) and not sampler.replacement
    return whole and sampler.num_samples == len(sampler.data_source)


_COMPARED = 8  # labels of a dataset with those of the one within it


@dataclass(frozen=True)
class _Columns:
    """Names of the image column, the label column, the classes and all columns; empty if items are pairs."""

    image: str = ""
    label: str = ""
    classes: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


def _columns_of(data: Any) -> _Columns:
    """The columns of a dataset with `features`, as Hugging Face's have, and the names of its classes.

    A column whose feature is called Image holds images; one whose feature has `names` holds labels, and these are
    the classes. The usual names (`_IMAGES`, `_LABELS`) come first, those of labels whatever their feature is. Other
    datasets may have `classes`, and a part of a dataset (Subset) has those of the whole.

    Raises:
        ValueError: If there are features, but none for images or none for labels.

    >>> _columns_of([(0, 1)])
    _Columns(image='', label='', classes=(), known=())
    """
    features = getattr(data, "features", None)
    if isinstance(features, Mapping):
        images = [name for name, kind in features.items() if type(kind).__name__ == "Image"]
        labels = [name for name, kind in features.items() if getattr(kind, "names", None)]
        image = _chosen("images", _IMAGES, _usual_first(_IMAGES, images), list(features))
        usual = [name for name in _LABELS if name in features]
        label = _chosen(
            "labels", _LABELS, [name for name in usual if name in labels] + usual + labels, list(features)
        )
        return _Columns(image, label, _words(getattr(features[label], "names", None)), tuple(features))
    own, within = _words(getattr(data, "classes", None)), getattr(data, "dataset", None)
    if own:
        return _Columns(classes=_transformed_names(own, getattr(data, "target_transform", None)))
    if within is None:
        return _Columns()
    found = _columns_of(within)
    return (
        found if _keeps_labels(data, within, found) else _Columns(found.image, found.label, (), found.known)
    )


def _transformed_names(names: tuple[str, ...], transform: Any) -> tuple[str, ...]:
    """The names of the labels that a `target_transform` makes; none where two become one, or it cannot tell."""
    if transform is None:
        return names
    try:
        places = [int(transform(number)) for number in range(len(names))]
    except Exception:  # noqa: BLE001 - the user's function
        return ()
    if sorted(places) != list(range(len(names))):
        return ()
    return tuple(names[places.index(number)] for number in range(len(names)))


def _keeps_labels(data: Any, within: Any, columns: _Columns) -> bool:
    """Whether a dataset has the labels of the one within it, and so its names: one around it may renumber them."""
    rows = getattr(data, "indices", None)
    if isinstance(data, Subset) or not columns.classes:
        return True
    try:
        if rows is None and len(data) != len(within):
            return False
        for place in evenly_spaced(len(data), _COMPARED).tolist():
            own = int(_pair_of(data[place], columns, place)[1])
            if own != int(_pair_of(within[place if rows is None else rows[place]], columns, place)[1]):
                return False
    except Exception:  # noqa: BLE001 - the user's dataset
        return False
    return True


def _words(names: Any) -> tuple[str, ...]:
    """Names in their order, or by number in a dictionary; none of what has no order, such as a number or a set."""
    if isinstance(names, Mapping):
        numbers = set(range(len(names)))
        if set(names) == numbers:
            names = [names[number] for number in range(len(names))]
        elif set(names.values()) == numbers:
            names = sorted(names, key=lambda name: names[name])
    if isinstance(names, str | bytes | set | frozenset | Mapping | Tensor) or not isinstance(names, Iterable):
        return ()
    return tuple(map(as_text, names))


def _pair_of(item: Any, columns: _Columns, place: int) -> tuple[Any, Any]:
    """(image, label) of an item that is a pair or a dictionary.

    Raises:
        ValueError: If it is neither, or lacks one of the two.

    >>> _pair_of({"img": "pixels", "label": 3, "id": 7}, _Columns(), 0)
    ('pixels', 3)
    """
    if isinstance(item, (tuple, list)) and len(item) == 2:
        return item[0], item[1]
    if isinstance(item, Mapping):
        known = list(item)
        # what a transform or a collating function has added comes before the dataset's own columns
        added = [name for name in known if columns.known and name not in columns.known]
        image, label = (
            _chosen(what, usual, [*(name for name in usual if name in added), *({own} & {*known})], known)
            for what, usual, own in (
                ("images", _IMAGES, columns.image),
                ("labels", _LABELS, columns.label),
            )
        )
        return item[image], item[label]
    raise ValueError(
        "every item of `data` must be a pair (image, label), or a dictionary with both; got "
        f"{_kind(item)} at {place}."
    )


def _kind(item: Any) -> str:
    return f"{type(item).__name__} of {len(item)}" if isinstance(item, tuple | list) else type(item).__name__


def _usual_first(usual: tuple[str, ...], names: list[str]) -> list[str]:
    return [name for name in usual if name in names] + names


def _chosen(what: str, usual: tuple[str, ...], typed: list[str], known: list[str]) -> str:
    """The first of the columns of the right type, else a usual name among all."""
    found = typed + [name for name in usual if name in known]
    if not found:
        raise ValueError(
            f"`data` must have a column of {what}, called {', '.join(map(repr, usual))}; got "
            f"{', '.join(map(repr, known)) or 'none'}. Rename it."
        )
    return found[0]


def _unbatched(images: Any, labels: Any) -> Iterator[tuple[Any, Any]]:
    count = len(labels) if isinstance(labels, Sized) and getattr(labels, "shape", None) != () else None
    if isinstance(images, (list, tuple)) and len(images) == count:  # not stacked
        return zip(images, labels, strict=True)
    if not hasattr(images, "shape") or len(images.shape) != 4 or len(images) != count:
        shape = tuple(getattr(images, "shape", ()))
        with_labels = "one label" if count is None else f"{count} labels"
        raise ValueError(
            f"a loader must give batches (images, labels), images (B, C, H, W); got {type(images).__name__} of "
            f"shape {shape} with {with_labels}. For single images use torch.utils.data.DataLoader(data, 256)."
        )
    return zip(images, labels, strict=True)


def _read(
    items: Iterator[tuple[Any, Any]], how: Preprocessing, names: tuple[str, ...], like: ImageSet | None
) -> ImageSet:
    def kept(folder: Path) -> StoredImageSet:
        labels: list[Tensor] = []
        store = write_pixels(folder / "images.pixels", _pixels(items, how, labels))
        found = as_labels(torch.stack(labels))
        classes = classes_of(found, names, like)
        partial = like is not None and classes == like.classes
        return StoredImageSet(store, found, classes, partial=partial)

    return while_used(kept)


def _warn_of_random_transforms(data: Any) -> None:
    """Warn if some items of a Dataset, or of a loader's, are another image when they are read again."""
    items = data if hasattr(data, "__getitem__") else getattr(data, "dataset", None)
    if not (isinstance(items, Sized) and hasattr(items, "__getitem__")) or isinstance(items, Mapping):
        return
    columns = _columns_of(items)
    for place in np.linspace(0, len(items) - 1, min(_READ_TWICE, len(items))).astype(int).tolist():
        try:
            once, again = (np.asarray(_pair_of(items[place], columns, place)[0]) for _ in range(2))
        except Exception:  # noqa: BLE001 - what is wrong with it is said when all are read, if a loader reads it at all
            return
        if not np.array_equal(once, again, equal_nan=once.dtype.kind == "f"):
            warnings.warn(
                f"image {place} is another each time it is read: the Dataset has random transforms, which are applied "
                "once. Leave them out: errors are else those of changed images, and test images that are also training "
                "images are not found. To train with them: "
                "data.augmented(clearance.data.Augmentation(flip=True, pad=4)), or a function of (images, generator).",
                UserWarning,
                stacklevel=3,
            )
            return


def _pixels(
    items: Iterator[tuple[Any, Any]], how: Preprocessing, labels: list[Tensor]
) -> Iterator[NDArray[Any]]:
    grey = True  # pictures are grey if the first is
    for place, (image, label) in enumerate(items):
        labels.append(_label(label, place))
        pixels = _one(image, how, place, keep_grey=grey)
        grey = grey and len(pixels) == 1
        yield pixels


def _one(image: Any, how: Preprocessing, place: int, *, keep_grey: bool) -> NDArray[Any]:
    """One image as (C, H, W): bytes if it was given as bytes or as a picture, else floats in [0, 1]."""
    if isinstance(image, Image.Image):
        return transformed(Image.fromarray(picture_array(image, keep_grey=keep_grey)), how)
    _check_array(image, place)
    if isinstance(image, np.ndarray) and image.dtype == np.uint8:
        if image.ndim == 3 and image.shape[2] not in (1, 3):
            raise ValueError(
                f"images of uint8 in arrays must be (H, W) or (H, W, C) with 1 or 3 channels; got shape {image.shape} "
                f"at index {place}; use image.transpose(1, 2, 0) if the channels are first, and leave out a channel of "
                "transparency."
            )
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
            f"every label must be one whole number; got shape {tuple(found.shape)} at index {place}. One-hot labels: "
            "argmax; batches: give a DataLoader."
        )
    return found.reshape(()).cpu()


def _like(like: ImageSet, preprocessing: Preprocessing | None) -> Preprocessing:
    how = preprocessing or Preprocessing()
    _, height, width = like.shape
    return how if how.size is not None or height != width else replace(how, size=width)


def _read_unlabelled(
    data: Any,
    how: Preprocessing,
    cache: str | PathLike[str] | None,
    normalised: "tuple[Tensor, Tensor] | None",
) -> ImageSet:
    kind, _, path = data.partition(":") if isinstance(data, str) else ("", "", "")
    if kind == "folder" and path:
        return open_pictures(Path(path).expanduser(), how, cache=cache)
    if kind == "npz" and path:
        file = Path(path).expanduser()
        return _unlabelled(read_npz_images(file), file.stem)
    if isinstance(data, Tensor | np.ndarray):
        return _unlabelled(as_pixels(data), "images")
    return open_images(data, how, cache=cache, normalised=normalised).unlabelled()


def _unlabelled(images: Tensor, name: str) -> ImageSet:
    check_images(images)
    labels = torch.zeros(len(images), dtype=torch.int64)
    return unchecked(images=images, labels=labels, classes=(UNLABELLED,), name=name, augmentation=None)


def in_colour(images: ImageSet) -> ImageSet:
    """Grey images as three equal channels; others, and images that stay on disk, as they are.

    >>> from clearance.data import gaussian_images
    >>> in_colour(gaussian_images()).shape
    (3, 8, 8)
    """
    if images.shape[0] != 1 or isinstance(images, StoredImageSet):
        return images
    return images._derived(images=images.images.expand(-1, 3, -1, -1))


def _with_channels(found: ImageSet, channels: int) -> ImageSet:
    have = found.shape[0]
    if have == channels:
        return found
    if isinstance(found, StoredImageSet) or {have, channels} != {1, 3}:
        raise ValueError(
            f"unlabelled images must have the channels of the test images, {channels}; got {have} in {found.name!r}. "
            "Convert them first."
        )
    if channels == 3:
        return in_colour(found)
    grey = torch.tensor(GREY, device=found.images.device).view(1, 3, 1, 1)
    return found._derived(images=(found.images * grey).sum(dim=1, keepdim=True).clamp(0, 1))
