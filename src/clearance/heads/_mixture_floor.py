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
    return torch.logaddexp(wide, log_floor(wide, floor))


def log_floor(beside: Tensor, floor: float) -> Tensor:
    """The floor's logarithm on a tensor's device, written there: a copy from here would make a GPU wait."""
    return torch.full((), math.log(floor), dtype=beside.dtype, device=beside.device)


def floored_factor(root: Tensor, floor: float) -> Tensor:
    """The lower Cholesky factor of floor I + A A^T, by a QR of A^T over sqrt(floor) I.

    In float64, and without that product: it squares the ratio of the largest variance to the floor, which rounding
    then swallows where features do not fill their space.
    """
    exact = _in_float64(root)
    with torch.autocast(root.device.type, enabled=False):
        scaled = math.sqrt(floor) * torch.eye(len(exact)).to(exact)
        upper = torch.linalg.qr(torch.cat([exact.T, scaled])).R
        signs = torch.where(upper.diagonal() < 0, -1.0, 1.0).to(upper)
        return (upper.T * signs).to(root.device, at_least_float32(root))


def floored_eigenvalues(root: Tensor, floor: float) -> Tensor:
    """The eigenvalues of floor I + A A^T, by the singular values of A, float64; NaN where A is not finite.

    They show a direction that collapsed where no diagonal entry of the factor does.
    """
    exact = _in_float64(root)
    if not bool(exact.isfinite().all()):
        return exact.new_full((len(exact),), math.nan)
    return torch.linalg.svdvals(exact).square() + floor


def half_log_determinants(log_variance: Tensor | None, factor: Tensor | None, means: Tensor) -> Tensor:
    """Half of log|Sigma| of each row of variances, or of the one covariance with this factor, (rows,) or (1,)."""
    if factor is not None:
        return factor.diagonal().log().sum()[None]
    if log_variance is None:
        return means.new_zeros(1)
    return 0.5 * (means.shape[1] // log_variance.shape[1]) * log_variance.sum(dim=1)


def excess_log_variances(log_variance: Tensor, factor: Tensor | None, width: int) -> Tensor:
    """1/2 (log|Sigma| + tr Sigma^-1 - D) of each row of variances, or of the covariance with this factor."""
    if factor is None:
        excess = log_variance + log_variance.neg().exp() - 1
        return 0.5 * (width // log_variance.shape[1]) * excess.sum(dim=1)
    inverse = whitened(torch.eye(width).to(factor), factor)
    return (factor.diagonal().log().sum() + 0.5 * (inverse.square().sum() - width))[None]


def whitened(offsets: Tensor, factor: Tensor) -> Tensor:
    """Rows L^-1 o, whose squared lengths are Mahalanobis', in the dtype of the offsets."""
    return torch.linalg.solve_triangular(factor.to(offsets), offsets.T, upper=False).T


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


def _in_float64(root: Tensor) -> Tensor:
    return root.to("cpu" if root.device.type == "mps" else root.device, torch.float64)  # mps has no float64
