"""How a labelled cloud of features spreads within its classes and between them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearance.tensors import check_class_numbers


@dataclass(frozen=True)
class ClassStatistics:
    """Class means and spreads of a labelled cloud, float64.

    Args:
        means: Class means, shape (C, D).
        variances: Mean squared distance of a class's samples from its mean, shape (C,).
        counts: Samples of each class, shape (C,).

    >>> cloud = class_scatter(torch.tensor([[0.0], [2.0], [5.0]]), torch.tensor([0, 0, 1]), 2)
    >>> cloud.centred_means.tolist()
    [[-2.0], [2.0]]
    """

    means: Tensor
    variances: Tensor
    counts: Tensor

    @property
    def centred_means(self) -> Tensor:
        """Class means minus their own mean, shape (C, D); classes count alike."""
        around = self.means - self.means[:1]  # means that coincide are then exactly 0
        return around - around.mean(dim=0)


def class_scatter(features: Tensor, labels: Tensor, classes: int) -> ClassStatistics:
    """Means and variances class by class.

    Args:
        features: (N, D).
        labels: (N,), in 0 .. classes - 1.
        classes: C.

    Raises:
        ValueError: If a class has no sample, or a label is no class.

    >>> cloud = class_scatter(torch.tensor([[0.0], [2.0], [10.0]]), torch.tensor([0, 0, 1]), 2)
    >>> cloud.means.flatten().tolist(), cloud.variances.tolist()
    ([1.0, 10.0], [1.0, 0.0])
    """
    check_class_numbers(labels, len(features), classes)
    kept = features.double()
    counts = torch.bincount(labels, minlength=classes)
    if not bool((counts > 0).all()):
        raise ValueError(
            f"every class needs a sample; got none of {(counts == 0).nonzero().flatten().tolist()}."
        )
    around = kept - kept[:1]  # features that coincide are then exactly 0
    means = kept.new_zeros(classes, kept.shape[1]).index_add_(0, labels, around) / counts[:, None]
    squared = (around - means[labels]).square().sum(dim=1)
    variances = kept.new_zeros(classes).index_add_(0, labels, squared) / counts
    return ClassStatistics(means + kept[:1], variances, counts)


def within_between_ratio(cloud: ClassStatistics) -> float:
    r"""Spread within classes over spread between them, tr S_W / tr S_B: 0 where every class is one point.

    Unchanged by rotation, shift and scale. Infinite where all class means coincide, and where features are not finite.

    >>> features = torch.tensor([[0.0], [2.0], [9.0], [11.0]])
    >>> within_between_ratio(class_scatter(features, torch.tensor([0, 0, 1, 1]), 2))
    0.04938271604938271
    """
    between = cloud.centred_means.square().sum(dim=1).mean()
    return _ratio(float(cloud.variances.mean()), float(between))


def class_distance_normalised_variances(cloud: ClassStatistics) -> Tensor:
    r"""CDNV of every pair of classes: (Var_c + Var_c') / (2 ||mu_c - mu_c'||^2), shape (C (C - 1) / 2,).

    Source: Galanti, György, Hutter, "On the role of neural collapse in transfer learning", ICLR 2022, Eq. 2.
    Infinite where two class means coincide.

    >>> class_distance_normalised_variances(class_scatter(torch.tensor([[0.0], [2.0], [10.0]]),
    ...     torch.tensor([0, 0, 1]), 2))
    tensor([0.0062], dtype=torch.float64)
    """
    means, variances = cloud.means, cloud.variances
    # row by row: of a thousand classes all pairs at once take gigabytes
    squared = torch.cat([(means[k + 1 :] - means[k]).square().sum(dim=1) for k in range(len(means))])
    within = torch.cat([variances[k + 1 :] + variances[k] for k in range(len(means))])
    return torch.where(squared > 0, within / (2 * squared), torch.inf)


def nc1(features: Tensor, labels: Tensor, classes: int) -> float:
    r"""NC1 = tr(S_W S_B^+) / C: spread within classes, seen along the directions in which means differ.

    Source: Papyan, Han, Donoho, "Prevalence of neural collapse", PNAS 2020. S_B has rank C - 1 at most, so
    its pseudo-inverse comes from the C centred means and no D x D matrix is formed.

    Args:
        features: (N, D).
        labels: (N,), int64, at least one of each class.
        classes: C.

    Returns:
        At least 0; infinite where all means are one point, and where features are not finite.

    >>> nc1(torch.tensor([[0.0], [2.0], [10.0], [12.0]]), torch.tensor([0, 0, 1, 1]), 2)    # (1 / 25) / 2
    0.02
    """
    cloud = class_scatter(features, labels, classes)
    if not bool(cloud.means.isfinite().all()):
        return float("inf")
    _, sizes, directions = torch.linalg.svd(cloud.centred_means, full_matrices=False)
    # Centring leaves rounding errors of the size of the means, which may lie far from the origin.
    kept = sizes > cloud.means.norm() * max(cloud.means.shape) * torch.finfo(torch.float64).eps
    if not bool(kept.any()):
        return float("inf")
    deviations = (features.double() - cloud.means[labels]) @ directions[kept].T
    # S_B = M^T M / C, so its pseudo-inverse is C V diag(1 / s^2) V^T; S_W counts samples alike.
    return float((deviations / sizes[kept]).square().sum(dim=1).mean())


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator > 0 else float("inf")
