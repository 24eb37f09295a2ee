"""The images that attacks are run on: few enough to afford, the same for every method."""

import torch
from torch import Tensor

from clearance._rng import generator
from clearance.data import ImageSet
from clearance.data.stratified import draw_quota


def fixed_images(data: ImageSet, limit: int, seed: int, among: Tensor | None = None) -> ImageSet:
    """All images where they are at most `limit`; else equally many of every class, at least one, drawn by the seed.

    A class with fewer than its share gives all that it has; the others do not make up for it. With a mask, `among`, of
    the images that may be drawn, every class's are those that come first in an order that does not know it: two
    masks that differ in a few images give sets that do so, too.

    >>> from clearance.data import gaussian_images
    >>> chosen = fixed_images(gaussian_images(class_count=3, per_class=20), limit=10, seed=0)
    >>> torch.bincount(chosen.labels)
    tensor([3, 3, 3])
    """
    if among is None and len(data) <= limit:
        return data
    if among is None:
        return data.subset(fixed_rows(data.labels, limit, seed, data.class_count))
    labels, allowed = data.labels.cpu(), among.cpu()
    order = torch.randperm(len(labels), generator=generator(seed, "audits", "fixed images"))
    order = order[allowed[order]]
    if len(order) > limit:
        share = max(limit // data.class_count, 1)
        order = torch.cat([order[labels[order] == k][:share] for k in range(data.class_count)])
    return data.subset(order.sort().values.to(data.labels.device))


def fixed_rows(labels: Tensor, limit: int, seed: int, classes: int) -> Tensor:
    """The numbers of the rows that `fixed_images` keeps, ascending; all of them where they are at most `limit`.

    >>> fixed_rows(torch.tensor([0, 0, 1, 1]), 4, 0, classes=2)
    tensor([0, 1, 2, 3])
    """
    given = labels.cpu()
    if len(given) <= limit:
        return torch.arange(len(given)).to(labels.device)
    sizes = torch.bincount(given, minlength=classes)
    quota = sizes.clamp(max=max(limit // classes, 1))
    chosen = draw_quota(given, quota, generator(seed, "audits", "fixed images"))
    return chosen.nonzero().flatten().to(labels.device)
