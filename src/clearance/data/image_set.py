"""A labelled set of images in memory, and the checks that every set passes."""

import hashlib
import json
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from clearance._checks import check_count, check_fraction, check_pixel_range
from clearance._rng import generator as named_generator
from clearance.data.augmentation import Augmentation
from clearance.data.stratified import draw_quota, draw_stratified

UNLABELLED = "unlabelled"  # the single class of images without labels
GREY = (0.299, 0.587, 0.114)  # of red, green and blue, as in Pillow's mode "L" and in JPEG
CHUNK = 2**22  # bytes of pixels that are hashed at once: few, because freed memory of larger pieces is kept
MORE_IMAGES = (
    "Add images of it. Do not renumber the labels of a trained network: its outputs keep their numbers. Its test "
    "images may lack a class: give them to clearance.audit as a file or a folder, or as (images, labels) if train has "
    "no names of classes either."
)
_KEPT: "WeakKeyDictionary[ImageSet, dict[str, list[bytes]]]" = WeakKeyDictionary()


@dataclass(frozen=True)
class PictureFiles:
    """The files that images were read from.

    Args:
        names: Of each image, relative to the folder that was opened, ``"cats/1.png"``.
        sizes: Width and height of each picture in its file, before resizing and cropping.
        unreadable: Names of the files that could not be read and are not in the set, each with the reason.
    """

    names: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]
    unreadable: tuple[tuple[str, str], ...] = ()

    def chosen(self, rows: Tensor) -> "PictureFiles":
        """Those of the images at `rows`; the unreadable ones stay."""
        places = rows.tolist()
        return PictureFiles(
            tuple(self.names[i] for i in places), tuple(self.sizes[i] for i in places), self.unreadable
        )


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet(Dataset[tuple[Tensor, int]]):
    """Images in [0, 1] with their labels, and the sets that can be drawn from them.

    The constructor checks everything; open_images converts other data first. A set never changes: every
    method returns a new one, which shares the images if it holds all of them and is not checked again.
    Subsets keep `classes`, including classes without images. Float pixels are shared with the tensor or array they
    came from: do not change that afterwards.

    Args:
        images: The pixels, without normalisation, which belongs to the model.
        labels: Class of each image, within ``range(len(classes))``; every class occurs.
        classes: Names of the classes, at least two.
        name: Name of the set in tables.
        augmentation: Random changes for training; applied only by `batch`, and only if it gets a generator.
        files: The files of the images, where they were read from a folder.
        numbers: Of images without files, their numbers in the set that a split divided.

    Shapes:
        images (N, C, H, W) float32; labels (N,) int64, on the same device.

    Raises:
        ValueError: If images, labels or classes are not as described.

    >>> images, labels = torch.rand(6, 1, 4, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    >>> data = ImageSet(images, labels, ("ape", "bee", "cat"))
    >>> data
    ImageSet('images', 6 images of shape (1, 4, 4), 3 classes)
    >>> len(data.per_class(1, seed=0))
    3
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    name: str = "images"
    augmentation: Augmentation | None = None
    files: PictureFiles | None = None
    numbers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_images(self.images)
        check_classes(self.classes)
        check_labels(self.labels, self.images, self.classes)
        check_every_class_present(self.labels, self.classes)

    def __repr__(self) -> str:
        return (
            f"ImageSet({self.name!r}, {len(self)} images of shape {self.shape}, {self.class_count} classes)"
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.images[i], int(self.labels[i])

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    @property
    def class_count(self) -> int:
        """The number of class names, with or without images."""
        return len(self.classes)

    def name_of(self, i: int) -> str:
        """The file's name of one image, or its number where it was not read from a file of its own.

        After `--split` it is the number in the set that was divided.

        >>> from clearance.data import gaussian_images
        >>> gaussian_images().name_of(3)
        'image 3'
        """
        if self.files is not None:
            return self.files.names[i]
        return f"image {i if self.numbers is None else self.numbers[i]}"

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Images and labels at `indices`; augmented if the set has an augmentation and a generator is given.

        Shapes:
            indices (B,) int64; returns (B, C, H, W) and (B,).

        >>> from clearance.data import gaussian_images
        >>> images, labels = gaussian_images().batch(torch.tensor([0, 0, 1]))
        >>> torch.equal(images[0], images[1])
        True
        """
        indices = indices.to(self.labels.device)
        images, labels = self._read(indices), self.labels[indices]
        if self.augmentation is not None and generator is not None:
            images = self.augmentation(images, generator)
        return images, labels

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All images and labels in order, `size` at a time; also for sets on disk.

        >>> from clearance.data import gaussian_images
        >>> [len(images) for images, _ in gaussian_images(class_count=2, per_class=5).batches(4)]
        [4, 4, 2]
        """
        for start in range(0, len(self), size):
            chosen = slice(start, start + size)
            yield self._read(chosen), self.labels[chosen]

    def _read(self, chosen: Tensor | slice) -> Tensor:
        return self.images[chosen]

    def to(self, device: torch.device | str) -> "ImageSet":
        """The same set on another device."""
        return self._derived(images=self.images.to(device), labels=self.labels.to(device))

    def subset(self, indices: Tensor, name: str | None = None) -> "ImageSet":
        """The images at `indices`, in that order; the pixels are copied.

        Args:
            indices: Whole numbers from 0 to N - 1, at least one; repeats are kept.
            name: Name of the new set; by default the same name.

        Raises:
            ValueError: If `indices` is empty, not whole numbers in one axis, or outside the set.

        >>> from clearance.data import gaussian_images
        >>> len(gaussian_images(class_count=2).subset(torch.arange(5)))
        5
        """
        indices = torch.as_tensor(indices, device=self.images.device)
        check_indices(indices, len(self))
        return self._derived(
            images=self.images[indices],
            labels=self.labels[indices],
            name=self.name if name is None else name,
            files=None if self.files is None else self.files.chosen(indices),
            numbers=None if self.numbers is None else tuple(self.numbers[i] for i in indices.tolist()),
        )

    def split(self, fraction: float, seed: int) -> tuple["ImageSet", "ImageSet"]:
        """Split the set in two, (rest, part), both stratified by class.

        Args:
            fraction: Share of images in `part`, in (0, 1): exactly round(fraction * N) of them.
            seed: Equal seeds give equal splits.

        Raises:
            ValueError: If `fraction` is outside (0, 1), or a class would be missing on one side.

        >>> from clearance.data import gaussian_images
        >>> rest, part = gaussian_images(class_count=2, per_class=10).split(0.25, seed=0)
        >>> len(rest), len(part)
        (15, 5)
        """
        check_fraction("fraction", fraction, open_below=True, open_above=True)
        part = self._stratified(fraction, seed)
        return self._kept(~part), self._kept(part)

    def per_class(self, count: int, seed: int) -> "ImageSet":
        """Exactly `count` images of every class, drawn without replacement, in the order of this set.

        Raises:
            ValueError: If a class has fewer.

        >>> from clearance.data import gaussian_images
        >>> torch.bincount(gaussian_images(class_count=3).per_class(4, seed=0).labels)
        tensor([4, 4, 4])
        """
        check_count("count", count)
        labels, stream = self.labels.cpu(), named_generator(seed, "data", "per_class")
        sizes = torch.bincount(labels, minlength=self.class_count)
        if int(sizes.min()) < count:
            scarce = int(sizes.argmin())
            raise ValueError(
                f"`count` must not exceed the images of the smallest class; got {count} but class "
                f"{self.classes[scarce]!r} has {int(sizes[scarce])}; ask for fewer."
            )
        return self._kept(draw_quota(labels, torch.full_like(sizes, count), stream))

    def fraction(self, fraction: float, seed: int) -> "ImageSet":
        """A stratified share of the images: the `part` of `split`.

        Args:
            fraction: In (0, 1]: exactly round(fraction * N) images.
            seed: Equal seeds give equal sets.

        Raises:
            ValueError: If `fraction` is outside (0, 1], or too small to keep every class.

        >>> from clearance.data import gaussian_images
        >>> len(gaussian_images(class_count=2, per_class=10).fraction(0.5, seed=0))
        10
        """
        check_fraction("fraction", fraction, open_below=True)
        return self._kept(self._stratified(fraction, seed))

    def with_label_noise(self, rate: float, seed: int) -> "ImageSet":
        """The same images with exactly round(rate * N) labels replaced by another class, uniformly.

        `rate` is the fraction of wrong labels; where papers draw the new label from all K classes, theirs is
        ``rate * K / (K - 1)``. For one seed the labels replaced at a lower rate are also replaced at a higher one, by
        the same class.

        Raises:
            ValueError: If `rate` is outside [0, 1], or there is one class only.

        >>> from clearance.data import gaussian_images
        >>> data = gaussian_images(class_count=2, per_class=10)
        >>> int((data.with_label_noise(0.3, seed=0).labels != data.labels).sum())
        6
        """
        stream = named_generator(seed, "data", "label_noise")
        check_fraction("rate", rate)
        check_count("class_count", self.class_count, minimum=2)
        labels = self.labels.cpu()
        hit = torch.randperm(len(labels), generator=stream)[: round(rate * len(labels))]
        # drawn for all labels, so that the shifts are the same for any rate
        shift = torch.randint(1, self.class_count, (len(labels),), generator=stream)[: len(hit)]
        noisy = labels.clone()
        noisy[hit] = (labels[hit] + shift) % self.class_count
        return self._derived(labels=noisy.to(self.labels.device))

    def augmented(self, augmentation: Augmentation | None) -> "ImageSet":
        """The same set with another augmentation, or none."""
        return self._derived(augmentation=augmentation)

    def unlabelled(self) -> "ImageSet":
        """The same images without their labels, all of one class, ``"unlabelled"``.

        >>> from clearance.data import gaussian_images
        >>> gaussian_images(class_count=3, per_class=2).unlabelled()
        ImageSet('gaussian', 6 images of shape (1, 8, 8), 1 classes)
        """
        return self._derived(labels=torch.zeros_like(self.labels), classes=(UNLABELLED,))

    def in_memory(self) -> "ImageSet":
        """The set with all images in memory; for a set on disk, a copy."""
        return self

    def digest(self) -> str:
        """SHA-256 of images, labels and class names (not of name, device, augmentation), in hexadecimal.

        >>> from clearance.data import gaussian_images
        >>> data = gaussian_images()
        >>> data.digest() == data.augmented(Augmentation(flip=True)).digest()
        True
        """
        return digest_of([self.images], self.labels, self.shape, self.classes)

    def _derived(self, **changes: Any) -> "ImageSet":
        """A set with some parts of this one replaced; its pixels were already checked."""
        return unchecked(**{each.name: getattr(self, each.name) for each in fields(self)} | changes)

    def _kept(self, mask: Tensor) -> "ImageSet":
        check_no_class_lost(self.labels.cpu(), mask, self.classes)
        return self.subset(mask.nonzero().flatten())

    def _stratified(self, fraction: float, seed: int) -> Tensor:
        stream = named_generator(seed, "data", "stratified")
        return draw_stratified(self.labels.cpu(), self.class_count, round(fraction * len(self)), stream)


def labelled(
    images: Tensor,
    labels: Tensor,
    names: tuple[str, ...] = (),
    name: str = "images",
    like: ImageSet | None = None,
) -> ImageSet:
    """Images with labels as a set.

    Args:
        images: As of ImageSet.
        labels: As of ImageSet.
        names: The names of the classes, if known.
        name: Name of the set.
        like: A set whose classes these are; some may then have no image here.

    Raises:
        ValueError: If the parts are not valid for an ImageSet.

    >>> from clearance.data import gaussian_images
    >>> labelled(torch.zeros(2, 1, 8, 8), torch.tensor([0, 2]), like=gaussian_images(class_count=4))
    ImageSet('images', 2 images of shape (1, 8, 8), 4 classes)
    """
    if labels.ndim == 1:
        check_equally_long(labels, images)
    classes = classes_of(labels, names, like)
    if like is None or classes != like.classes:
        return ImageSet(images, labels, classes, name=name)
    check_images(images)
    check_labels(labels, images, classes)
    return unchecked(images=images, labels=labels, classes=classes, name=name)


def classes_of(labels: Tensor, names: tuple[str, ...], like: ImageSet | None) -> tuple[str, ...]:
    """The given names, else numbers: those of `like`, if its classes are numbered.

    >>> from clearance.data import gaussian_images
    >>> classes_of(torch.tensor([2, 1]), (), gaussian_images(class_count=4))
    ('0', '1', '2', '3')
    """
    if names:
        return names
    if like is not None and like.classes == tuple(map(str, range(like.class_count))):
        return like.classes
    return numbered_classes(labels)


def unchecked(**parts: Any) -> ImageSet:
    """An ImageSet without the constructor's checks, for pixels that were checked before or were read as bytes."""
    made = object.__new__(ImageSet)
    for name, value in parts.items():
        object.__setattr__(made, name, value)
    return made


def as_pixels(images: Tensor | NDArray[Any]) -> Tensor:
    """Images of any usual layout as (N, C, H, W) float32; uint8 is divided by 255, floats keep their values.

    Three axes are (N, H, W). Four axes are (N, C, H, W), except in uint8 NumPy arrays, which are (N, H, W, C)
    with 1 or 3 channels, as in Pillow.

    >>> as_pixels(np.full((2, 4, 5, 3), 255, dtype=np.uint8)).shape
    torch.Size([2, 3, 4, 5])
    """
    if images.ndim not in (3, 4):
        raise ValueError(
            f"`images` must have 3 axes (N, H, W) or 4 (N, C, H, W); got shape {tuple(images.shape)}."
        )
    pixels = torch.from_numpy(_channels_first(images)) if isinstance(images, np.ndarray) else images.detach()
    if pixels.ndim == 3:
        pixels = pixels.unsqueeze(1)
    if pixels.shape[3] in (1, 3, 4) and pixels.shape[1] > 4:
        raise ValueError(
            f"`images` must have their channels on axis 1; got shape {tuple(pixels.shape)}, which seems "
            "to have them last; use images.permute(0, 3, 1, 2), or construct ImageSet if this is intended."
        )
    if pixels.dtype == torch.uint8:
        if len(pixels) > 1 and int(pixels.max()) == 1:
            warnings.warn(
                "images in uint8 must be from 0 to 255; got none above 1, which is nearly black. Convert images "
                "that are 0 and 1 to floats.",
                UserWarning,
                stacklevel=2,
            )
        return pixels.float().div_(255)
    if not pixels.is_floating_point():
        raise ValueError(_NO_PIXELS.format(pixels.dtype))
    return pixels.float()


_NO_PIXELS = "`images` must be uint8 or floats in [0, 1]; got {}. Give floats, divided by the value of white."


def _channels_first(images: NDArray[Any]) -> NDArray[Any]:
    if images.dtype.kind == "f":
        return _writeable(np.ascontiguousarray(images, dtype=np.float32))
    if images.dtype != np.uint8:
        raise ValueError(_NO_PIXELS.format(images.dtype))
    if images.ndim == 4:
        if images.shape[3] not in (1, 3):
            raise ValueError(
                f"`images` of uint8 must be (N, H, W, C) with 1 or 3 channels; got shape {images.shape}; "
                "use images.transpose(0, 2, 3, 1) if the channels are first."
            )
        images = images.transpose(0, 3, 1, 2)
    return _writeable(np.ascontiguousarray(images))


def _writeable(array: NDArray[Any]) -> NDArray[Any]:
    """An array that torch takes without a warning; NumPy calls an axis of one place contiguous, turned round or not."""
    return array if array.flags.writeable and min(array.strides) >= 0 else array.copy()


def as_labels(labels: object) -> Tensor:
    """Whole-number labels of any integer type as int64.

    >>> as_labels([0, 2, 1])
    tensor([0, 2, 1])
    """
    found = labels.detach() if isinstance(labels, Tensor) else torch.from_numpy(_label_array(labels))
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        raise ValueError(
            f"`labels` must be whole numbers; got {found.dtype}; if they are numbers of classes, write labels.long()."
        )
    return found.long()


def _label_array(labels: object) -> NDArray[Any]:
    found = np.asarray(labels)
    if found.dtype.kind not in "iu":
        remedy = (
            "if they are numbers of classes, write torch.as_tensor(labels).long()"
            if found.dtype.kind in "fb"
            else "number the classes from 0, and give their names as `classes`"
        )
        raise ValueError(f"`labels` must be whole numbers; got {found.dtype}; {remedy}.")
    return found.astype(np.int64)


def numbered_classes(labels: Tensor) -> tuple[str, ...]:
    """Default class names: "0", "1", ... up to the largest label.

    >>> numbered_classes(torch.tensor([0, 2, 1]))
    ('0', '1', '2')
    """
    largest = int(labels.max()) if labels.numel() else -1
    if labels.numel() and int(labels.min()) != 0:
        raise ValueError(
            f"`labels` must be numbered from 0; got {int(labels.min())} .. {largest}. Number the classes "
            "from 0; if class 0 only lacks images, keep the numbers and add one, because a trained network's outputs "
            "keep theirs."
        )
    if largest >= labels.numel() > 0:
        raise ValueError(
            f"`labels` must be numbered from 0 without gaps; got a label {largest} among {labels.numel()} "
            "labels; renumber the classes, or construct ImageSet with their names."
        )
    return tuple(str(number) for number in range(largest + 1))


def check_images(images: Tensor) -> None:
    """Raise ValueError unless `images` is (N, C, H, W), float32, finite and within [0, 1]."""
    if not isinstance(images, Tensor) or images.dtype != torch.float32:
        kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(
            f"`images` must be a float32 tensor; got {kind}; open_images((images, labels)) converts "
            "floats, and scales uint8 by 1/255."
        )
    if images.ndim != 4:
        raise ValueError(
            f"`images` must have 4 axes (N, C, H, W); got shape {tuple(images.shape)}; "
            "grey images need a channel axis: images.unsqueeze(1)."
        )
    if images.requires_grad:
        raise ValueError("`images` must not require a gradient; give images.detach().")
    if images.numel() == 0:
        raise ValueError(f"`images` must hold at least one pixel; got shape {tuple(images.shape)}.")
    check_pixels(images)


def check_pixels(images: Tensor) -> None:
    """Raise ValueError unless all values of `images` are finite and within [0, 1]."""
    low, high = (float(end) for end in images.aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = (~images.isfinite()).flatten(1).any(1).nonzero().flatten()
        raise ValueError(
            f"`images` must be finite; got NaN or infinity in {len(bad)} of {len(images)} images, "
            f"the first at index {int(bad[0])}; repair or drop them."
        )
    normalised = (
        "take the normalisation out of the Dataset, and give its `mean` and `std` to wrap or Classifier; "
        "clearance.audit alone undoes it, with normalised=True"
    )
    check_pixel_range(low, high, "divide by 255" if low >= 0 else normalised)


def check_classes(classes: Sequence[str]) -> None:
    """Raise ValueError unless `classes` is a tuple of at least two different names."""
    if not isinstance(classes, tuple) or not all(isinstance(name, str) for name in classes):
        raise ValueError(f"`classes` must be a tuple of strings; got {classes!r}.")
    broken = [name for name in classes if name != name.encode("utf-8", "replace").decode("utf-8")]
    if broken:
        raise ValueError(f"`classes` must be text that UTF-8 can hold; got {broken[0]!a}. Rename it.")
    if taken := set(classes) & {"all", "mean", "no class"}:
        raise ValueError(
            "`classes` must not be called 'all', 'mean' or 'no class', which results need; got "
            f"{', '.join(sorted(taken))}. Rename it."
        )
    if len(classes) < 2:
        raise ValueError(f"images must be of at least 2 classes; got only {classes!r}.")
    if len(set(classes)) < len(classes):
        twice = sorted({name for name in classes if classes.count(name) > 1})
        raise ValueError(f"`classes` must all differ; got {', '.join(map(repr, twice))} more than once.")


def check_labels(labels: Tensor, images: Tensor, classes: Sequence[str]) -> None:
    """Raise ValueError unless `labels` is (N,), int64, one for each image, and within range(len(classes))."""
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64:
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"`labels` must be an int64 tensor; got {kind}; integers: labels.long().")
    if labels.ndim != 1:
        raise ValueError(
            f"`labels` must have 1 axis (N,); got shape {tuple(labels.shape)}; one-hot: labels.argmax(1); a column: "
            "labels.flatten()."
        )
    check_equally_long(labels, images)
    if labels.device != images.device:
        raise ValueError(
            f"`images` and `labels` must be on one device; got {images.device} and {labels.device}; move one."
        )
    check_range(labels, classes)


def check_range(labels: Tensor, classes: Sequence[str]) -> None:
    """Raise ValueError unless every label is a class."""
    low, high = (int(end) for end in labels.aminmax())
    if low < 0 or high >= len(classes):
        raise ValueError(
            f"`labels` must lie in 0..{len(classes) - 1} because there are {len(classes)} classes; "
            f"got labels from {low} to {high}; relabel, or name all `classes`."
        )


def check_equally_long(labels: Tensor, images: Tensor) -> None:
    """Raise ValueError unless there is one label for each image."""
    if len(labels) != len(images):
        raise ValueError(
            f"`images` and `labels` must be equally long; got {len(images)} images and {len(labels)} labels."
        )


def check_every_class_present(labels: Tensor, classes: Sequence[str]) -> None:
    """Raise ValueError unless every class has an image.

    Input data must pass; a subset need not, because experiments with new classes leave some out.
    """
    sizes = torch.bincount(labels, minlength=len(classes)).tolist()
    empty = [name for name, size in zip(classes, sizes, strict=True) if size == 0]
    if empty:
        shown = ", ".join(map(repr, empty[:5])) + (" ..." if len(empty) > 5 else "")
        raise ValueError(
            f"every class must have at least one image; got none of {shown} ({len(empty)} of {len(classes)} "
            f"classes). {MORE_IMAGES}"
        )


def check_no_class_lost(labels: Tensor, kept: Tensor, classes: Sequence[str]) -> None:
    """Raise ValueError unless the mask `kept` keeps a label of every class that `labels` holds."""
    before = torch.bincount(labels, minlength=len(classes))
    after = torch.bincount(labels[kept], minlength=len(classes))
    lost = ((before > 0) & (after == 0)).nonzero().flatten().tolist()
    if lost:
        raise ValueError(
            "`fraction` must leave an image of every class in each part; got one that leaves none of "
            f"{classes[lost[0]]!r} (it has {int(before[lost[0]])}); choose another fraction, or add images of it."
        )


def check_indices(indices: Tensor, length: int) -> None:
    """Raise ValueError unless `indices` is (B,), int64, not empty, and within range(length)."""
    if indices.dtype != torch.int64 or indices.ndim != 1 or len(indices) == 0:
        raise ValueError(
            "`indices` must be int64 numbers in one axis, at least one; "
            f"got {indices.dtype} of shape {tuple(indices.shape)}; a mask: mask.nonzero().flatten()."
        )
    low, high = (int(end) for end in indices.aminmax())
    if low < 0 or high >= length:
        raise ValueError(f"`indices` must lie in 0..{length - 1}; got numbers from {low} to {high}.")


def digest_of(images: Iterable[Tensor], labels: Tensor, shape: Sequence[int], classes: Sequence[str]) -> str:
    """SHA-256 of images, labels and class names, in hexadecimal.

    Images come in order, in parts (n, C, H, W) of any size; `labels` is (N,), `shape` is (C, H, W).

    >>> import torch
    >>> pixels, labels = torch.rand(4, 1, 2, 2), torch.tensor([0, 1, 0, 1])
    >>> whole = digest_of([pixels], labels, (1, 2, 2), ("a", "b"))
    >>> whole == digest_of(pixels.split(3), labels, (1, 2, 2), ("a", "b"))
    True
    """
    found = hashlib.sha256(json.dumps([[len(labels), *shape], list(classes)]).encode())
    for part in images:
        found.update(part.cpu().contiguous().numpy().astype("<f4", copy=False).data)
    found.update(labels.cpu().contiguous().numpy().astype("<i8", copy=False).data)
    return found.hexdigest()


def image_digests(data: "ImageSet", start: str = "") -> list[bytes]:
    """SHA-256 of every image's pixels, kept so that the set is read only once.

    It does not depend on the image's position or on other images. `start` is hashed before the pixels, so that one set
    can have several independent orders.

    >>> images = torch.tensor([0.0, 1.0, -0.0]).view(3, 1, 1, 1)
    >>> one, other, again = image_digests(ImageSet(images, torch.arange(3), ("a", "b", "c")))
    >>> one == again, one == other
    (True, False)
    """
    kept = _KEPT.setdefault(data, {})
    if start not in kept:
        channels, height, width = data.shape
        size = max(1, CHUNK // (4 * channels * height * width))
        begin = hashlib.sha256(start.encode())
        kept[start] = found = []
        for part, _ in data.batches(size):
            for pixels in (part.cpu() + 0.0).numpy():  # + 0.0 turns -0.0 into 0.0
                image = begin.copy()
                image.update(pixels.tobytes())
                found.append(image.digest())
    return kept[start]


def shared_images(data: "ImageSet", others: "ImageSet") -> int:
    """How many images of a set are also in another one, pixel for pixel.

    >>> from clearance.data import gaussian_images
    >>> data = gaussian_images(per_class=2)
    >>> shared_images(data.subset([0, 1]), data), shared_images(data, gaussian_images(per_class=2, seed=1))
    (2, 0)
    """
    known = set(image_digests(others))
    return sum(image in known for image in image_digests(data))
