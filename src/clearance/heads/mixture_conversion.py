"""A Gaussian mixture with one covariance for all classes is a linear head, and the other way round."""

import torch
from torch import nn

from clearance.heads.gaussian_mixture import GaussianMixture


@torch.no_grad()
def linear_from_mixture(head: GaussianMixture) -> nn.Linear:
    r"""The linear head with the same posteriors, exact for a covariance that all classes share.

    W_k = Sigma^-1 mu_k,    b_k = log pi_k - 1/2 mu_k^T Sigma^-1 mu_k

    Its logits differ from those of the mixture by one number a sample, which softmax does not see; densities are
    lost.

    Raises:
        ValueError: If classes have covariances of their own: boundaries are then quadratic.

    >>> mixture = GaussianMixture(4, 3, "diagonal")
    >>> features = torch.randn(5, 4)
    >>> linear = linear_from_mixture(mixture)
    >>> torch.allclose(linear(features).softmax(1), mixture.posterior(features), atol=1e-5)
    True
    """
    if head.covariance.startswith("class_"):
        raise ValueError(
            f"a linear head needs one covariance for all classes, because others have quadratic boundaries; got "
            f"covariance {head.covariance!r}. Fit a mixture with 'diagonal' or 'full' instead."
        )
    means = head.means.double()
    if head.covariance_root is not None:
        root = head.covariance_root.double()
        covariance = root @ root.T + head.floor * torch.eye(len(root)).to(root)
        weight = torch.linalg.solve(covariance, means.T).T
    else:
        weight = means * head.log_variance().double().neg().exp()
    linear = nn.Linear(head.in_features, head.classes).to(head.means)
    linear.weight.copy_(weight)
    linear.bias.copy_(head.log_prior().double() - 0.5 * (means * weight).sum(dim=1))
    return linear


@torch.no_grad()
def mixture_from_linear(linear: nn.Linear) -> GaussianMixture:
    r"""The mixture with unit covariance and the same posteriors as a linear head; always exact.

    mu_k = W_k,    pi_k proportional to exp(b_k + 1/2 ||W_k||^2)

    Misleads as a density: posteriors say nothing on where the features lie, so the means need not lie among them.
    ``fit_statistics`` puts them there.

    >>> linear = nn.Linear(4, 3)
    >>> features = torch.randn(5, 4)
    >>> torch.allclose(mixture_from_linear(linear).posterior(features), linear(features).softmax(1), atol=1e-5)
    True
    """
    mixture = GaussianMixture(linear.in_features, linear.out_features).to(linear.weight)
    mixture.means.copy_(linear.weight)
    bias = torch.zeros(linear.out_features).to(linear.weight) if linear.bias is None else linear.bias
    log_priors = bias.double() + 0.5 * linear.weight.double().square().sum(dim=1)
    mixture.log_priors.copy_(log_priors - log_priors.logsumexp(dim=0))
    return mixture
