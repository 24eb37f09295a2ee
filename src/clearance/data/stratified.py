"""Draws that keep the proportions of the classes, as pure functions on labels."""

import torch
from torch import Tensor


def stratified_quota(sizes: Tensor, total: int) -> Tensor:
    """The number of each class in a stratified draw of `total`.

    Largest-remainder rule in whole numbers: each class gets its share rounded down, and the rest goes one each to
    the largest remainders (to the earlier class if they are equal).

    `sizes` are the images of each class, `total` is from 0 to their sum.

    Shapes:
        sizes (K,) int64; returns (K,) int64.

    >>> stratified_quota(torch.tensor([50, 30, 21]), 10)
    tensor([5, 3, 2])
    """
    scaled, count = sizes * total, int(sizes.sum())
    quota, remainder = scaled // count, scaled % count
    left = total - int(quota.sum())
    quota[remainder.argsort(descending=True, stable=True)[:left]] += 1
    return quota


def draw_quota(labels: Tensor, quota: Tensor, generator: torch.Generator) -> Tensor:
    """A random mask that is true for exactly ``quota[k]`` of the labels k, uniform without replacement.

    Labels are on the CPU, and no quota is above its class's size. One permutation of all labels is drawn for any
    quota, from a CPU generator, so that for one seed a larger quota contains a smaller one.

    Shapes:
        labels (N,) int64; quota (K,) int64; returns (N,) bool.

    >>> labels = torch.tensor([0, 0, 0, 1, 1])
    >>> chosen = draw_quota(labels, torch.tensor([2, 1]), torch.Generator().manual_seed(0))
    >>> torch.bincount(labels[chosen])
    tensor([2, 1])
    """
    order = torch.randperm(len(labels), generator=generator)
    by_class = order[labels[order].argsort(stable=True)]  # class after class, shuffled inside each
    sizes = torch.bincount(labels, minlength=len(quota))
    start = sizes.cumsum(0) - sizes
    place = torch.arange(len(labels)) - start[labels[by_class]]
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    chosen[by_class] = place < quota[labels[by_class]]
    return chosen


def draw_stratified(labels: Tensor, classes: int, total: int, generator: torch.Generator) -> Tensor:
    """A random mask that is true for `total` of the labels, stratified by class.

    Labels are on the CPU, `classes` counts those without images too, `total` is from 0 to N; the generator is as in
    `draw_quota`.

    Shapes:
        labels (N,) int64; returns (N,) bool.

    >>> labels = torch.tensor([0, 0, 0, 0, 1, 1])
    >>> chosen = draw_stratified(labels, 2, 3, torch.Generator().manual_seed(0))
    >>> torch.bincount(labels[chosen])
    tensor([2, 1])
    """
    sizes = torch.bincount(labels, minlength=classes)
    return draw_quota(labels, stratified_quota(sizes, total), generator)
