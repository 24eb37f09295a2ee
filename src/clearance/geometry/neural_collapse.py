"""Neural collapse: do class means form a simplex, does the head point at them, is it the nearest mean?

NC1 is :func:`clearance.geometry.nc1`. All numbers are 0 for complete collapse.

Source of all: Papyan, Han, Donoho, "Prevalence of neural collapse", PNAS 2020. The centre is the mean of the
class means (there: of all samples, which is the same for balanced classes).
"""

import torch
from torch import Tensor

from clearance.geometry.nearest import nearest_class_mean
from clearance.geometry.scatter import ClassStatistics


def nc2_equinorm(cloud: ClassStatistics) -> float:
    r"""Std / mean over classes of ||mu_c - mu_G||: 0 where all class means are equally far from their centre.

    Infinite where all class means coincide.

    >>> from clearance.geometry.scatter import class_scatter
    >>> round(nc2_equinorm(class_scatter(torch.eye(3), torch.arange(3), 3)), 12)
    0.0
    """
    lengths = cloud.centred_means.norm(dim=1)
    mean = float(lengths.mean())
    return float(lengths.std(correction=0)) / mean if mean > 0 else float("inf")


def mean_cosines(cloud: ClassStatistics) -> Tensor:
    """Cosine of the angle at the centre between each pair of class means, shape (C (C - 1) / 2,), float64.

    Infinite where a class mean is at the centre and has no direction.

    Raises:
        ValueError: If there is one class.

    >>> from clearance.geometry.scatter import class_scatter
    >>> mean_cosines(class_scatter(torch.tensor([[0.0], [4.0]]), torch.arange(2), 2)).tolist()
    [-1.0]
    """
    centred = cloud.centred_means
    if len(centred) < 2:
        raise ValueError(
            "`cloud` must have at least two classes, because angles are between class means; got 1."
        )
    units = centred / centred.norm(dim=1, keepdim=True)
    # row by row: of a thousand classes all pairs at once take gigabytes
    cosines = torch.cat([(units[k + 1 :] * units[k]).sum(dim=1) for k in range(len(units))])
    return torch.where(cosines.isfinite(), cosines.clamp(-1, 1), torch.inf)


def nc2_equiangle(cloud: ClassStatistics) -> float:
    """Standard deviation over pairs of classes of the cosine between their means: 0 where all angles agree.

    Infinite where a class mean is at the centre. Always 0 for two classes, which have one pair.

    >>> from clearance.geometry.scatter import class_scatter
    >>> round(nc2_equiangle(class_scatter(torch.eye(3), torch.arange(3), 3)), 12)
    0.0
    """
    cosines = mean_cosines(cloud)
    return float(cosines.std(correction=0)) if bool(cosines.isfinite().all()) else float("inf")


def nc2_simplex(cloud: ClassStatistics) -> float:
    """Mean over pairs of classes of abs(cosine + 1 / (C - 1)): 0 where class means form a simplex.

    -1 / (C - 1) is the smallest value that all cosines can share. Infinite where a class mean is at the
    centre. Always 0 for two classes, whose means lie opposite each other.

    >>> from clearance.geometry.scatter import class_scatter
    >>> round(nc2_simplex(class_scatter(torch.eye(3), torch.arange(3), 3)), 12)
    0.0
    """
    return float((mean_cosines(cloud) + 1 / (len(cloud.means) - 1)).abs().mean())


def nc3(weight: Tensor, cloud: ClassStatistics) -> float:
    r"""Distance between a linear head and the class means, || W / ||W||_F - M / ||M||_F ||_F, in [0, 2].

    M holds the centred class means as rows. Infinite where one of both is 0 or not finite.

    Args:
        weight: W of the linear head, shape (C, D); its bias does not matter.
        cloud: Class means, usually of training features.

    Raises:
        ValueError: If the shape of `weight` is not that of the class means.

    >>> from clearance.geometry.scatter import class_scatter
    >>> cloud = class_scatter(torch.eye(3), torch.arange(3), 3)
    >>> round(nc3(5 * cloud.centred_means, cloud), 12)
    0.0
    """
    if weight.shape != cloud.means.shape:
        raise ValueError(
            f"`weight` must have the shape of the class means {tuple(cloud.means.shape)}, because rows are "
            f"compared class by class; got {tuple(weight.shape)}."
        )
    sizes = torch.stack([weight.double().norm(), cloud.centred_means.norm()])
    if not bool((sizes.isfinite() & (sizes > 0)).all()):
        return float("inf")
    return float((weight.double() / sizes[0] - cloud.centred_means / sizes[1]).norm())


def nc4(predicted: Tensor, features: Tensor, means: Tensor) -> float:
    """Share of samples to which a head gives another class than that of the nearest class mean.

    Args:
        predicted: The head's classes, (N,); -1 (no answer) never agrees.
        features: (N, D).
        means: Class means, (C, D), usually of training features.

    >>> means = torch.tensor([[0.0], [10.0]])
    >>> nc4(torch.tensor([0, 0]), torch.tensor([[1.0], [9.0]]), means)
    0.5
    """
    nearest = nearest_class_mean(means, features.to(means.dtype))
    return float((predicted != nearest).double().mean())
