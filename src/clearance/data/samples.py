"""A few images of a set: so many in all, balanced or plainly at random."""

import torch

from clearance._checks import check_count
from clearance._rng import generator
from clearance.data.image_set import ImageSet
from clearance.data.stratified import draw_quota


def draw_samples(data: ImageSet, count: int, seed: int, *, balanced: bool = True) -> ImageSet:
    """`count` images, drawn without replacement, in the order of the set.

    For one seed a smaller draw is part of a larger one.

    Args:
        data: The images; the classes that it names stay, even where a plain draw loses one.
        count: How many in all, from 2 to the number of images.
        seed: Equal seeds give equal draws.
        balanced: Equally many of every class; where `count` is no multiple of the classes, the first ones get one
            more. Otherwise every image has the same chance, and few images leave classes uneven, or out.

    Raises:
        ValueError: If there are not so many images, or a class has too few for a balanced draw.

    >>> from clearance.data import gaussian_images
    >>> torch.bincount(draw_samples(gaussian_images(class_count=3), 8, seed=0).labels)
    tensor([3, 3, 2])
    """
    check_count("count", count, minimum=2)
    if count > len(data):
        raise ValueError(f"`count` must not exceed the {len(data)} images there are; got {count}.")
    labels, stream = data.labels.cpu(), generator(seed, "data", "samples")
    if not balanced:
        return data.subset(torch.randperm(len(data), generator=stream)[:count].sort().values)
    each, rest = divmod(count, data.class_count)
    quota = torch.full((data.class_count,), each) + (torch.arange(data.class_count) < rest)
    sizes = torch.bincount(labels, minlength=data.class_count)
    scarce = int((sizes - quota).argmin())
    if sizes[scarce] < quota[scarce]:
        raise ValueError(
            f"`count` must leave a balanced draw possible; got {count}, {int(quota[scarce])} of class "
            f"{data.classes[scarce]!r}, which has {int(sizes[scarce])}. Ask for fewer, or set `balanced` to False."
        )
    return data.subset(draw_quota(labels, quota, stream).nonzero().flatten())


def draw_at_most(data: ImageSet, count: int) -> ImageSet:
    """`count` class-balanced images, always the same ones; all of them where there are not more.

    Args:
        data: The images.
        count: At least 2.

    >>> from clearance.data import gaussian_images
    >>> len(draw_at_most(gaussian_images(per_class=40), 100)), len(draw_at_most(gaussian_images(per_class=40), 1000))
    (100, 120)
    """
    return data if len(data) <= count else draw_samples(data, count, seed=0)
