"""What a page is about: classes of samples as bytes, and how a byte becomes a number again."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bytes = NDArray[np.uint8]
LEVELS = (255, 16)  # of MNIST and most pictures, and of scikit-learn's digits
PIXELS = "Distances are in units of one pixel's range, from black to white."


@dataclass(frozen=True, eq=False)
class ClassSamples:
    """The samples of one class.

    Args:
        name: Of the class.
        train: What machines are fitted to, shape (n, d), at least one row.
        test: What they are tried on, shape (m, d).
    """

    name: str
    train: Bytes
    test: Bytes


@dataclass(frozen=True)
class Scene:
    """Samples  x = low + step * byte  of at least two classes.

    Make one with :func:`scene_of`. Machines are fitted to :meth:`values`, which is what the page computes with, too:
    where samples had to be rounded to bytes, every number is one of the rounded samples.

    Args:
        name: Of the dataset.
        classes: Their samples.
        low: The value of a byte of 0.
        step: From one byte to the next.
        shape: (C, H, W) of samples that are images, C 1 or 3; None for features, of which no picture is drawn.
        unit: A sentence on the unit of distances.
    """

    name: str
    classes: tuple[ClassSamples, ...]
    low: float
    step: float
    shape: tuple[int, int, int] | None
    unit: str

    @property
    def width(self) -> int:
        """How many numbers a sample has."""
        return self.classes[0].train.shape[1]

    def values(self, rows: Bytes) -> NDArray[np.float64]:
        """Samples as numbers, shape (n, d)."""
        return self.low + self.step * rows.astype(np.float64)

    def pair(self, first: int, second: int, split: str = "train") -> tuple[NDArray[Any], NDArray[Any]]:
        """Samples of two classes (n, d), and their labels (n,): -1 for `first`, +1 for `second`."""
        parts = [getattr(self.classes[index], split) for index in (first, second)]
        return self.values(np.concatenate(parts)), np.repeat([-1.0, 1.0], [len(part) for part in parts])


def scene_of(
    train: tuple[ArrayLike, ArrayLike],
    test: tuple[ArrayLike, ArrayLike],
    classes: Sequence[str],
    *,
    name: str = "samples",
    shape: tuple[int, int, int] | None = None,
    unit: str = PIXELS,
) -> Scene:
    """A scene of all samples of the classes named.

    Args:
        train: Samples (n, ...) and labels (n,), whole numbers that count `classes`; further axes are flattened. With a
            `shape`, images in [0, 1].
        test: The same, held out; may be empty.
        classes: At least two names.
        name: Of the dataset.
        shape: (C, H, W) if samples are images.
        unit: A sentence on the unit of distances.

    Images of 256 or of 17 levels are kept exactly, others are rounded to multiples of 1/255. Features are rounded to
    256 levels between their smallest and largest number.

    Raises:
        ValueError: If fewer than two classes are named, a sample is not finite or, of images, not in [0, 1], a label is
            no class, a class (or all) has no training sample, or samples, labels and shape do not fit each other.

    Warns:
        UserWarning: If features vary so much less than others that all their numbers become one.

    >>> scene = scene_of(([[0.0, 1.0], [1.0, 0.5]], [0, 1]), ([[0.0, 0.0]], [0]), ("a", "b"), shape=(1, 1, 2))
    >>> scene.classes[1].train, scene.values(scene.classes[1].train)
    (array([[16,  8]], dtype=uint8), array([[1. , 0.5]]))
    """
    if len(classes) < 2:
        raise ValueError(
            f"a page needs at least 2 classes, because a boundary lies between two; got {list(classes)}."
        )
    (x, y), (held_out, held_out_y) = (
        _flat(one, given, len(classes)) for one, given in (("train", train), ("test", test))
    )
    if not x.size:
        raise ValueError(f"`train` must have samples of at least one number; got shape {np.shape(train[0])}.")
    if not len(held_out):
        held_out = held_out.reshape(0, x.shape[1])
    if held_out.shape[1] != x.shape[1]:
        raise ValueError(
            f"`test` must have {x.shape[1]} numbers a sample, as `train`; got {held_out.shape[1]}."
        )
    if shape is not None:
        _check_images(x, held_out, shape)
    low, step = _levels(x, held_out, is_image=shape is not None)
    if shape is None:
        _warn_of_lost(x, low, step)
    found = []
    for index, title in enumerate(classes):
        parts = [_as_bytes(rows[of == index], low, step) for rows, of in ((x, y), (held_out, held_out_y))]
        if not len(parts[0]):
            raise ValueError(f"every class needs training samples; got none of {title!r}.")
        found.append(ClassSamples(title, *parts))
    return Scene(name, tuple(found), low, step, shape, unit)


def _flat(name: str, given: tuple[ArrayLike, ArrayLike], classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    # tensors, of any device
    plain: Any = (one.detach().cpu().numpy() if hasattr(one, "detach") else one for one in given)
    values, labels = map(np.asarray, plain)
    values = values.astype(np.float64, copy=False)
    if not np.isfinite(values).all():
        raise ValueError(f"`{name}` must be finite; got {values[~np.isfinite(values)][0]}; fix or leave out.")
    if labels.shape != (len(values),):
        raise ValueError(
            f"`{name}` must have one label for each of {len(values)} samples; got {labels.shape}."
        )
    odd = labels[~np.isin(labels, np.arange(classes))]
    if len(odd):
        raise ValueError(f"labels of `{name}` must be whole numbers in 0 .. {classes - 1}; got {odd[0]}.")
    return values.reshape(len(values), math.prod(values.shape[1:])), labels


def _check_images(x: NDArray[Any], held_out: NDArray[Any], shape: tuple[int, int, int]) -> None:
    if len(shape) != 3 or math.prod(shape) != x.shape[1] or shape[0] not in (1, 3):
        raise ValueError(
            f"`shape` must be (C, H, W) with C 1 or 3, of {x.shape[1]} numbers in all, as samples have; got {shape}."
        )
    for name, part in (("train", x), ("test", held_out)):
        if part.size and (part.min() < 0 or part.max() > 1):
            raise ValueError(
                f"images of `{name}` must lie in [0, 1]; got {part.min():.4g} to {part.max():.4g}. Divide grey levels "
                "by 255, undo a normalisation, or leave `shape` out."
            )


def _warn_of_lost(x: NDArray[Any], low: float, step: float) -> None:
    levels = np.rint((x - low) / step)
    lost = int(((np.ptp(x, axis=0) > 0) & (np.ptp(levels, axis=0) == 0)).sum())
    if lost:
        warnings.warn(
            f"{lost} of {x.shape[1]} features vary by less than one of the 256 levels that the page has for all of "
            "them, and are constant on it. Divide features by their spread.",
            stacklevel=3,
        )


def _levels(x: NDArray[Any], held_out: NDArray[Any], *, is_image: bool) -> tuple[float, float]:
    """The value of byte 0, and the step to the next."""
    if not is_image:
        both = np.concatenate([x, held_out]) if held_out.size else x
        low, high = float(both.min()), float(both.max())
        return low, (high - low) / 255 or 1.0
    for levels in LEVELS[::-1]:
        if all(
            np.abs(part * levels - np.rint(part * levels)).max(initial=0) < 1e-4 for part in (x, held_out)
        ):
            return 0.0, 1 / levels
    return 0.0, 1 / LEVELS[0]


def _as_bytes(rows: NDArray[Any], low: float, step: float) -> Bytes:
    return np.clip(np.rint((rows - low) / step), 0, 255).astype(np.uint8)
