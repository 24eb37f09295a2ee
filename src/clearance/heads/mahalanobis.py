"""Half squared Mahalanobis distances to class means, for all classes by matrix products, for one class exactly."""

from torch import Tensor
from torch.nn.functional import linear

from clearance.tensors import check_class_numbers


def half_distances(features: Tensor, means: Tensor, log_variance: Tensor | None = None) -> Tensor:
    r"""d_k(x) = 1/2 sum_d (x_d - mu_kd)^2 / sigma_kd^2 of every sample to every class, by one or two matrix products.

    The square is expanded, 1/2 (||x||^2 + ||mu_k||^2) - x . mu_k, after the means' own mean was taken from both,
    so no tensor of B K D elements is ever made: (2 or 4) B K D operations, memory of B D + K D + B K.

    Source: Wan et al. (2018), d_k of the paper, its 1/2 included.

    Args:
        features: (B, D).
        means: (K, D).
        log_variance: log sigma^2 as (1, 1), (K, 1), (1, D) or (K, D); None is unit variance.

    Returns:
        (B, K), at least 0.

    Misleads where classes lie far apart in units of sigma: float32 loses the smallest distances to rounding, by
    about 1e-6 times half the squared norm of features and means, in units of sigma (about 1e-3 times where products
    are shortened, TF32 or ``torch.set_float32_matmul_precision("high")``). The order of classes hardly suffers;
    densities do: take :func:`own_half_distance` for a class that matters.

    >>> import torch
    >>> half_distances(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
    tensor([[12.5000]])
    """
    shift = means.detach().mean(dim=0)  # distances do not change, and rounding errors shrink
    x, mu = features - shift, means - shift
    if log_variance is None:
        return _unit_variance(x, mu).clamp(min=0)
    if log_variance.shape[1] == 1:
        return (_unit_variance(x, mu) * log_variance.neg().exp().T).clamp(min=0)
    if log_variance.shape[0] == 1:
        root = (-0.5 * log_variance).exp()
        return _unit_variance(x * root, mu * root).clamp(min=0)
    precision = log_variance.neg().exp()
    weighted = mu * precision
    mixed = linear(x, weighted, -0.5 * (mu * weighted).sum(dim=1))
    return (0.5 * linear(x.square(), precision) - mixed).clamp(min=0)


def own_half_distance(
    features: Tensor, means: Tensor, labels: Tensor, log_variance: Tensor | None = None
) -> Tensor:
    """d_y(x) of each sample to one class, by its differences: exact to rounding, B D operations.

    Args:
        features: (B, D).
        means: (K, D).
        labels: (B,), the class of each.
        log_variance: As in :func:`half_distances`.

    Returns:
        (B,).

    >>> import torch
    >>> own_half_distance(torch.tensor([[3.0, 4.0]]), torch.zeros(2, 2), torch.tensor([1]), torch.zeros(2, 1))
    tensor([12.5000])
    """
    check_class_numbers(labels, len(features), len(means))
    return scaled_half_squares(features - means[labels], rows_of(log_variance, labels))


def scaled_half_squares(offsets: Tensor, log_variance: Tensor | None) -> Tensor:
    """1/2 sum_d o_d^2 / sigma_d^2 of offsets (B, D), with log variances that broadcast to them; (B,)."""
    squares = offsets.square()
    if log_variance is not None:
        squares = squares * log_variance.neg().exp()
    return 0.5 * squares.sum(dim=1)


def rows_of(per_class: Tensor | None, labels: Tensor) -> Tensor | None:
    """The row of each label, or the one row that all classes share."""
    return per_class if per_class is None or len(per_class) == 1 else per_class[labels]


def _unit_variance(x: Tensor, mu: Tensor) -> Tensor:
    return 0.5 * x.square().sum(dim=1, keepdim=True) - linear(x, mu, -0.5 * mu.square().sum(dim=1))
