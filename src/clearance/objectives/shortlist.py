"""Which rival classes a margin looks at: those with the highest logits."""

import math

import torch
from torch import Tensor


def top_rivals(logits: Tensor, labels: Tensor, count: int) -> Tensor:
    """The `count` wrong classes with the highest logits, highest first.

    Ranking by softmax probability would be the same. The highest need not be the nearest: a class whose gap
    is steep can be nearer than one whose gap is small.

    Args:
        logits: (B, C).
        labels: (B,).
        count: k, at most C - 1.

    Returns:
        (k, B).

    >>> top_rivals(torch.tensor([[5.0, 1.0, 4.0]]), torch.tensor([0]), 2)
    tensor([[2],
            [1]])
    """
    lowest = torch.finfo(logits.dtype).min  # a class that is masked out (-inf) comes before the sample's own
    masked = logits.detach().clamp(min=lowest).scatter(1, labels.unsqueeze(1), -math.inf)
    return masked.topk(count, dim=1).indices.mT
