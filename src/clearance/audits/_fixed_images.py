"""The images that attacks are run on: few enough to afford, the same for every method."""

import torch

from clearance._rng import generator
from clearance.data import ImageSet
from clearance.data.stratified import draw_quota


def fixed_images(data: ImageSet, limit: int, seed: int) -> ImageSet:
    """All images where they are at most `limit`; else equally many of every class, drawn by the seed alone.

    A class with fewer than its share gives all that it has; the others do not make up for it.

    >>> from clearance.data import gaussian_images
    >>> chosen = fixed_images(gaussian_images(class_count=3, per_class=20), limit=10, seed=0)
    >>> torch.bincount(chosen.labels)
    tensor([3, 3, 3])
    """
    if len(data) <= limit:
        return data
    labels = data.labels.cpu()
    sizes = torch.bincount(labels, minlength=data.class_count)
    quota = sizes.clamp(max=max(limit // data.class_count, 1))
    chosen = draw_quota(labels, quota, generator(seed, "audits", "fixed images"))
    return data.subset(chosen.nonzero().flatten())
