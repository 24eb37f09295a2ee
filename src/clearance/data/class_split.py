"""A set cut in two by class: what a network may learn from, and classes that it has never seen."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearance._checks import check_count
from clearance._rng import generator
from clearance.data.image_set import ImageSet


def draw_classes(class_count: int, left_out: int, seed: int) -> tuple[int, ...]:
    """Which classes to leave out, drawn without replacement, ascending; equal seeds give equal classes.

    Args:
        class_count: C, at least 4.
        left_out: How many, at least 2 and at most C - 2: either side must be a classification.
        seed: Decides the draw.

    >>> len(draw_classes(10, 3, seed=0))
    3
    """
    check_count("left_out", left_out, minimum=2)
    if left_out > class_count - 2:
        raise ValueError(
            f"`left_out` must leave at least 2 of the {class_count} classes; got {left_out}. Leave out fewer."
        )
    drawn = torch.randperm(class_count, generator=generator(seed, "data", "left_out"))[:left_out]
    return tuple(sorted(drawn.tolist()))


def split_classes(data: ImageSet, left_out: Sequence[int]) -> tuple[ImageSet, ImageSet]:
    """The images of all other classes, and those of the classes `left_out`; each set numbers its own.

    Args:
        data: Every class occurs in it.
        left_out: Class numbers, each once; at least 2, and at least 2 must remain.

    Raises:
        ValueError: If a number is no class, occurs twice, or a side has fewer than 2 classes.

    >>> from clearance.data import gaussian_images
    >>> known, new = split_classes(gaussian_images(class_count=5, per_class=4), (1, 3))
    >>> known.classes, new.classes
    (('0', '2', '4'), ('1', '3'))
    >>> len(known), len(new)
    (12, 8)
    """
    out = sorted(set(left_out))
    outside = [k for k in left_out if not 0 <= k < data.class_count]
    if outside or len(out) != len(left_out):
        raise ValueError(
            f"`left_out` must name classes from 0 to {data.class_count - 1}, each once; got {list(left_out)}."
        )
    kept = [k for k in range(data.class_count) if k not in out]
    if min(len(out), len(kept)) < 2:
        raise ValueError(
            f"both sides need at least 2 classes; got {len(kept)} kept and {len(out)} left out of "
            f"{data.class_count}."
        )
    return _of_classes(data, kept), _of_classes(data, out)


def _of_classes(data: ImageSet, chosen: list[int]) -> ImageSet:
    numbers = torch.full((data.class_count,), -1, device=data.labels.device)
    numbers[chosen] = torch.arange(len(chosen), device=data.labels.device)
    renumbered: Tensor = numbers[data.labels]
    rows = renumbered >= 0
    return ImageSet(
        data.images[rows],
        renumbered[rows],
        tuple(data.classes[k] for k in chosen),
        data.name,
        data.augmentation,
    )
