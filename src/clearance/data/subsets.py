"""Parts of a set: some of its images, or the images of some of its classes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearance._checks import check_count
from clearance._rng import generator
from clearance.data.image_set import ImageSet, check_every_class_present
from clearance.data.stratified import draw_quota


def draw_samples(data: ImageSet, count: int, seed: int, *, balanced: bool = True) -> ImageSet:
    """`count` images, drawn without replacement, in the order of the set.

    For one seed a smaller draw is part of a larger one.

    `count` is from 2 to that of `data`; equal seeds give equal draws. A `balanced` draw has the same number of every
    class; if `count` is not a multiple of the number of classes, the first classes get one more. Otherwise every image
    has the same chance, and with few images classes may be uneven or missing; their names are kept.

    Raises:
        ValueError: If `data` has fewer images, or a class too few for a balanced draw.

    >>> from clearance.data import gaussian_images
    >>> torch.bincount(draw_samples(gaussian_images(class_count=3), 8, seed=0).labels)
    tensor([3, 3, 2])
    """
    check_count("count", count, minimum=2)
    if count > len(data):
        raise ValueError(
            f"`count` must not exceed the number of images, {len(data)}; got {count}. Ask for fewer."
        )
    labels, stream = data.labels.cpu(), generator(seed, "data", "samples")
    if not balanced:
        return data.subset(torch.randperm(len(data), generator=stream)[:count].sort().values)
    each, rest = divmod(count, data.class_count)
    quota = torch.full((data.class_count,), each) + (torch.arange(data.class_count) < rest)
    sizes = torch.bincount(labels, minlength=data.class_count)
    scarce = int((sizes - quota).argmin())
    if sizes[scarce] < quota[scarce]:
        raise ValueError(
            f"`count` must allow a balanced draw; got {count}, which needs {int(quota[scarce])} of class "
            f"{data.classes[scarce]!r}, which has {int(sizes[scarce])}. Ask for fewer, or set `balanced` to False."
        )
    return data.subset(draw_quota(labels, quota, stream).nonzero().flatten())


def draw_classes(class_count: int, left_out: int, seed: int) -> tuple[int, ...]:
    """Classes to leave out, drawn without replacement, in ascending order.

    Args:
        class_count: C, at least 3.
        left_out: Number of classes, at least 1 and at most C - 2, so that at least two remain.
        seed: Equal seeds give equal classes.

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

    Every class occurs in `data`. `left_out` has class numbers, each once; at least 1, and at least 2 must remain. The
    second set may have a single class.

    Raises:
        ValueError: If a number is not a class or occurs twice, none is named, or fewer than 2 classes remain.

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
    rows = (numbers[data.labels] >= 0).nonzero().flatten()
    classes, labels = tuple(data.classes[k] for k in chosen), numbers[data.labels[rows]]
    check_every_class_present(labels, classes)
    return data.subset(rows)._derived(labels=labels, classes=classes)


def evenly_spaced(count: int, most: int) -> Tensor:
    """At most `most` row numbers of `count` rows, evenly spaced.

    >>> evenly_spaced(9, 3)
    tensor([0, 4, 8])
    """
    return torch.linspace(0, count - 1, min(most, count)).long()
