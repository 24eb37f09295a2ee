"""Variances that never fall below a floor: the parameters that give them, and a warning where they lie on it."""

import math
import warnings

import torch
from torch import Tensor

LEAST_SHARE = 1e-3  # of the floor: what a variance on the floor keeps above it, so that its gradient lives


def at_least_float32(tensor: Tensor) -> torch.dtype:
    """The dtype in which a tensor's densities are computed."""
    return torch.promote_types(tensor.dtype, torch.float32)


def floored_log_variance(raw: Tensor, floor: float) -> Tensor:
    """The logarithm of floor + exp(raw), whose gradient never stops."""
    wide = raw.to(at_least_float32(raw))
    return torch.logaddexp(wide, wide.new_tensor(math.log(floor)))


def floored_factor(root: Tensor, floor: float) -> Tensor:
    """The lower Cholesky factor of floor I + A A^T."""
    wide = root.to(at_least_float32(root))
    with torch.autocast(root.device.type, enabled=False):
        return torch.linalg.cholesky(wide @ wide.T + floor * torch.eye(len(wide)).to(wide))


def log_of_one(floor: float) -> float:
    """The parameter whose floor + exp is 1, or twice a floor above 1/2."""
    return math.log(max(1 - floor, floor))


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
