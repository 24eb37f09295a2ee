"""How near an image's features lie to those of training images: a score that no unit and no last layer moves."""

import torch
from torch import Tensor


def unit_length(features: Tensor) -> Tensor:
    """Every row divided by its length; a row of zeros stays.

    >>> unit_length(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    length = features.norm(dim=1, keepdim=True)
    return features / torch.where(length > 0, length, 1)


def neighbour_score(features: Tensor, known: Tensor, neighbours: int) -> Tensor:
    """Minus half the squared distance to the k-th nearest known features, all of unit length, (B,); at most 0.

    Source: Sun et al., *Out-of-Distribution Detection with Deep Nearest Neighbors* (2022).

    Args:
        features: (B, D).
        known: (n, D), of unit length already.
        neighbours: k; n where there are fewer.

    >>> neighbour_score(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]), 1)
    tensor([0.])
    """
    # half the squared distance of unit vectors is 1 - cos
    nearest = (unit_length(features) @ known.T).topk(min(neighbours, len(known)), dim=1)
    return nearest.values[:, -1] - 1
