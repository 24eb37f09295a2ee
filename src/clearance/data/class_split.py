"""A set cut in two by class: what a network may learn from, and classes that it has never seen."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearance._checks import check_count
from clearance._rng import generator
from clearance.data._validity import check_every_class_present
from clearance.data.image_set import ImageSet


def draw_classes(class_count: int, left_out: int, seed: int) -> tuple[int, ...]:
    """Which classes to leave out, drawn without replacement, ascending; equal seeds give equal classes.

    Args:
        class_count: C, at least 3.
        left_out: How many, at least 1 and at most C - 2: what is kept must be a classification.
        seed: Decides the draw.

    >>> len(draw_classes(10, 3, seed=0))
    3
    """
    check_count("left_out", left_out)
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
        left_out: Class numbers, each once; at least 1, and at least 2 must remain. A single class is nothing to
            classify, but something to be told from the others.

    Raises:
        ValueError: If a number is no class, occurs twice, none is named, or fewer than 2 classes remain.

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
    if len(kept) < 2 or not out:
        raise ValueError(
            f"`left_out` must name at least 1 class and leave at least 2; got {len(kept)} kept and {len(out)} left "
            f"out of {data.class_count}."
        )
    return _of_classes(data, kept), _of_classes(data, out)


def _of_classes(data: ImageSet, chosen: list[int]) -> ImageSet:
    numbers = torch.full((data.class_count,), -1, device=data.labels.device)
    numbers[chosen] = torch.arange(len(chosen), device=data.labels.device)
    renumbered: Tensor = numbers[data.labels]
    rows = renumbered >= 0
    classes, labels = tuple(data.classes[k] for k in chosen), renumbered[rows]
    if len(chosen) == 1:  # the constructor wants a classification
        check_every_class_present(labels, classes)
        return data._derived(images=data.images[rows], labels=labels, classes=classes)
    return ImageSet(data.images[rows], labels, classes, data.name, data.augmentation)
