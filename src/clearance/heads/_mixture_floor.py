"""Variances that never fall below a floor: the parameters that give them, and a warning where they lie on it."""

import math
import warnings

import torch
from torch import Tensor

LEAST_SHARE = 1e-3  # of the floor: what a variance on the floor keeps above it, so that its gradient lives


def log_of_variance(variance: Tensor, floor: float) -> Tensor:
    """The parameter whose floor + exp is `variance`; where that is not above the floor, just above it."""
    return (variance - floor).clamp(min=LEAST_SHARE * floor).log()


def root_of_covariance(covariance: Tensor, floor: float) -> Tensor:
    """An A with floor I + A A^T = `covariance`, whose eigenvalues below the floor are lifted just above it."""
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * (values - floor).clamp(min=LEAST_SHARE * floor).sqrt()


def warn_at_floor(share: float, floor: float) -> None:
    """Warn where variances lie on their floor: densities are then those of the floor, not of the features."""
    if share > 0:
        warnings.warn(
            f"{math.ceil(100 * share)} % of the mixture's variances lie on their floor of {floor:g}, so densities "
            "there tell of the floor, not of the features. Features may have collapsed: raise `variance_prior` or "
            "lower `likelihood_weight` in the loss, share variances between classes, or fix them "
            "(covariance='identity').",
            UserWarning,
            stacklevel=3,
        )
