"""Which images an audit uses: a fixed choice, two halves, small sets with the same number of each class."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearance._rng import derived_seed, generator
from clearance.data import ImageSet
from clearance.data.image_set import image_digests
from clearance.data.intake import open_images
from clearance.data.stratified import draw_quota


def fixed_images(data: ImageSet, limit: int, seed: int, among: Tensor | None = None) -> ImageSet:
    """All images where they are at most `limit`; else the same number of every class, at least one, drawn by the seed.

    Which, follows from the seed and their pixels: the same set in another order gives the same images. A class with
    fewer than its share gives all that it has; the others do not make up for it. `among` is a mask of the rows that
    may be drawn; two masks that differ in a few images give sets that differ in a few images.

    >>> from clearance.data import gaussian_images
    >>> chosen = fixed_images(gaussian_images(class_count=3, per_class=20), limit=10, seed=0)
    >>> torch.bincount(chosen.labels)
    tensor([3, 3, 3])
    """
    if among is None and len(data) <= limit:
        return data
    return data.subset(fixed_rows(data, limit, seed, among))


def fixed_rows(data: ImageSet, limit: int, seed: int, among: Tensor | None = None) -> Tensor:
    """The numbers of the rows that `fixed_images` keeps, ascending.

    >>> from clearance.data import gaussian_images
    >>> fixed_rows(gaussian_images(class_count=2, per_class=2), 4, 0)
    tensor([0, 1, 2, 3])
    """
    allowed = torch.ones(len(data), dtype=torch.bool) if among is None else among.cpu()
    if int(allowed.sum()) > limit:
        order = torch.tensor(sorted(range(len(data)), key=_keys(data, seed).__getitem__))
        allowed = _first_of_each(order[allowed[order]], data, limit)
    return allowed.nonzero().flatten().to(data.labels.device)


def balanced_rows(labels: Tensor, limit: int, seed: int, classes: int) -> Tensor:
    """Rows of at most `limit` labels, the same number of every class, ascending; drawn only by their positions.

    >>> balanced_rows(torch.tensor([0, 0, 1, 1]), 4, 0, classes=2)
    tensor([0, 1, 2, 3])
    """
    given = labels.cpu()
    if len(given) <= limit:
        return torch.arange(len(given)).to(labels.device)
    sizes = torch.bincount(given, minlength=classes)
    quota = sizes.clamp(max=max(limit // classes, 1))
    chosen = draw_quota(given, quota, generator(seed, "audits", "fixed images"))
    return chosen.nonzero().flatten().to(labels.device)


def _first_of_each(order: Tensor, data: ImageSet, limit: int) -> Tensor:
    """A mask of the first of every class in this order, an equal share of the limit."""
    share, labels = max(limit // data.class_count, 1), data.labels.cpu()[order]
    chosen = torch.zeros(len(data), dtype=torch.bool)
    for k in range(data.class_count):
        chosen[order[labels == k][:share]] = True
    return chosen


def _keys(data: ImageSet, seed: int) -> list[bytes]:
    """A number for every image that depends only on its pixels and the seed."""
    return image_digests(data, str(derived_seed(seed, "audits", "fixed images")))


def other_images(given: Any, test: ImageSet) -> ImageSet:
    """The images of an audit's setting `other`, of the shape of `test`; only recipes may name them."""
    if isinstance(given, str):
        raise ValueError(  # noqa: TRY004 - bad input is a ValueError everywhere in this library
            f"`other` must be images by now; got the name {given!r}. Names are for recipes: pass "
            "clearance.load_dataset(...) instead."
        )
    other = open_images(given)
    if other.shape != test.shape:
        raise ValueError(
            f"`other` must have images of shape {test.shape}, as the classifier takes them; got "
            f"{other.shape}. Resize them, or leave the set out."
        )
    return other


def first_half(labels: Tensor, seed: int) -> Tensor:
    """A mask, true for half of every class (the smaller half of an odd number), drawn only by the seed.

    Classes of one image count as one class. Labels are (N,); equal seeds give different models the same halves.

    >>> mask = first_half(torch.tensor([0, 0, 1, 1, 1]), seed=0)
    >>> torch.bincount(torch.tensor([0, 0, 1, 1, 1])[mask])
    tensor([1, 1])
    """
    given = labels.cpu()
    sizes = torch.bincount(given)
    given = torch.where(sizes[given] == 1, len(sizes), given)
    quota = torch.bincount(given) // 2
    return draw_quota(given, quota, generator(seed, "audits", "halves")).to(labels.device)


@dataclass(frozen=True)
class PartialSets:
    """r draws of `samples` training images; `rows` has shape (r, samples)."""

    samples: int
    rows: Tensor


def partial_sets(
    train: ImageSet,
    per_class: tuple[int, ...],
    repetitions: tuple[int, ...],
    seed: int,
    *,
    whole: bool = True,
) -> list[PartialSets]:
    """Class-balanced draws without replacement for each size that the smallest class allows; all images if `whole`.

    Source: Sato et al. (2019), section 4.1; balance above one image a class is not stated there.

    `per_class`, images of every class, is ascending, with r draws for each. Equal seeds give equal rows for equal
    labels, for every model.
    """
    counts = torch.bincount(train.labels, minlength=train.class_count).cpu()
    sets = []
    for count, draws in zip(per_class, repetitions, strict=True):
        if count > int(counts.min()) or (whole and count * train.class_count >= len(train)):
            break
        stream = generator(seed, "partial sets", count)
        rows = torch.stack([_one_draw(train.labels, counts, count, stream) for _ in range(draws)])
        sets.append(PartialSets(count * train.class_count, rows))
    everything = torch.arange(len(train), device=train.labels.device)[None]
    return [*sets, PartialSets(len(train), everything)] if whole else sets


def _one_draw(labels: Tensor, counts: Tensor, per_class: int, stream: torch.Generator) -> Tensor:
    """Row numbers of `per_class` images of every class, sorted by class."""
    by_class = labels.cpu().argsort(stable=True).split(counts.tolist())
    chosen = [rows[torch.randperm(len(rows), generator=stream)[:per_class]] for rows in by_class]
    return torch.cat(chosen).to(labels.device)
