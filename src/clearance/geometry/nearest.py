"""Classifiers that need no training: the nearest class mean and the nearest neighbour."""

import torch
from torch import Tensor


def squared_distances(points: Tensor, others: Tensor) -> Tensor:
    """||p - o||^2 up to a constant for each p: shape (..., B, n), as ||o||^2 - 2 p.o."""
    # Far from the origin both terms would be huge and their difference lost.
    centre = others.flatten(0, -2).mean(dim=0)
    points, others = points - centre, others - centre
    return others.square().sum(dim=-1).unsqueeze(-2) - 2 * points @ others.mT


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Mean feature of every class for K labelled sets, shape (K, C, D).

    Features are (K, n, D), labels (K, n); every set should hold every class. A class without a sample has a mean of
    NaN.

    >>> class_means(torch.tensor([[[0.0], [2.0], [5.0]]]), torch.tensor([[0, 0, 1]]), 2)
    tensor([[[1.],
             [5.]]])
    """
    membership = torch.nn.functional.one_hot(labels, classes).to(features.dtype)
    return membership.mT @ features / membership.sum(dim=1).unsqueeze(-1)


def nearest_class_mean(means: Tensor, features: Tensor) -> Tensor:
    """The class whose mean is nearest, shape (K, B), for means (K, C, D) and features (B, D).

    >>> nearest_class_mean(torch.tensor([[[0.0], [10.0]]]), torch.tensor([[1.0], [7.0]]))
    tensor([[0, 1]])
    """
    return squared_distances(features, means).argmin(dim=-1)


def nearest_neighbour(images: Tensor, labels: Tensor, queries: Tensor, chunk: int = 512) -> Tensor:
    """The label of the nearest of n labelled points (Euclidean), shape (B,).

    Images are (n, D), labels (n,), queries (B, D); `chunk`, queries taken at once, bounds memory and changes nothing.

    >>> nearest_neighbour(torch.tensor([[0.0], [10.0]]), torch.tensor([4, 7]), torch.tensor([[9.0]]))
    tensor([7])
    """
    parts = [squared_distances(part, images).argmin(dim=-1) for part in queries.split(chunk)]
    return labels[torch.cat(parts)]
