"""Linear discriminant of one class against all others: how far one direction sets the class apart."""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearance._checks import check_positive
from clearance.geometry.scatter import class_scatter


@dataclass(frozen=True)
class PooledScatter:
    """Scatter within all C classes along its own axes, float64: what every class-against-rest problem shares.

    Args:
        axes: Orthonormal columns, shape (D, R), R = min(N, D); all samples lie in their span around a point.
        spectrum: Sums of squared deviations from class means along each axis, shape (R,).
        means: Class means along the axes, around the mean of all samples, shape (C, R).
        counts: Samples of each class, shape (C,).
    """

    axes: Tensor
    spectrum: Tensor
    means: Tensor
    counts: Tensor


@dataclass(frozen=True)
class Discriminant:
    """The direction along which a class lies farthest from the rest, for its scatter.

    Args:
        eigenvalue: Scatter between the two groups over scatter within them, regularised; 0 to infinity.
        direction: Unit length, float64, shape (D,), pointing to the class; 0 where both means coincide.
    """

    eigenvalue: float
    direction: Tensor


def pooled_scatter(features: Tensor, labels: Tensor, classes: int) -> PooledScatter:
    """The one eigendecomposition that all classes and all regularisers share.

    Costs N D^2 + D^3, or D N^2 + N^3 where there are fewer samples than dimensions: samples are then first
    written in an orthonormal basis of their own span, which is exact and keeps small eigenvalues (a matrix
    of inner products would not).

    Features are (N, D), finite; labels are (N,), in 0 .. C - 1, with C at least 2.

    Raises:
        ValueError: If a class has no sample, or there is only one class.

    >>> pooled_scatter(torch.tensor([[0.0], [2.0], [10.0], [12.0]]), torch.tensor([0, 0, 1, 1]), 2).spectrum
    tensor([4.], dtype=torch.float64)
    """
    if classes < 2:
        raise ValueError(
            f"`classes` must be at least 2, because a class is held against others; got {classes}."
        )
    points = features.double() - features.double().mean(dim=0)
    basis = torch.linalg.qr(points.T).Q if len(points) < points.shape[1] else None
    points = points if basis is None else points @ basis
    cloud = class_scatter(points, labels, classes)
    points = points - cloud.means[labels]
    spectrum, axes = torch.linalg.eigh(points.T @ points)
    return PooledScatter(
        axes=axes if basis is None else basis @ axes,
        spectrum=spectrum.clamp(min=0),
        means=cloud.means @ axes,
        counts=cloud.counts,
    )


def versus_rest(pooled: PooledScatter, chosen: int, regulariser: float) -> Discriminant:
    r"""Linear discriminant of class `chosen` against all other samples together.

    lambda = max_w  (w^T S_B w) / (w^T (S_W + eps tr(S_W) / D I) w) = (n1 n2 / n) d^T (S_W + r I)^-1 d,
    d = mean of the class - mean of the rest, and w proportional to (S_W + r I)^-1 d

    S_B has rank 1, so there is one such direction and no second axis. Unregularised, lambda = R^2 / (1 - R^2)
    of the regression of class membership on the features.

    Source: Sato et al. (2019), section 4.3, where features have unit length and eps is not stated.

    S_W of this two-group problem is the pooled scatter P plus B B^T, the scatter of the other classes' means
    around the mean of the rest. With y = (P + r I)^-1/2 d and Z = (P + r I)^-1/2 B, the minimum over u of
    ||y - Z u||^2 + ||u||^2 is d^T (S_W + r I)^-1 d: nothing is subtracted, so points are no harder than clouds.

    `chosen` is in 0 .. C - 1; eps is above 0, and relative, so that the unit of features does not matter.

    Raises:
        ValueError: If `regulariser` is not above 0.

    Misleads: for more dimensions than samples, or features with many dead axes, `regulariser` decides
    lambda; report several. On training samples lambda is optimistic: see :func:`scatter_ratio` on others.

    >>> features = torch.tensor([[0.0, 0.0], [2.0, 0.0], [9.0, 1.0], [11.0, 1.0], [0.0, 1.0], [2.0, 1.0]])
    >>> pooled = pooled_scatter(features, torch.tensor([0, 0, 1, 1, 0, 0]), classes=2)
    >>> round(versus_rest(pooled, 1, 1e-8).eigenvalue, 4)
    18.3333
    """
    check_positive("regulariser", regulariser)
    counts = pooled.counts.double()
    others = torch.arange(len(counts), device=counts.device) != chosen
    weights = counts[others] / counts[others].sum()
    rest = weights @ pooled.means[others]
    d = pooled.means[chosen] - rest
    B = ((pooled.means[others] - rest) * counts[others].sqrt()[:, None]).T
    weight = float(counts[chosen] * counts[others].sum() / counts.sum())
    trace = float(pooled.spectrum.sum() + B.square().sum())
    if trace <= _rounding(pooled):
        return _of_points(pooled, d)
    scale = (pooled.spectrum + regulariser * trace / len(pooled.axes)).rsqrt()
    y, Z = scale * d, scale[:, None] * B
    identity = torch.eye(B.shape[1], dtype=B.dtype, device=B.device)
    target = torch.cat([y, y.new_zeros(len(identity))])
    u = torch.linalg.lstsq(torch.cat([Z, identity]), target[:, None]).solution[:, 0]
    residual = y - Z @ u
    eigenvalue = weight * float(residual.square().sum() + u.square().sum())
    return Discriminant(eigenvalue, _unit(pooled.axes @ (scale * residual)))


def scatter_ratio(scores: Tensor, positive: Tensor) -> float:
    """Scatter between two groups over scatter within them, of numbers on a line.

    (n1 n2 / n) (m1 - m2)^2 / sum of squared deviations from the own group's mean. For the projections of the
    samples that gave a discriminant it is at least its (regularised) eigenvalue; for others it says what of
    the eigenvalue is there on new samples. 0 where the means coincide, infinite where both groups are points.

    Both are (N,); `positive` is boolean, with both kinds.

    Raises:
        ValueError: If one of the two groups is empty.

    >>> scatter_ratio(torch.tensor([0.0, 2.0, 10.0, 12.0]), torch.tensor([False, False, True, True]))
    25.0
    """
    own, rest = scores[positive].double(), scores[~positive].double()
    if min(len(own), len(rest)) == 0:
        raise ValueError(f"both groups need a sample; got {len(own)} of one and {len(rest)} of the other.")
    squared = float((own.mean() - rest.mean()).square())
    within = float((own - own.mean()).square().sum() + (rest - rest.mean()).square().sum())
    if squared == 0:
        return 0.0
    return len(own) * len(rest) / len(scores) * squared / within if within > 0 else float("inf")


def _rounding(pooled: PooledScatter) -> float:
    """Scatter that identical samples have because their mean is rounded."""
    largest = float(pooled.means.square().sum(dim=1).max())
    return float(pooled.counts.sum()) * largest * (16 * torch.finfo(torch.float64).eps) ** 2


def _of_points(pooled: PooledScatter, d: Tensor) -> Discriminant:
    if float(d.square().sum() * pooled.counts.sum()) > _rounding(pooled):
        return Discriminant(float("inf"), _unit(pooled.axes @ d))
    return Discriminant(0.0, d.new_zeros(len(pooled.axes)))


def _unit(direction: Tensor) -> Tensor:
    length = direction.norm()
    return direction / length if float(length) > 0 else direction
