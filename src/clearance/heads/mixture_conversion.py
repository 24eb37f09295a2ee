"""A Gaussian mixture with one covariance for all classes is a linear head, and the other way round."""

import torch
from torch import nn

from clearance.heads._mixture_floor import at_least_float32, floored_factor
from clearance.heads.gaussian_mixture import GaussianMixture


@torch.no_grad()
def linear_from_mixture(head: GaussianMixture) -> nn.Linear:
    r"""The linear head with the same posteriors, exact but for rounding where all classes share a covariance.

    W_k = Sigma^-1 (mu_k - mu),    b_k = log pi_k - 1/2 (mu_k^T Sigma^-1 mu_k - its mean over classes),

    mu the mean of the mu_k: what all rows share is left out, because softmax does not see it and rounding does. Its
    logits differ from those of the mixture by one number a sample; densities are lost. Computed in float64, then
    rounded to the dtype of the head's means.

    Raises:
        TypeError: If the head is no GaussianMixture.
        ValueError: If classes have covariances of their own: boundaries are then quadratic.

    Misleads a little where features lie far from 0 in units of sigma, because a linear layer multiplies them as they
    are: in float32 log-posteriors of 64 features are off by up to 1e-3 at an offset of 100 sigma, 1e-2 at 1000.
    Convert ``head.double()``, and give it float64 features, where that counts.

    >>> mixture = GaussianMixture(4, 3, "diagonal")
    >>> features = torch.randn(5, 4)
    >>> linear = linear_from_mixture(mixture)
    >>> torch.allclose(linear(features).softmax(1), mixture.posterior(features), atol=1e-5)
    True
    """
    if not isinstance(head, GaussianMixture):
        raise TypeError(f"`head` must be a GaussianMixture; got {type(head).__name__}.")
    if head.covariance.startswith("class_"):
        raise ValueError(
            f"a linear head needs one covariance for all classes, because others have quadratic boundaries; got "
            f"covariance {head.covariance!r}. Fit a mixture with 'diagonal' or 'full' instead."
        )
    means = head.means.double()
    centred = means - means.mean(dim=0)
    if head.covariance_root is not None:
        factor = floored_factor(head.covariance_root.double(), head.floor)
        weight, own = (torch.cholesky_solve(rows.T, factor).T for rows in (centred, means))
    else:
        precision = head.log_variance().double().neg().exp()
        weight, own = centred * precision, means * precision
    half_squares = 0.5 * (means * own).sum(dim=1)
    linear = nn.Linear(head.in_features, head.classes).to(head.means)
    linear.weight.copy_(weight)
    linear.bias.copy_(head.log_prior().double() - (half_squares - half_squares.mean()))
    return linear


@torch.no_grad()
def mixture_from_linear(linear: nn.Linear) -> GaussianMixture:
    r"""The mixture with unit covariance and the same posteriors as a linear head: of every one, exact but for rounding.

    mu_k = W_k,    pi_k proportional to exp(b_k + 1/2 ||W_k||^2)

    Its parameters are float32 at least, because priors of a narrow layer would lose what they balance.

    Raises:
        TypeError: If it is not one linear layer.

    Misleads as a density: posteriors say nothing on where the features lie, so the means need not lie among them.
    ``fit_statistics`` puts them there.

    >>> linear = nn.Linear(4, 3)
    >>> features = torch.randn(5, 4)
    >>> torch.allclose(mixture_from_linear(linear).posterior(features), linear(features).softmax(1), atol=1e-5)
    True
    """
    if not isinstance(linear, nn.Linear):
        raise TypeError(
            f"`linear` must be a torch.nn.Linear; got {type(linear).__name__}. Of several layers convert the last, and "
            "keep those before it in the extractor."
        )
    wide = at_least_float32(linear.weight)
    mixture = GaussianMixture(linear.in_features, linear.out_features).to(linear.weight.device, wide)
    mixture.means.copy_(linear.weight)
    bias = torch.zeros(linear.out_features).to(linear.weight) if linear.bias is None else linear.bias
    log_priors = bias.double() + 0.5 * linear.weight.double().square().sum(dim=1)
    mixture.log_priors.copy_(log_priors - log_priors.logsumexp(dim=0))
    return mixture
