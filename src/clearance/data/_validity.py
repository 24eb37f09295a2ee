"""What an image set must satisfy: checked once, where data enters."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def check_labelled_images(images: Tensor, labels: Tensor, classes: tuple[str, ...]) -> None:
    """Raise ValueError unless these are images, names of classes, and a class for each image that leaves none empty."""
    check_images(images)
    check_classes(classes)
    check_labels(labels, images, classes)
    check_every_class_present(labels, classes)


def check_images(images: Tensor) -> None:
    """Raise ValueError unless `images` is (N, C, H, W), float32, finite and within [0, 1]."""
    if not isinstance(images, Tensor) or images.dtype != torch.float32:
        kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(
            f"`images` must be a float32 tensor; got {kind}; as_image_set((images, labels)) converts "
            "floats, and scales uint8 by 1/255."
        )
    if images.ndim != 4:
        raise ValueError(
            f"`images` must have 4 axes (N, C, H, W); got shape {tuple(images.shape)}; "
            "grey images need a channel axis: images.unsqueeze(1)."
        )
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
    if low < 0 or high > 1:
        remedy = "divide by 255" if low >= 0 else "undo the normalisation: Classifier takes `mean` and `std`"
        raise ValueError(f"`images` must lie in [0, 1]; got values from {low:g} to {high:g}; {remedy}.")


def check_classes(classes: Sequence[str]) -> None:
    """Raise ValueError unless `classes` is a tuple of at least two different names."""
    if not isinstance(classes, tuple) or not all(isinstance(name, str) for name in classes):
        raise ValueError(f"`classes` must be a tuple of strings; got {classes!r}.")
    if len(classes) < 2:
        raise ValueError(f"`classes` must name at least 2 classes; got {classes!r}: nothing to tell apart.")
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
            f"`labels` must have 1 axis (N,); got shape {tuple(labels.shape)}; one-hot: labels.argmax(1)."
        )
    if len(labels) != len(images):
        raise ValueError(
            f"`images` and `labels` must be equally long; got {len(images)} images and {len(labels)} labels."
        )
    if labels.device != images.device:
        raise ValueError(
            f"`images` and `labels` must be on one device; got {images.device} and {labels.device}; move one."
        )
    low, high = (int(end) for end in labels.aminmax())
    if low < 0 or high >= len(classes):
        raise ValueError(
            f"`labels` must lie in 0..{len(classes) - 1} because there are {len(classes)} classes; "
            f"got labels from {low} to {high}; relabel, or name all `classes`."
        )


def check_every_class_present(labels: Tensor, classes: Sequence[str]) -> None:
    """Raise ValueError unless every class has an image.

    Data from outside must pass; a subset need not, because experiments with new classes leave some out.
    """
    sizes = torch.bincount(labels, minlength=len(classes)).tolist()
    empty = [name for name, size in zip(classes, sizes, strict=True) if size == 0]
    if empty:
        shown = ", ".join(map(repr, empty[:5])) + (" ..." if len(empty) > 5 else "")
        raise ValueError(
            f"every class must have at least one image; got none of {shown} ({len(empty)} of {len(classes)} "
            "classes); remove the class and renumber the labels, or add images."
        )


def check_no_class_lost(labels: Tensor, kept: Tensor, classes: Sequence[str]) -> None:
    """Raise ValueError unless the mask `kept` keeps a label of every class that `labels` holds."""
    before = torch.bincount(labels, minlength=len(classes))
    after = torch.bincount(labels[kept], minlength=len(classes))
    lost = ((before > 0) & (after == 0)).nonzero().flatten().tolist()
    if lost:
        raise ValueError(
            "`fraction` must leave an image of every class on each side; got one that leaves none of "
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
