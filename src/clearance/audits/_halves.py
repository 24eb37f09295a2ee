"""Two halves of the held-out images: what is chosen on one is measured on the other."""

import torch
from torch import Tensor

from clearance._rng import generator
from clearance.data.stratified import draw_quota


def first_half(labels: Tensor, seed: int) -> Tensor:
    """A mask, true for half of every class (the smaller half of an odd number), drawn by the seed alone.

    Args:
        labels: (N,).
        seed: Equal seeds give different models the same halves.

    >>> mask = first_half(torch.tensor([0, 0, 1, 1, 1]), seed=0)
    >>> torch.bincount(torch.tensor([0, 0, 1, 1, 1])[mask])
    tensor([1, 1])
    """
    given = labels.cpu()
    quota = torch.bincount(given) // 2
    return draw_quota(given, quota, generator(seed, "audits", "halves")).to(labels.device)
