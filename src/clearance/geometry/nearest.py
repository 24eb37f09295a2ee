"""Classifiers that need no training: the nearest class mean and the nearest neighbour."""

import torch
from torch import Tensor


def squared_distances(points: Tensor, others: Tensor) -> Tensor:
    """||p - o||^2 up to a constant for each p: shape (B, n), as ||o||^2 - 2 p.o, for (B, D) and (n, D)."""
    # Far from the origin both terms would be huge and their difference lost.
    centre = others.mean(dim=0)
    points, others = points - centre, others - centre
    return others.square().sum(dim=-1) - 2 * points @ others.mT


def unit_length(points: Tensor) -> Tensor:
    """Points divided by their Euclidean length, (..., D), down to a length of 1e-30; 0 stays 0.

    >>> unit_length(torch.tensor([[3e-30, 4e-30], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    # in float64 squares stay within its range; at 0 the gradient is at most 1e30, which float32 holds
    return torch.nn.functional.normalize(points.double(), dim=-1, eps=1e-30).to(points.dtype)


def class_means(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The C classes that have samples, in order, and their mean features, (C, D), for (N, D) and (N,).

    >>> class_means(torch.tensor([[0.0], [2.0], [5.0]]), torch.tensor([1, 1, 3]))
    (tensor([1, 3]), tensor([[1.],
            [5.]]))
    """
    classes, places = labels.unique(return_inverse=True)
    membership = torch.nn.functional.one_hot(places, len(classes)).to(features.dtype)
    return classes, membership.mT @ features / membership.sum(dim=0).unsqueeze(-1)


def nearest_class_mean(means: Tensor, features: Tensor) -> Tensor:
    """The row of the nearest mean, shape (B,), for means (C, D) and features (B, D).

    >>> nearest_class_mean(torch.tensor([[0.0], [10.0]]), torch.tensor([[1.0], [7.0]]))
    tensor([0, 1])
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
