"""Gaussian classes fitted to training features after the fact: squared Mahalanobis distances that no unit moves."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from clearance.heads.gaussian_mixture import half_distances, mixture_statistics, own_half_distance

Fitted = Literal["scalar", "class_scalar", "diagonal", "class_diagonal", "full"]
LEAST_VARIANCE = 1e-10  # of the largest: what is less is rounding of float32 features


@dataclass(frozen=True)
class FittedGaussians:
    """Class means and covariance of features, in float64, on the directions along which features vary.

    Unlike the head :class:`~clearance.heads.GaussianMixture` it has no floor, which would be in the features' unit:
    a direction without variance is left out, and `width` counts those that are kept.

    Args:
        basis: (D, D'), the directions kept.
        means: (K, D').
        log_variance: (1 or K, 1 or D').
    """

    basis: Tensor
    means: Tensor
    log_variance: Tensor

    @property
    def width(self) -> int:
        """How many directions are kept: the degrees of freedom of a squared distance."""
        return self.basis.shape[1]

    def projected(self, features: Tensor) -> Tensor:
        """Features along the directions kept, (N, D')."""
        return features.to(self.basis.dtype) @ self.basis

    def squared_own(self, features: Tensor, labels: Tensor) -> Tensor:
        """2 d_y(x), exact, (N,)."""
        return 2 * own_half_distance(self.projected(features), self.means, labels, self.log_variance)

    def squared(self, features: Tensor) -> Tensor:
        """2 d_k(x) to every class, (N, K), differentiable; in the dtype that the basis has."""
        return 2 * half_distances(self.projected(features), self.means, self.log_variance)


def fitted_gaussians(features: Tensor, labels: Tensor, classes: int, covariance: Fitted) -> FittedGaussians:
    """Maximum-likelihood means and covariance, so that the mean of 2 d_y over these features is `width`.

    Args:
        features: (N, D), finite.
        labels: (N,), every class at least once.
        classes: K.
        covariance: Its form, as in :class:`~clearance.heads.GaussianMixture`.

    Raises:
        ValueError: If features are not finite, or a class has no sample.

    >>> features, labels = torch.randn(60, 3), torch.arange(60) % 2
    >>> fitted = fitted_gaussians(features, labels, 2, "full")
    >>> round(float(fitted.squared_own(features, labels).mean()), 6)
    3.0
    """
    found = mixture_statistics(features, labels, classes, covariance)
    if covariance == "full":
        values, vectors = torch.linalg.eigh(found.variance)
        kept = values > LEAST_VARIANCE * values.max().clamp(min=0)
        basis, variance = vectors[:, kept], values[kept][None]
    else:
        variance = found.variance.expand(-1, features.shape[1])
        kept = (variance > LEAST_VARIANCE * variance.max()).all(dim=0)
        basis = torch.eye(features.shape[1], dtype=torch.float64, device=features.device)[:, kept]
        variance = variance[:, kept]
    return FittedGaussians(basis, found.means @ basis, variance.log())
