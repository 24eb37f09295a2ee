"""Linear heads under squared error in closed form: ridge regression, and the special case of two samples."""

from typing import NamedTuple

import torch
from torch import Tensor

from clearance._checks import check_non_negative, check_positive
from clearance._precision import at_least_float32


class LinearHead(NamedTuple):
    """Weight and bias of linear heads: logits = features @ weight^T + bias."""

    weight: Tensor
    bias: Tensor


def solve_ridge(features: Tensor, targets: Tensor, penalty: float | Tensor) -> LinearHead:
    r"""K ridge regressions at once, each with a bias without penalty.

    min_{W,b}  mean_i ||W f_i + b - y_i||^2 + lambda ||W||^2:
    W = (Z^T Z + r I)^-1 Z^T Y = Z^T (Z Z^T + r I)^-1 Y,    b = mean(y) - W mean(f),

    with Z and Y the centred features and targets and r = n lambda. The smaller of the two systems is solved,
    by Cholesky factorisation in float64, because a Gram matrix squares the condition number of the features: that
    costs a float64 copy of them and K (m^2 max(n, D) + m^3 / 3) multiplications, m = min(n, D).

    Source: Sato et al. (2019), Eq. 4, with squared error and a linear head.

    Args:
        features: Frozen or not: gradients flow through the solution.
        targets: One-hot rows, or +1 and -1.
        penalty: lambda above 0, in squared units of the features; a tensor (K,) gives one for each head. If the loss
            is a sum over samples, divide its penalty by n (Algorithm 1, line 5), or by 2 n if the penalty is
            (lambda / 2) ||W||^2 (condition C5).

    Shapes:
        features (K, n, D); targets (K, n, C). Returns weight (K, C, D) and bias (K, C), float64.

    Raises:
        ValueError: If shapes do not fit or `penalty` is not above 0.

    A head whose features are not finite, or whose penalty is lost to rounding, is NaN; the other heads are not
    affected.

    >>> features, targets = torch.eye(3).expand(2, 3, 3), torch.eye(3).expand(2, 3, 3)
    >>> weight, bias = solve_ridge(features, targets, 1e-9)
    >>> torch.allclose(features.double() @ weight.mT + bias[:, None], targets.double())
    True
    """
    _check_shapes(features, targets)
    if isinstance(penalty, Tensor):
        if not bool((penalty > 0).all()):
            raise ValueError(f"`penalty` must be above 0 for every head; got {float(penalty.min())}.")
    else:
        check_positive("penalty", penalty)
    count = features.shape[1]
    r = torch.as_tensor(penalty * float(count), dtype=torch.float64, device=features.device)
    centred, centre = _centred(features.double())
    centred_targets, target_centre = _centred(targets.double())
    r = r.expand(len(features))
    if features.shape[2] <= count:  # a system of D equations, else of n
        weight = _solve_shifted(centred.mT @ centred, centred.mT @ centred_targets, r).mT
    else:
        weight = _solve_shifted(centred @ centred.mT, centred_targets, r).mT @ centred
    return LinearHead(weight, target_centre - (weight @ centre[..., None])[..., 0])


def pair_head(
    first: Tensor,
    second: Tensor,
    first_target: float | Tensor,
    second_target: float | Tensor,
    penalty: float,
) -> LinearHead:
    r"""The scalar linear head of ridge regression on two samples, in closed form.

    theta_bar = tau Delta / (lambda + ||Delta||^2),    theta_0 = (t1 + t2) / 2 - theta_bar . (f1 + f2) / 2,

    with Delta = f1 - f2 and tau = t1 - t2: the minimiser of
    (s(f1) - t1)^2 + (s(f2) - t2)^2 + (lambda / 2) ||theta_bar||^2,  s(f) = theta_bar . f + theta_0.

    Source: Sato et al. (2019), condition C5 and Eq. 11, solved by the Sherman-Morrison formula. It is
    ``solve_ridge`` with n = 2 and the penalty lambda / 4.

    Args:
        first: f1, features of the first sample of each pair.
        second: f2, features of the second.
        first_target: t1, one for all pairs or one for each.
        second_target: t2, likewise.
        penalty: lambda, at least 0, in squared units of the features. At 0 it is the smallest head that
            fits both samples, which does not exist where their features coincide (NaN).

    Shapes:
        first and second (..., D), broadcast against each other; targets broadcast against (...). Returns
        weight (..., D) and bias (...), in the dtype of the features, at least float32.

    Raises:
        ValueError: If `penalty` is below 0.

    All pairs of two sets need no loop: ``pair_head(f[:, None], g[None], 1.0, -1.0, penalty)``.

    >>> weight, bias = pair_head(torch.tensor([3.0, 0.0]), torch.tensor([1.0, 0.0]), 1.0, -1.0, penalty=0.0)
    >>> weight, bias
    (tensor([1., 0.]), tensor(-2.))
    """
    check_non_negative("penalty", penalty)
    first, second = at_least_float32(first), at_least_float32(second)
    difference = first - second
    squared = difference.square().sum(dim=-1)
    dtype, device = difference.dtype, difference.device
    tau = torch.as_tensor(first_target - second_target, dtype=dtype, device=device)
    middle = torch.as_tensor((first_target + second_target) / 2, dtype=dtype, device=device)
    weight = (tau / (penalty + squared))[..., None] * difference
    return LinearHead(weight, middle - (weight * (first + second) / 2).sum(dim=-1))


def _solve_shifted(gram: Tensor, right: Tensor, r: Tensor) -> Tensor:
    """(gram + r I)^-1 right, NaN where that matrix is not positive definite to rounding."""
    shift = r[:, None, None] * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factor, failed = torch.linalg.cholesky_ex(gram + shift)
    solution = torch.cholesky_solve(right, factor)
    return torch.where((failed == 0)[:, None, None], solution, torch.nan)


def _centred(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (K, n, d) without their mean, and that mean (K, d)."""
    # Subtracting the first row beforehand makes rows that are all equal exactly 0.
    shifted = rows - rows[:, :1]
    mean = shifted.mean(dim=1, keepdim=True)
    return shifted - mean, (rows[:, :1] + mean)[:, 0]


def _check_shapes(features: Tensor, targets: Tensor) -> None:
    fits = features.ndim == targets.ndim == 3 and features.shape[:2] == targets.shape[:2]
    if not fits or 0 in features.shape:
        raise ValueError(
            "`features` must be (K, n, D) and `targets` (K, n, C) with the same K and n, none of them 0; got "
            f"{tuple(features.shape)} and {tuple(targets.shape)}."
        )
