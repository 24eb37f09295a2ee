"""A head that says how features of each class are distributed: one Gaussian a class, Wan et al. (2018)."""

import math
from collections.abc import Sequence
from typing import get_args

import torch
from torch import Tensor, nn

from clearance._checks import check_choice, check_count, check_positive
from clearance.heads._half_terms import half_terms, own_half_terms
from clearance.heads._mixture_floor import (
    at_least_float32,
    excess_log_variances,
    floored_eigenvalues,
    floored_factor,
    floored_log_variance,
    half_log_determinants,
    log_of_one,
    log_of_variance,
    root_of_covariance,
    warn_at_floor,
    whitened,
)
from clearance.heads._priors import Priors, checked_priors, log_prior_parameter
from clearance.heads._remembered import Pass, remember, remembered
from clearance.heads._rounding import warn_of_rounded_means, warn_where_rounding_picks
from clearance.heads.mixture_statistics import Covariance, mixture_statistics
from clearance.tensors import check_class_numbers


class GaussianMixture(nn.Module):
    r"""One Gaussian a class in feature space: logits, class densities, the density of the mixture, posteriors.

    p(x) = sum_k pi_k N(x; mu_k, Sigma_k);    logit_k(x) = log pi_k - 1/2 log|Sigma_k| - d_k(x),
    d_k(x) = 1/2 (x - mu_k)^T Sigma_k^-1 (x - mu_k)

    Logits are joint log-densities but for the constant (D/2) log 2 pi; their softmax is the posterior p(k | x).
    Labels play no part: the margin of Wan et al. lives in `GaussianMixtureLoss`. Source: Wan, Zhong, Li, Chen,
    "Rethinking Feature Distribution for Loss Functions in Image Classification", CVPR 2018.

    Args:
        in_features: D, at least 1.
        classes: K, at least 1.
        covariance: ``"identity"`` (fixed; what is published for CIFAR-100), ``"scalar"`` (one variance),
            ``"class_scalar"``, ``"diagonal"`` (one of each dimension, for all classes), ``"class_diagonal"``,
            ``"full"`` (one matrix for all classes). Learned ones start at 1, or at twice a floor above 1/2.
        priors: ``"uniform"``, ``"learned"``, or K probabilities, which stay fixed: empirical ones are the classes'
            shares in the training labels. ``set_priors`` replaces them.
        initial_spread: c, above 0: means start as N(0, c / D), so that their squared distances are about 2 c at
            every width. 2, as the authors' CIFAR-100 file (their MNIST file has 1).
        floor: The least variance (eigenvalue, where full), above 0. 1e-4 as the authors'; here the variance is
            floor + exp(parameter), so that its gradient never stops there.

    Shapes:
        features (B, D); logits, ``log_prob``, ``posterior`` (B, K); ``log_density`` (B,). At least float32, also
        under autocast, which is off inside; float64 where features or parameters are.

    Raises:
        ValueError: If a number is out of range, there is no such covariance, or priors are not K probabilities.

    Misleads: densities depend on the features' unit and are comparable within one trained model alone; far from
    all data one posterior may still be near 1 (with unequal variances that of the widest class). With a shared
    covariance the logits are those of a linear head (:func:`linear_from_mixture`).

    >>> head = GaussianMixture(2, 3)
    >>> features = torch.zeros(4, 2)
    >>> head(features).shape, head.log_density(features).shape
    (torch.Size([4, 3]), torch.Size([4]))
    """

    raw_log_variance: nn.Parameter | None
    covariance_root: nn.Parameter | None
    _told_of_rounding = False

    def __init__(
        self,
        in_features: int,
        classes: int,
        covariance: Covariance = "identity",
        *,
        priors: Priors = "uniform",
        initial_spread: float = 2.0,
        floor: float = 1e-4,
    ) -> None:
        super().__init__()
        check_count("in_features", in_features)
        check_count("classes", classes)
        check_choice("covariance", covariance, get_args(Covariance))
        check_positive("initial_spread", initial_spread)
        check_positive("floor", floor)
        self.in_features, self.classes, self.covariance, self.floor = in_features, classes, covariance, floor
        self.means = nn.Parameter(torch.randn(classes, in_features) * math.sqrt(initial_spread / in_features))
        self.log_priors = log_prior_parameter(priors, classes)
        self.raw_log_variance = self.covariance_root = None
        if covariance == "full":
            self.covariance_root = nn.Parameter(math.sqrt(max(1 - floor, floor)) * torch.eye(in_features))
        elif covariance != "identity":
            rows = classes if covariance.startswith("class_") else 1
            columns = 1 if covariance.endswith("scalar") else in_features
            self.raw_log_variance = nn.Parameter(torch.full((rows, columns), log_of_one(floor)))

    def forward(self, features: Tensor) -> Tensor:
        """Logits: log pi_k - 1/2 log|Sigma_k| - d_k(x), (B, K). Warns, once in evaluation, where rounding picks."""
        x, mu = self._prepared(features, factor := self._factor())
        with torch.autocast(features.device.type, enabled=False):
            distances, volumes, made = half_terms(x, mu, self.raw_log_variance, factor, self.floor)
            logits = (self.log_prior() - volumes).to(x.dtype) - distances
        remember(logits, made if factor is None else None, (self.means, self.raw_log_variance))
        if not (self.training or self._told_of_rounding or self.classes == 1):
            self._told_of_rounding = warn_where_rounding_picks(logits, distances)
        return logits

    def log_prob(self, features: Tensor) -> Tensor:
        """The log-density N(x; mu_k, Sigma_k) of every class, (B, K); it may exceed 0. Rounds as `log_density`."""
        return self(features) - self.log_prior() - self._constant

    def log_density(self, features: Tensor) -> Tensor:
        """The log-density p(x) of the mixture, (B,). Float32 loses nats at spreads of 100 sigma: score in float64."""
        return self(features).logsumexp(dim=1) - self._constant

    def posterior(self, features: Tensor) -> Tensor:
        """p(k | x), (B, K); every row sums to one."""
        return self(features).softmax(dim=1)

    def own_half_distance(self, features: Tensor, labels: Tensor) -> Tensor:
        """d_y(x) of each sample to one class, exact where the products in ``forward`` round, (B,)."""
        return self.own_terms(features, labels)[0]

    def own_terms(self, features: Tensor, labels: Tensor, logits: Tensor | None = None) -> tuple[Tensor, ...]:
        """That distance and 1/2 log|Sigma_y| of each sample, (B,) and (B,); quicker with the logits made of them."""
        check_class_numbers(labels, len(features), self.classes)
        (x, mu), factor, made = self._wide(features), self._factor(), self._made(logits)
        with torch.autocast(features.device.type, enabled=False):
            return own_half_terms(x, labels, mu, self.raw_log_variance, factor, self.floor, made)

    def log_prior(self) -> Tensor:
        """The logarithms of the priors, which sum to one, (K,)."""
        return self.log_priors.to(at_least_float32(self.log_priors)).log_softmax(dim=0)

    def half_log_determinant(self) -> Tensor:
        """Half of log|Sigma_k|, (K,)."""
        v = self._floored(self.raw_log_variance)
        return half_log_determinants(v, self._factor(), self.means).expand(self.classes)

    def log_variance(self) -> Tensor:
        """Logarithms of variances, never below that of the floor: (1, 1), (K, 1), (1, D) or (K, D).

        Of a full covariance the variance of each dimension given those before it, (1, D).
        """
        if (factor := self._factor()) is not None:
            return 2 * factor.diagonal().log()[None]
        v = self._floored(self.raw_log_variance)
        return torch.zeros(1, 1, device=self.means.device) if v is None else v

    def excess_log_variance(self, logits: Tensor | None = None) -> Tensor:
        r"""How far variances are from one: 1/2 (log|Sigma_k| + tr Sigma_k^-1 - D), (1,) or (K,); logits as above."""
        if (made := self._made(logits)) is not None and made.excess_log_variances is not None:
            return made.excess_log_variances
        return excess_log_variances(self.log_variance(), self._factor(), self.in_features)

    def set_priors(self, priors: Sequence[float] | Tensor) -> "GaussianMixture":
        """Replace the priors, as for other shares of classes at test time.

        Args:
            priors: K probabilities above 0 that sum to one.

        Raises:
            ValueError: If they are not.
        """
        with torch.no_grad():
            self.log_priors.copy_(checked_priors(priors, self.classes).log())
        return self

    @torch.no_grad()
    def fit_statistics(self, features: Tensor, labels: Tensor, *, priors: bool = False) -> "GaussianMixture":
        """Set means and covariance to those under which these features are likeliest; returns the head itself.

        Afterwards the mean of 2 d over these features is D, where a covariance is fitted and none of it touches the
        floor. Builds a head on any trained extractor, or repairs one that was trained with Sigma = I.

        Args:
            features: (N, D), finite.
            labels: (N,), int64, at least one of each class.
            priors: Whether priors become the classes' shares in `labels`.

        Raises:
            TypeError: If labels are not int64.
            ValueError: If shapes do not fit, features are not finite, or a class has no sample.

        Warns:
            UserWarning: If a variance is at the floor or below, or the head's dtype rounds the means.
        """
        if features.shape[1:] != (self.in_features,):
            raise ValueError(f"`features` must be (N, {self.in_features}); got {tuple(features.shape)}.")
        found = mixture_statistics(features, labels, self.classes, self.covariance)
        self.means.copy_(found.means)
        if self.covariance_root is not None:
            self.covariance_root.copy_(root_of_covariance(found.variance, self.floor))
        elif self.raw_log_variance is not None:
            self.raw_log_variance.copy_(log_of_variance(found.variance, self.floor))
        if priors:
            self.set_priors(found.shares)
        warn_at_floor(share := self.share_at_floor(), self.floor)
        if share == 0:
            warn_of_rounded_means(found.means, self.means, self.log_variance().exp())
        return self

    @torch.no_grad()
    def share_at_floor(self) -> float:
        """The share of learned variances (eigenvalues, where full) below twice the floor; 0 where all is well."""
        if self.covariance == "identity":
            return 0.0
        root = self.covariance_root
        values = self.log_variance().exp() if root is None else floored_eigenvalues(root, self.floor)
        return float(
            (values < 2 * (1 - 1e-5) * self.floor).double().mean()
        )  # where some begin, but for rounding

    def extra_repr(self) -> str:
        """The settings."""
        kind = f"covariance={self.covariance!r}, learned_priors={self.log_priors.requires_grad}"
        return f"in_features={self.in_features}, classes={self.classes}, {kind}, floor={self.floor}"

    @property
    def _constant(self) -> float:
        return 0.5 * self.in_features * math.log(2 * math.pi)

    def _made(self, logits: Tensor | None) -> Pass | None:
        return remembered(logits, (self.means, self.raw_log_variance))

    def _floored(self, raw: Tensor | None) -> Tensor | None:
        return None if raw is None else floored_log_variance(raw, self.floor)

    def _factor(self) -> Tensor | None:
        return None if self.covariance_root is None else floored_factor(self.covariance_root, self.floor)

    def _prepared(self, features: Tensor, factor: Tensor | None) -> tuple[Tensor, Tensor]:
        """Features and means in one wide dtype, whitened about the means' own mean where the covariance is full."""
        x, mu = self._wide(features)
        if factor is None:
            return x, mu
        origin = mu.detach().mean(dim=0)
        return whitened(x - origin, factor), whitened(mu - origin, factor)

    def _wide(self, features: Tensor) -> tuple[Tensor, Tensor]:
        if features.shape[1:] != (self.in_features,):
            raise ValueError(f"`features` must be (B, {self.in_features}); got {tuple(features.shape)}.")
        wide = torch.promote_types(at_least_float32(features), at_least_float32(self.means))
        return features.to(wide), self.means.to(wide)
