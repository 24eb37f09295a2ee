"""The dimension of features: eigenvalues of their covariance, effective rank and principal axes."""

import torch
from torch import Tensor

from clearance._checks import check_count
from clearance.geometry.nearest import unit_length


def covariance_spectrum(features: Tensor) -> Tensor:
    """Eigenvalues of the covariance of a cloud, largest first, float64, shape (min(N, D),).

    For the spectrum within one class pass that class's rows. Sums are divided by N. If N < D, the N x N
    matrix of inner products is used: it has the same eigenvalues above 0. Eigenvalues within the rounding error of
    `features` are set to 0, so that a class in one point has the spectrum of a point.

    Features are (N, D), finite.

    Misleads: N points span at most N - 1 axes, so a small class looks low-dimensional whatever its features.

    >>> covariance_spectrum(torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])).tolist()
    [2.0, 0.5]
    """
    centred = features.double() - features.double().mean(dim=0)
    count, width = centred.shape
    scatter = centred.T @ centred if count >= width else centred @ centred.T
    values = torch.linalg.eigvalsh(scatter).flip(0).clamp(min=0) / count
    largest = features.abs().amax(dim=0).double()
    varies = features.amax(dim=0) > features.amin(dim=0)  # a constant rounds nothing but its mean
    own = float((largest * varies).max()) * torch.finfo(features.dtype).eps
    own = max(own, float(largest.norm()) * 2 * torch.finfo(torch.float64).eps)
    solver = float(values[0]) * len(values) * torch.finfo(torch.float64).eps
    return torch.where(values > max(own**2, solver), values, 0.0)


def first_axis_share(spectrum: Tensor) -> float:
    """The share of all variance that lies on the first principal axis, in (0, 1]: 1 for a cloud on a line.

    It is 1 for a single point too: no variance lies elsewhere. Eigenvalues, (R,), are at least 0, largest first.

    >>> first_axis_share(torch.tensor([3.0, 1.0]))
    0.75
    """
    total = float(spectrum.sum())
    return float(spectrum[0]) / total if total > 0 else 1.0


def effective_rank(spectrum: Tensor) -> float:
    r"""exp(entropy) of the shares of variance: from 1 (a line) to R (equal in every direction); 0 for a point.

    erank = exp(- sum_i p_i ln p_i),  p_i = l_i / sum_j l_j

    Source: Roy, Vetterli, "The effective rank: a measure of effective dimensionality", EUSIPCO 2007, for the
    covariance matrix (whose singular values are its eigenvalues, not their roots).

    Eigenvalues, (R,), are at least 0.

    >>> round(effective_rank(torch.tensor([2.0, 2.0, 2.0, 0.0])), 12)
    3.0
    """
    total = spectrum.double().sum()
    if not float(total) > 0:
        return 0.0
    return float(torch.special.entr(spectrum.double() / total).sum().exp())


def principal_axes(features: Tensor, count: int) -> Tensor:
    """The first principal axes as rows of unit length, float64, shape (count, D).

    Signs make the largest entry of each axis positive. Axes beyond min(N, D) are 0, and with N < D those along which
    nothing varies. Features are (N, D), finite; `count` is at least 1.

    >>> principal_axes(torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 1).tolist()
    [[1.0, 0.0]]
    """
    check_count("count", count)
    centred = features.double() - features.double().mean(dim=0)
    if len(centred) < centred.shape[1]:
        # Eigenvectors of the inner products give the axes as sums of samples; far cheaper than their SVD.
        squared, weights = torch.linalg.eigh(centred @ centred.T)
        axes = unit_length(weights.flip(1).T[:count] @ centred)
        rounding = len(squared) * torch.finfo(torch.float64).eps * squared[-1]
        axes[squared.flip(0)[:count] <= rounding] = 0.0
    else:
        axes = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1).T[:count]
    axes = torch.nn.functional.pad(axes, (0, 0, 0, count - len(axes)))
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))
    return axes * torch.where(largest < 0, -1.0, 1.0)
