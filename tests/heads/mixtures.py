"""Mixtures and features that the tests of densities share."""

import torch

from clearance import Outputs
from clearance.heads import GaussianMixture
from clearance.losses import GaussianMixtureLoss

COVARIANCES = ("identity", "scalar", "class_scalar", "diagonal", "class_diagonal", "full")
SHARED = ("identity", "scalar", "diagonal", "full")


def mixture(covariance="class_diagonal", width=7, classes=4, seed=0, priors="learned", dtype=torch.float64):
    """A mixture with nothing at its first value."""
    draws = torch.Generator().manual_seed(seed)
    head = GaussianMixture(width, classes, covariance, priors=priors).to(dtype)
    with torch.no_grad():
        head.means.zero_()
        for parameter in head.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=draws).to(dtype))
    return head


def samples(count=20, width=7, classes=4, seed=1, dtype=torch.float64):
    draws = torch.Generator().manual_seed(seed)
    features = torch.randn(count, width, generator=draws, dtype=torch.float64)
    labels = torch.randint(classes, (count,), generator=draws)
    labels[:classes] = torch.arange(min(classes, count))
    return features.to(dtype), labels


def covariance_of(head, k):
    """Sigma_k as a matrix, from what the docstring says of the parameters."""
    width, eye = head.in_features, torch.eye(head.in_features, dtype=torch.float64)
    if head.covariance == "full":
        root = head.covariance_root.double()
        return root @ root.T + head.floor * eye
    if head.covariance == "identity":
        return eye
    variance = head.floor + head.raw_log_variance.double().exp()
    return torch.diag(variance[k if len(variance) > 1 else 0].expand(width))


def outputs_of(head, features):
    """What a model with this head gives for these features."""
    return Outputs(features, head(features), head)


def terms(head, features, labels, *settings):
    """The terms of the L-GM loss as published, by name."""
    loss = GaussianMixtureLoss(*settings)
    loss.bounded = False
    return loss(outputs_of(head, features), labels).terms
