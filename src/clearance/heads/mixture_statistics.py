"""Gaussian classes fitted to labelled features: means, and variances of every form of covariance."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from clearance.tensors import check_class_numbers

Covariance = Literal["identity", "scalar", "class_scalar", "diagonal", "class_diagonal", "full"]


class MixtureStatistics(NamedTuple):
    """Maximum-likelihood means (K, D), variances, and the share of samples in each class (K,); float64.

    Variances are (1, 1), (K, 1), (1, D) or (K, D) by the form of covariance, (D, D) for a full one.
    """

    means: Tensor
    variance: Tensor
    shares: Tensor


@torch.no_grad()
def mixture_statistics(
    features: Tensor, labels: Tensor, classes: int, covariance: Covariance
) -> MixtureStatistics:
    r"""Means and covariances under which labelled features are likeliest.

    mu_k = mean of class k;  Sigma = 1/n sum_i (x_i - mu_{y_i})(x_i - mu_{y_i})^T, restricted to its form:
    averaged over dimensions (scalars), its diagonal, over the samples of one class (class_*) or of all.

    Args:
        features: (N, D), finite.
        labels: (N,), int64, in 0 .. classes - 1, at least one of each.
        classes: K.
        covariance: The form; that of ``"identity"`` is ones.

    Raises:
        TypeError: If labels are not int64.
        ValueError: If shapes do not fit, features are not finite, or a class has no sample.

    Variances divide by n, not n - 1, so that the mean of 2 d over these samples is D exactly.

    >>> found = mixture_statistics(torch.tensor([[0.0], [2.0], [9.0]]), torch.tensor([0, 0, 1]), 2, "class_scalar")
    >>> found.means.flatten().tolist(), found.variance.flatten().tolist()
    ([1.0, 9.0], [1.0, 0.0])
    """
    check_labelled(features, labels, classes)
    kept = features.double()
    counts = torch.bincount(labels, minlength=classes)
    missing = (counts == 0).nonzero().flatten().tolist()
    if missing:
        raise ValueError(
            f"`labels` must hold every class, because the mean of no samples is not defined; got none of {missing}. "
            "Fit on more samples, or on a mixture of fewer classes."
        )
    # A first guess of the means, taken off, keeps sums of large features exact.
    origin = kept.mean(dim=0)
    sums = kept.new_zeros(classes, kept.shape[1]).index_add_(0, labels, kept - origin)
    means = origin + sums / counts[:, None]
    deviations = kept - means[labels]
    return MixtureStatistics(means, _variance(deviations, labels, counts, covariance), counts / len(labels))


def check_labelled(features: Tensor, labels: Tensor, classes: int) -> None:
    """Refuse features that are not (N, D) and finite, and labels that are not N, int64, in 0 .. classes - 1.

    Raises:
        TypeError: If labels are not int64.
        ValueError: If anything else does not fit.
    """
    if features.ndim != 2 or len(features) == 0:
        raise ValueError(f"`features` must be (N, D), N at least 1; got {tuple(features.shape)}.")
    check_class_numbers(labels.cpu(), len(features), classes)  # looked at once, on any device
    broken = int((~features.isfinite().all(dim=1)).sum())
    if broken:
        raise ValueError(
            f"`features` must be finite; got {broken} of {len(features)} samples with NaN or infinity. Look for the "
            "layer that makes them, or leave those samples out."
        )


def _variance(deviations: Tensor, labels: Tensor, counts: Tensor, covariance: Covariance) -> Tensor:
    if covariance == "identity":
        return deviations.new_ones(1, 1)
    if covariance == "full":
        return deviations.T @ deviations / len(deviations)
    squares = deviations.square()
    if covariance.startswith("class_"):
        sums = squares.new_zeros(len(counts), squares.shape[1]).index_add_(0, labels, squares)
        variance = sums / counts[:, None]
    else:
        variance = squares.mean(dim=0, keepdim=True)
    return variance.mean(dim=1, keepdim=True) if covariance.endswith("scalar") else variance
