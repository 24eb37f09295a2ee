"""What a page is about: classes of samples as bytes, and how a byte becomes a number again."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
        low: What a byte of 0 stands for.
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

    def pair(self, first: int, second: int, split: str = "train") -> tuple[NDArray, NDArray]:
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
        ValueError: If fewer than two classes are named, a sample is not finite, or a class has no training sample.

    >>> scene = scene_of(([[0.0, 1.0], [1.0, 0.5]], [0, 1]), ([[0.0, 0.0]], [0]), ("a", "b"), shape=(1, 1, 2))
    >>> scene.classes[1].train, scene.values(scene.classes[1].train)
    (array([[16,  8]], dtype=uint8), array([[1. , 0.5]]))
    """
    if len(classes) < 2:
        raise ValueError(
            f"a page needs at least 2 classes, because a boundary lies between two; got {list(classes)}."
        )
    (x, y), (held_out, held_out_y) = _flat("train", train), _flat("test", test)
    low, step = _levels(x, held_out, is_image=shape is not None)
    found = []
    for index, title in enumerate(classes):
        parts = [_as_bytes(rows[of == index], low, step) for rows, of in ((x, y), (held_out, held_out_y))]
        if not len(parts[0]):
            raise ValueError(f"every class needs training samples; got none of {title!r}.")
        found.append(ClassSamples(title, *parts))
    return Scene(name, tuple(found), low, step, shape, unit)


def _flat(name: str, given: tuple[ArrayLike, ArrayLike]) -> tuple[NDArray, NDArray]:
    values, labels = np.asarray(given[0], dtype=np.float64), np.asarray(given[1])
    if not np.isfinite(values).all():
        raise ValueError(
            f"`{name}` must be finite; got {values[~np.isfinite(values)][0]}; mend or leave out."
        )
    return values.reshape(len(values), math.prod(values.shape[1:])), labels


def _levels(x: NDArray, held_out: NDArray, *, is_image: bool) -> tuple[float, float]:
    """What byte 0 stands for, and the step to the next."""
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


def _as_bytes(rows: NDArray, low: float, step: float) -> Bytes:
    return np.clip(np.rint((rows - low) / step), 0, 255).astype(np.uint8)
