"""A labelled set of images in memory: the one form in which data reaches training, audits and reports."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from clearance._checks import check_count, check_fraction
from clearance._rng import generator as named_generator
from clearance.data._digest import digest_of
from clearance.data._validity import check_indices, check_labelled_images, check_no_class_lost
from clearance.data.augmentation import Augmentation
from clearance.data.label_noise import symmetric_label_noise
from clearance.data.stratified import draw_per_class, draw_stratified

UNLABELLED = "unlabelled"  # the one class of images that nobody has labelled


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet(Dataset[tuple[Tensor, int]]):
    """Images in [0, 1] with their labels, and the sets that can be drawn from them.

    The constructor checks all of it; as_image_set converts other data first. A set never changes: every
    method returns a new one, which shares the images where it holds all of them and is not checked again.
    Drawn sets keep `classes`, even of classes that they no longer hold.

    Args:
        images: The pixels, without normalisation (that is the model's).
        labels: Class of each image, within ``range(len(classes))``; every class occurs.
        classes: Names of the classes, at least two.
        name: What tables call the set.
        augmentation: Random changes for training; applied by `batch` alone, and only when it gets a
            generator.

    Shapes:
        images (N, C, H, W) float32; labels (N,) int64, on the same device.

    Raises:
        ValueError: If anything above does not hold; the message shows what was found.

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

    def __post_init__(self) -> None:
        check_labelled_images(self.images, self.labels, self.classes)

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
        """How many classes are named, present or not."""
        return len(self.classes)

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Images and labels at `indices`; augmented if the set has an augmentation and a generator is given.

        Shapes:
            indices (B,) int64; returns (B, C, H, W) and (B,).

        >>> from clearance.data import gaussian_images
        >>> images, labels = gaussian_images().batch(torch.tensor([0, 0, 1]))
        >>> torch.equal(images[0], images[1])
        True
        """
        indices = indices.to(self.images.device)
        images, labels = self.images[indices], self.labels[indices]
        if self.augmentation is not None and generator is not None:
            images = self.augmentation(images, generator)
        return images, labels

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All images and labels in order, `size` at a time; of a set on disk, the way to read it.

        >>> from clearance.data import gaussian_images
        >>> [len(images) for images, _ in gaussian_images(class_count=2, per_class=5).batches(4)]
        [4, 4, 2]
        """
        return zip(self.images.split(size), self.labels.split(size), strict=True)

    def to(self, device: torch.device | str) -> "ImageSet":
        """The same set on another device."""
        return self._derived(images=self.images.to(device), labels=self.labels.to(device))

    def subset(self, indices: Tensor, name: str | None = None) -> "ImageSet":
        """The images at `indices`, in that order; the pixels are copied.

        Args:
            indices: Whole numbers from 0 to N - 1, at least one; repeats are kept.
            name: Name of the new set; default the old one.

        Raises:
            ValueError: If `indices` is empty, not whole numbers in one axis, or outside the set.

        >>> from clearance.data import gaussian_images
        >>> len(gaussian_images(class_count=2).subset(torch.arange(5)))
        5
        """
        indices = torch.as_tensor(indices, device=self.images.device)
        check_indices(indices, len(self))
        return self._derived(
            images=self.images[indices], labels=self.labels[indices], name=self.name if name is None else name
        )

    def split(self, fraction: float, seed: int) -> tuple["ImageSet", "ImageSet"]:
        """Cut the set in two, (rest, part), both with the classes in proportion.

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
        stream = named_generator(seed, "data", "per_class")
        return self._kept(draw_per_class(self.labels.cpu(), self.classes, count, stream))

    def fraction(self, fraction: float, seed: int) -> "ImageSet":
        """A share of the images with the classes in proportion: the `part` that `split` gives.

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

        Raises:
            ValueError: If `rate` is outside [0, 1].

        >>> from clearance.data import gaussian_images
        >>> data = gaussian_images(class_count=2, per_class=10)
        >>> int((data.with_label_noise(0.3, seed=0).labels != data.labels).sum())
        6
        """
        stream = named_generator(seed, "data", "label_noise")
        noisy = symmetric_label_noise(self.labels.cpu(), self.class_count, rate, stream)
        return self._derived(labels=noisy.to(self.labels.device))

    def augmented(self, augmentation: Augmentation | None) -> "ImageSet":
        """The same set with another augmentation, or none."""
        return self._derived(augmentation=augmentation)

    def unlabelled(self) -> "ImageSet":
        """The same images without their labels: all of one class, `UNLABELLED`.

        >>> from clearance.data import gaussian_images
        >>> gaussian_images(class_count=3, per_class=2).unlabelled()
        ImageSet('gaussian', 6 images of shape (1, 8, 8), 1 classes)
        """
        return self._derived(labels=torch.zeros_like(self.labels), classes=(UNLABELLED,))

    def in_memory(self) -> "ImageSet":
        """This set; of one on disk, all of its images in memory."""
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
        """A set made of parts of this one: past the constructor, because its pixels were checked already."""
        made = object.__new__(ImageSet)
        for each in fields(self):
            object.__setattr__(made, each.name, changes.get(each.name, getattr(self, each.name)))
        return made

    def _kept(self, mask: Tensor) -> "ImageSet":
        check_no_class_lost(self.labels.cpu(), mask, self.classes)
        return self.subset(mask.nonzero().flatten())

    def _stratified(self, fraction: float, seed: int) -> Tensor:
        stream = named_generator(seed, "data", "stratified")
        return draw_stratified(self.labels.cpu(), self.class_count, round(fraction * len(self)), stream)
