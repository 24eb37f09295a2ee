"""Symmetric label noise: some labels replaced by a uniformly random other class."""

import torch
from torch import Tensor

from clearance._checks import check_count, check_fraction


def symmetric_label_noise(
    labels: Tensor, class_count: int, rate: float, generator: torch.Generator
) -> Tensor:
    """A copy of `labels` in which exactly ``round(rate * N)`` are wrong, uniform over the other classes.

    The images are drawn without replacement, and a replaced label always differs from the old one, so `rate` is
    the fraction of wrong labels. For one state of the generator, the labels replaced at a lower rate are also
    replaced at a higher one, by the same class. In papers that draw the new label from all K classes, the same
    noise has rate ``rate * K / (K - 1)``.

    `labels` are the true classes, on the CPU, as is the generator; `class_count` is K, at least 2; `rate` is in
    [0, 1].

    Shapes:
        labels (N,) int64; returns (N,) int64.

    Raises:
        ValueError: If `rate` is outside [0, 1] or `class_count` is below 2.

    >>> labels = torch.zeros(10, dtype=torch.int64)
    >>> noisy = symmetric_label_noise(labels, 3, rate=0.4, generator=torch.Generator().manual_seed(0))
    >>> int((noisy != labels).sum())
    4
    """
    check_fraction("rate", rate)
    check_count("class_count", class_count, minimum=2)
    count = round(rate * len(labels))
    hit = torch.randperm(len(labels), generator=generator)[:count]
    # drawn for all labels, so that the shifts are the same for any rate
    shift = torch.randint(1, class_count, (len(labels),), generator=generator)[:count]
    noisy = labels.clone()
    noisy[hit] = (labels[hit] + shift) % class_count
    return noisy
