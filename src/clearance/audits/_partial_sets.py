"""Partial training sets: the same number of images of every class, drawn many times over."""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearance._rng import generator
from clearance.data import ImageSet


@dataclass(frozen=True)
class PartialSets:
    """r draws of `samples` training images; `rows` has shape (r, samples)."""

    samples: int
    rows: Tensor


def partial_sets(
    train: ImageSet, per_class: tuple[int, ...], repetitions: tuple[int, ...], seed: int
) -> list[PartialSets]:
    """Class-balanced draws without replacement for each size that the smallest class allows, then all images.

    Source: Sato et al. (2019), section 4.1; balance above one image a class is not stated there.

    Args:
        train: The images to draw from.
        per_class: Images of every class, ascending.
        repetitions: r, draws for each of `per_class`.
        seed: Equal seeds give equal rows for equal labels, whatever the model.
    """
    counts = torch.bincount(train.labels, minlength=train.class_count).cpu()
    sets = []
    for count, draws in zip(per_class, repetitions, strict=True):
        if count > int(counts.min()) or count * train.class_count >= len(train):
            break
        stream = generator(seed, "partial sets", count)
        rows = torch.stack([_one_draw(train.labels, counts, count, stream) for _ in range(draws)])
        sets.append(PartialSets(count * train.class_count, rows))
    everything = torch.arange(len(train), device=train.labels.device)[None]
    return [*sets, PartialSets(len(train), everything)]


def _one_draw(labels: Tensor, counts: Tensor, per_class: int, stream: torch.Generator) -> Tensor:
    """Row numbers of `per_class` images of every class, sorted by class."""
    by_class = labels.cpu().argsort(stable=True).split(counts.tolist())
    chosen = [rows[torch.randperm(len(rows), generator=stream)[:per_class]] for rows in by_class]
    return torch.cat(chosen).to(labels.device)
