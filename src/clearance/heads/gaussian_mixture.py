"""A head of one Gaussian per class in feature space, its statistics and conversions: Wan et al. (2018)."""

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearance._checks import check_choice, check_count, check_non_negative, check_positive
from clearance._precision import at_least_float32
from clearance.tensors import check_class_numbers

Covariance = Literal["identity", "scalar", "class_scalar", "diagonal", "class_diagonal", "full"]
Priors = Literal["uniform", "learned"] | Sequence[float] | Tensor
_ABOVE_FLOOR = (
    1e-3  # share of the floor that a variance on the floor keeps above it, so that it has a gradient
)
_LARGEST_MEAN_ERROR = 1e-5  # that rounded means may add to the mean of 2 d / D, which is 1
LARGEST_ROUNDING = 0.1  # nats that rounding may change a score by


class GaussianMixture(nn.Module):
    r"""One Gaussian per class in feature space: logits, class densities, the density of the mixture, posteriors.

    p(x) = sum_k pi_k N(x; mu_k, Sigma_k);    logit_k(x) = log pi_k - 1/2 log|Sigma_k| - d_k(x),
    d_k(x) = 1/2 (x - mu_k)^T Sigma_k^-1 (x - mu_k)

    Logits are joint log-densities except for the constant (D/2) log 2 pi; their softmax is the posterior p(k | x).
    They do not depend on labels: the margin of Wan et al. is in `GaussianMixtureLoss`. Source: Wan, Zhong, Li, Chen,
    "Rethinking Feature Distribution for Loss Functions in Image Classification", CVPR 2018.

    Args:
        in_features: D, at least 1.
        classes: K, at least 1.
        covariance: ``"identity"`` (fixed, as published for CIFAR-100), ``"scalar"`` (one variance),
            ``"class_scalar"``, ``"diagonal"`` (one for each dimension, shared by all classes), ``"class_diagonal"``,
            ``"full"`` (one matrix for all classes). Learned ones start at 1, or at twice a floor above 1/2.
        priors: ``"uniform"``, ``"learned"``, or K fixed probabilities, such as the classes' shares in the training
            labels. ``set_priors`` replaces them.
        initial_spread: c, above 0: means start as N(0, c / D), so that their squared distances are about 2 c at
            every width. 2 as in the authors' CIFAR-100 file (their MNIST file has 1).
        floor: The smallest variance (eigenvalue, if full), above 0. 1e-4 as in the authors' code; here the variance
            is floor + exp(parameter), so that its gradient does not vanish there.

    Shapes:
        features (B, D); logits, ``log_prob``, ``posterior`` (B, K); ``log_density`` (B,). At least float32, also
        under autocast, which is off inside; float64 if features or parameters are.

    Raises:
        ValueError: If a number is out of range, `covariance` is unknown, or priors are not K probabilities.

    Misleads: densities depend on the features' unit and are comparable only within one trained model; far from
    all data one posterior may still be near 1 (with unequal variances, that of the widest class). With a shared
    covariance the logits equal those of a linear head (:func:`linear_from_mixture`).

    >>> head = GaussianMixture(2, 3)
    >>> features = torch.zeros(4, 2)
    >>> head(features).shape, head.log_density(features).shape
    (torch.Size([4, 3]), torch.Size([4]))
    """

    raw_log_variance: nn.Parameter | None
    covariance_root: nn.Parameter | None
    _warned_of_rounding = False

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
        self.log_priors = _log_prior_parameter(priors, classes)
        self._learned_priors = self.log_priors.requires_grad
        self.raw_log_variance = self.covariance_root = None
        above_floor = max(1 - floor, floor)  # a variance of 1, or of twice a floor above 1/2
        if covariance == "full":
            self.covariance_root = nn.Parameter(math.sqrt(above_floor) * torch.eye(in_features))
        elif covariance != "identity":
            rows = classes if covariance.startswith("class_") else 1
            columns = 1 if covariance.endswith("scalar") else in_features
            self.raw_log_variance = nn.Parameter(torch.full((rows, columns), math.log(above_floor)))

    def forward(self, features: Tensor) -> Tensor:
        """Logits: log pi_k - 1/2 log|Sigma_k| - d_k(x), (B, K). Warns, once in evaluation, if rounding decides."""
        x, mu = self._prepared(features, factor := self._factor())
        with torch.autocast(features.device.type, enabled=False):
            v = self._floored(self.raw_log_variance)
            distances = half_distances(x, mu, None if v is None else v.to(x.dtype))
            volumes = _half_log_determinants(v, factor, mu)
            logits = (self.log_prior() - volumes).to(x.dtype) - distances
        if not (self.training or self._warned_of_rounding or self.classes == 1):
            self._warned_of_rounding = _warn_where_rounding_picks(logits, distances)
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

    def own_terms(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """d_y(x), as `own_half_distance`, and 1/2 log|Sigma_y| of each sample, (B,) and (B,)."""
        check_class_numbers(labels, len(features), self.classes)
        (x, mu), factor = self._in_one_dtype(features), self._factor()
        with torch.autocast(features.device.type, enabled=False):
            offsets = x - _rows_of(mu, labels)  # before whitening, so that their common part is not rounded
            if factor is not None:
                offsets = _whitened(offsets, factor)
            # before the logarithm: rows of a few samples in place of those of all classes
            raw = self.raw_log_variance
            v = self._floored(None if raw is None else _rows_of(raw, labels))
            distance = _scaled_half_squares(offsets, None if v is None else v.to(x.dtype))
            volume = _half_log_determinants(v, factor, mu).to(x.dtype)
        return distance, volume.expand(len(labels))

    @torch.no_grad()
    def half_distance_to_other_means(self, labels: Tensor) -> Tensor:
        r"""The mean over the other classes of d_y(mu_k): half a squared distance in units of Sigma_y, (B,).

        1/(K - 1) sum_k d_y(mu_k) = K/(K - 1) (d_y(m) + 1/K sum_k 1/2 ||mu_k - m||^2),  m the mean of the means,

        so that no pair of classes is looked at. inf if the head has one class.

        Args:
            labels: (B,).
        """
        if self.classes == 1:
            return torch.full((len(labels),), math.inf, device=self.means.device)
        with torch.autocast(self.means.device.type, enabled=False):
            _, mu = self._prepared(self.means, self._factor())
            squares = (mu - mu.mean(dim=0)).square()
            raw = self.raw_log_variance
            v = self._floored(None if raw is None else _rows_of(raw, labels))
            both = squares[labels] + squares.mean(dim=0)
            if v is not None:
                both = both * v.to(both).neg().exp()
            return 0.5 * self.classes / (self.classes - 1) * both.sum(dim=1)

    def log_prior(self) -> Tensor:
        """The logarithms of the priors, which sum to one, (K,)."""
        kept = (
            self.log_priors if self._learned_priors else self.log_priors.detach()
        )  # also once all is unfrozen
        return at_least_float32(kept).log_softmax(dim=0)

    def half_log_determinant(self) -> Tensor:
        """Half of log|Sigma_k|, (K,)."""
        v = self._floored(self.raw_log_variance)
        return _half_log_determinants(v, self._factor(), self.means).expand(self.classes)

    def log_variance(self) -> Tensor:
        """Logarithms of variances, at least that of the floor: (1, 1), (K, 1), (1, D) or (K, D).

        For a full covariance, the variance of each dimension given those before it, (1, D).
        """
        if (factor := self._factor()) is not None:
            return 2 * factor.diagonal().log()[None]
        v = self._floored(self.raw_log_variance)
        return torch.zeros(1, 1, device=self.means.device) if v is None else v

    def excess_log_variance(self) -> Tensor:
        r"""How far variances are from one: 1/2 (log|Sigma_k| + tr Sigma_k^-1 - D), (1,) or (K,)."""
        width = self.in_features
        if (factor := self._factor()) is None:
            log_variance = self.log_variance()
            excess = log_variance + torch.expm1(-log_variance)  # accurate for variances near 1
            return 0.5 * (width // log_variance.shape[1]) * excess.sum(dim=1)
        inverse = _whitened(torch.eye(width).to(factor), factor)
        return (factor.diagonal().log().sum() + 0.5 * (inverse.square().sum() - width))[None]

    def set_priors(self, priors: Sequence[float] | Tensor) -> "GaussianMixture":
        """Replace the priors, for example if the shares of classes differ at test time.

        Args:
            priors: K probabilities above 0 that sum to one.

        Raises:
            ValueError: If they are not.
        """
        with torch.no_grad():
            self.log_priors.copy_(_checked_priors(priors, self.classes).log())
        return self

    @torch.no_grad()
    def fit_statistics(self, features: Tensor, labels: Tensor, *, priors: bool = False) -> "GaussianMixture":
        """Set means and covariance to their maximum-likelihood values for these features; returns the head.

        Afterwards the mean of 2 d over these features is D, if a covariance is fitted and is above the floor.
        Useful to build a head on any trained extractor, or to fit the covariance after training with Sigma = I.

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
            self.covariance_root.copy_(_root_of_covariance(found.variance, self.floor))
        elif self.raw_log_variance is not None:
            self.raw_log_variance.copy_(log_of_variance(found.variance, self.floor))
        if priors:
            self.set_priors(found.shares)
        warn_at_floor(share := self.share_at_floor(), self.floor)
        if share == 0:
            _warn_of_rounded_means(found.means, self.means, self.log_variance().exp())
        return self

    @torch.no_grad()
    def mean_offset(self, features: Tensor, labels: Tensor) -> float:
        r"""How far learned means are from those of their classes, from 0 to 1: a part of the distance to them.

        sum_k n_k d_k(m_k) / sum_i d_{y_i}(x_i),  m_k the mean of the n_k features of class k

        The distances of a class's features to its learned mean are those to its own mean plus that between the two.
        0: they are equal. Near 1: densities show how far the means are off, and hardly what an image looks like.

        Args:
            features: (N, D), finite.
            labels: (N,).

        >>> head = GaussianMixture(3, 2).fit_statistics(features := torch.randn(8, 3), labels := torch.arange(8) % 2)
        >>> head.mean_offset(features, labels) < 1e-6 < 0.9 < head.mean_offset(features + 100, labels)
        True
        """
        check_class_numbers(labels, len(features), self.classes)
        wide, counts = features.double(), torch.bincount(labels, minlength=self.classes)
        present = counts.nonzero().flatten()
        sums = wide.new_zeros(self.classes, self.in_features).index_add_(0, labels, wide)
        middles = sums[present] / counts[present, None]
        off = float((counts[present] * self.own_half_distance(middles, present)).sum())
        whole = float(self.own_half_distance(wide, labels).sum())
        return off / whole if whole > 0 else 0.0

    @torch.no_grad()
    def share_at_floor(self) -> float:
        """The share of learned variances (eigenvalues, if full) below twice the floor."""
        if self.covariance == "identity":
            return 0.0
        root = self.covariance_root
        values = self.log_variance().exp() if root is None else _floored_eigenvalues(root, self.floor)
        least = 2 * (1 - 1e-5) * self.floor  # new heads may start at twice the floor, except for rounding
        return float((values < least).double().mean())

    def extra_repr(self) -> str:
        """The settings."""
        kind = f"covariance={self.covariance!r}, learned_priors={self._learned_priors}"
        return f"in_features={self.in_features}, classes={self.classes}, {kind}, floor={self.floor}"

    @property
    def _constant(self) -> float:
        return 0.5 * self.in_features * math.log(2 * math.pi)

    def _floored(self, raw: Tensor | None) -> Tensor | None:
        return None if raw is None else _floored_log_variance(raw, self.floor)

    def _factor(self) -> Tensor | None:
        return None if self.covariance_root is None else _floored_factor(self.covariance_root, self.floor)

    def _prepared(self, features: Tensor, factor: Tensor | None) -> tuple[Tensor, Tensor]:
        """Features and means in one dtype; for a full covariance whitened, about the mean of the means."""
        x, mu = self._in_one_dtype(features)
        if factor is None:
            return x, mu
        origin = mu.detach().mean(dim=0)
        return _whitened(x - origin, factor), _whitened(mu - origin, factor)

    def _in_one_dtype(self, features: Tensor) -> tuple[Tensor, Tensor]:
        if features.shape[1:] != (self.in_features,):
            raise ValueError(f"`features` must be (B, {self.in_features}); got {tuple(features.shape)}.")
        x, mu = at_least_float32(features), at_least_float32(self.means)
        dtype = torch.promote_types(x.dtype, mu.dtype)
        return x.to(dtype), mu.to(dtype)


def half_distances(features: Tensor, means: Tensor, log_variance: Tensor | None = None) -> Tensor:
    r"""d_k(x) = 1/2 sum_d (x_d - mu_kd)^2 / sigma_kd^2 of every sample to every class, by one or two matrix products.

    The square is expanded, 1/2 (||x||^2 + ||mu_k||^2) - x . mu_k, after subtracting the mean of the means from both,
    so there is no tensor of B K D elements: (2 or 4) B K D operations, memory of B D + K D + B K.

    Source: Wan et al. (2018), d_k of the paper, with its 1/2.

    Features are (B, D), means (K, D), and log sigma^2 is (1, 1), (K, 1), (1, D) or (K, D); None is unit variance.
    Distances are (B, K), at least 0.

    Misleads where classes lie far apart in units of sigma: float32 loses the smallest distances to rounding, by
    about 1e-6 times half the squared norm of features and means, in units of sigma (about 1e-3 times with TF32 or
    ``torch.set_float32_matmul_precision("high")``). The order of classes is hardly affected, but densities are: use
    :func:`own_half_distance` for the class of interest.

    >>> import torch
    >>> half_distances(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
    tensor([[12.5000]])
    """
    # distances do not change, and rounding errors shrink; ONNX cannot tell the result of `mean` from a buffer so called
    shift = means.detach().sum(dim=0) / len(means)
    x, mu = features - shift, means - shift
    if log_variance is None:
        distances = _unit_variance(x, mu)
    elif log_variance.shape[1] == 1:
        distances = _unit_variance(x, mu) * log_variance.neg().exp().T
    elif log_variance.shape[0] == 1:
        root = (-0.5 * log_variance).exp()
        distances = _unit_variance(x * root, mu * root)
    else:
        precision = log_variance.neg().exp()
        weighted = mu * precision
        mixed = F.linear(x, weighted, -0.5 * (mu * weighted).sum(dim=1))
        distances = 0.5 * F.linear(x.square(), precision) - mixed
    return distances.relu()  # rounding may make distances negative: these are 0, without gradient


def own_half_distance(
    features: Tensor, means: Tensor, labels: Tensor, log_variance: Tensor | None = None
) -> Tensor:
    """d_y(x) of each sample to one class, computed from differences: exact to rounding, B D operations.

    Features are (B, D), means (K, D), labels and distances (B,); `log_variance` is as in :func:`half_distances`.

    >>> import torch
    >>> own_half_distance(torch.tensor([[3.0, 4.0]]), torch.zeros(2, 2), torch.tensor([1]), torch.zeros(2, 1))
    tensor([12.5000])
    """
    check_class_numbers(labels, len(features), len(means))
    return _scaled_half_squares(
        features - means[labels], None if log_variance is None else _rows_of(log_variance, labels)
    )


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
    r"""Maximum-likelihood means and covariances of labelled features.

    mu_k = mean of class k;  Sigma = 1/n sum_i (x_i - mu_{y_i})(x_i - mu_{y_i})^T, restricted to its form:
    averaged over dimensions (scalars), its diagonal, over the samples of one class (class_*) or of all.

    Features are (N, D), finite; labels are (N,), int64, in 0 .. K - 1, at least one of each. The variances of
    ``"identity"`` are 1.

    Raises:
        TypeError: If labels are not int64.
        ValueError: If shapes do not fit, features are not finite, or a class has no sample.

    Variances divide by n, not n - 1, so that the mean of 2 d over these samples is D exactly.

    >>> found = mixture_statistics(torch.tensor([[0.0], [2.0], [9.0]]), torch.tensor([0, 0, 1]), 2, "class_scalar")
    >>> found.means.flatten().tolist(), found.variance.flatten().tolist()
    ([1.0, 9.0], [1.0, 0.0])
    """
    _check_labelled(features, labels, classes)
    kept = features.double()
    counts = torch.bincount(labels, minlength=classes)
    missing = (counts == 0).nonzero().flatten().tolist()
    if missing:
        raise ValueError(
            f"`labels` must hold every class, because the mean of no samples is not defined; got none of {missing}. "
            "Fit on more samples, or on a mixture of fewer classes."
        )
    # Subtracting the overall mean keeps sums of large features exact.
    origin = kept.mean(dim=0)
    sums = kept.new_zeros(classes, kept.shape[1]).index_add_(0, labels, kept - origin)
    means = origin + sums / counts[:, None]
    deviations = kept - means[labels]
    return MixtureStatistics(means, _variance(deviations, labels, counts, covariance), counts / len(labels))


@torch.no_grad()
def linear_from_mixture(head: GaussianMixture) -> nn.Linear:
    r"""The linear head with the same posteriors, exact except for rounding; classes must share a covariance.

    W_k = Sigma^-1 (mu_k - mu),    b_k = log pi_k - 1/2 (mu_k^T Sigma^-1 mu_k - its mean over classes),

    mu the mean of the mu_k, which is subtracted because it adds rounding errors and does not change the softmax. The
    logits differ from those of the mixture by one number per sample; densities are lost. Computed in float64, then
    rounded to the dtype of the head's means.

    Raises:
        TypeError: If the head is not a GaussianMixture.
        ValueError: If each class has its own covariance: boundaries are then quadratic.

    Misleads a little where features lie far from 0 in units of sigma, because a linear layer does not centre them:
    in float32, log-posteriors of 64 features are off by up to 1e-3 at an offset of 100 sigma, 1e-2 at 1000.
    If that matters, convert ``head.double()`` and use float64 features.

    >>> mixture = GaussianMixture(4, 3, "diagonal")
    >>> features = torch.randn(5, 4)
    >>> linear = linear_from_mixture(mixture)
    >>> torch.allclose(linear(features).softmax(1), mixture.posterior(features), atol=1e-5)
    True
    """
    if not isinstance(head, GaussianMixture):
        raise TypeError(f"`head` must be a GaussianMixture; got {type(head).__name__}. Give model.head.")
    if head.covariance.startswith("class_"):
        raise ValueError(
            f"a linear head needs one covariance for all classes, because others have quadratic boundaries; got "
            f"covariance {head.covariance!r}. Fit a mixture with 'diagonal' or 'full' instead."
        )
    means = head.means.double()
    centred = means - means.mean(dim=0)
    if head.covariance_root is not None:
        factor = _floored_factor(head.covariance_root.double(), head.floor)
        weight, own = (torch.cholesky_solve(rows.T, factor).T for rows in (centred, means))
    else:
        precision = head.log_variance().double().neg().exp()
        weight, own = centred * precision, means * precision
    half_squares = 0.5 * (means * own).sum(dim=1)
    place = {"device": head.means.device, "dtype": head.means.dtype}
    linear = nn.utils.skip_init(nn.Linear, head.in_features, head.classes, **place)  # draws no numbers
    linear.weight.copy_(weight)
    linear.bias.copy_(head.log_prior().double() - (half_squares - half_squares.mean()))
    return linear


@torch.no_grad()
def mixture_from_linear(linear: nn.Linear) -> GaussianMixture:
    r"""The mixture with unit covariance and the same posteriors as a linear head, exact except for rounding.

    mu_k = W_k,    pi_k proportional to exp(b_k + 1/2 ||W_k||^2)

    Its parameters are at least float32, because in lower precision priors and means would no longer cancel.

    Raises:
        TypeError: If it is not one linear layer.

    Misleads as a density: posteriors do not determine where the features lie, so the means need not lie among them.
    ``fit_statistics`` fits them.

    >>> linear = nn.Linear(4, 3)
    >>> features = torch.randn(5, 4)
    >>> torch.allclose(mixture_from_linear(linear).posterior(features), linear(features).softmax(1), atol=1e-5)
    True
    """
    if not isinstance(linear, nn.Linear):
        raise TypeError(
            f"`linear` must be a torch.nn.Linear; got {type(linear).__name__}. With several layers, convert the last "
            "and keep those before it in the extractor."
        )
    weight = at_least_float32(linear.weight)
    with torch.random.fork_rng(devices=[]):  # the first means are drawn, and not used
        mixture = GaussianMixture(linear.in_features, linear.out_features).to(weight)
    mixture.means.copy_(linear.weight)
    bias = torch.zeros(linear.out_features).to(linear.weight) if linear.bias is None else linear.bias
    log_priors = bias.double() + 0.5 * linear.weight.double().square().sum(dim=1)
    mixture.log_priors.copy_(log_priors - log_priors.logsumexp(dim=0))
    return mixture


def mixture_groups(
    parameters: Iterable[nn.Parameter],
    head: GaussianMixture,
    lr: float,
    *,
    means: float = 3.0,
    variances: float = 0.1,
    weight_decay: float = 0.0,
    means_decay: float = 1.0,
) -> list[dict[str, Any]]:
    """Groups for an optimiser: the rest, the mixture's means, and its variances and priors.

    Args:
        parameters: All parameters for the optimiser, as ``fit`` passes them.
        head: The mixture among them.
        lr: Step size of the rest, above 0.
        means: Factor on `lr` for the means, above 0. The authors' files have 2 (CIFAR-100) and 0.3 (MNIST, 20,000
            steps); 3 is our choice: of 1, 2, 3 and 10 the least with which features learned on held-out digits and
            MNIST at both cuts of `papers/all_against_all`; at the wider, one seed of five on MNIST still did not.
        variances: Factor on `lr` for variances and learned priors, above 0; 0.1 as in their LeNet file. They have no
            weight decay.
        weight_decay: Of the rest, at least 0.
        means_decay: Factor on `weight_decay` for the means, at least 0; 1 as in their files. It draws means to 0, so
            it depends on the origin of the features.

    Raises:
        TypeError: If `head` is no mixture, or `parameters` are none.
        ValueError: If a number is out of range.

    With ``fit``, for its `optimizer`: ``lambda moved: torch.optim.SGD(mixture_groups(moved, model.head, 0.05),
    momentum=0.9)``. A schedule that multiplies the rates keeps their ratios; OneCycleLR needs
    ``max_lr=[group["lr"] for group in optimizer.param_groups]``.

    >>> head = GaussianMixture(4, 3, "diagonal")
    >>> network = nn.Sequential(nn.Linear(6, 4), head)
    >>> [(len(group["params"]), round(group["lr"], 4)) for group in mixture_groups(network.parameters(), head, 0.1)]
    [(2, 0.1), (1, 0.3), (1, 0.01)]
    """
    for name, value in (("lr", lr), ("means", means), ("variances", variances)):
        check_positive(name, value)
    for name, value in (("weight_decay", weight_decay), ("means_decay", means_decay)):
        check_non_negative(name, value)
    if not isinstance(head, GaussianMixture):
        raise TypeError(f"`head` must be a GaussianMixture; got {type(head).__name__}. Give model.head.")
    found = list(parameters)
    if not all(isinstance(one, nn.Parameter) for one in found):
        raise TypeError("`parameters` must be parameters; got something else. Give model.parameters().")
    given = [parameter for parameter in found if parameter.requires_grad]
    apart = {id(value): name for name, value in head.named_parameters()}
    rest = [p for p in given if id(p) not in apart]
    middle = [p for p in given if apart.get(id(p)) == "means"]
    spread = [p for p in given if apart.get(id(p), "means") != "means"]
    groups: list[dict[str, Any]] = [
        {"params": rest, "lr": lr, "weight_decay": weight_decay},
        {"params": middle, "lr": means * lr, "weight_decay": means_decay * weight_decay},
        {"params": spread, "lr": variances * lr, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _scaled_half_squares(offsets: Tensor, log_variance: Tensor | None) -> Tensor:
    """1/2 sum_d o_d^2 / sigma_d^2 of offsets (B, D), with log variances that broadcast to them; (B,)."""
    squares = offsets.square()
    if log_variance is not None:
        squares = squares * log_variance.neg().exp()
    return 0.5 * squares.sum(dim=1)


def _rows_of(per_class: Tensor, labels: Tensor) -> Tensor:
    """The row of each label, or the single row if all classes share it."""
    return per_class if len(per_class) == 1 else per_class[labels]


def _unit_variance(x: Tensor, mu: Tensor) -> Tensor:
    return 0.5 * x.square().sum(dim=1, keepdim=True) - F.linear(x, mu, -0.5 * mu.square().sum(dim=1))


def _floored_log_variance(raw: Tensor, floor: float) -> Tensor:
    """The logarithm of floor + exp(raw), whose gradient does not vanish at the floor."""
    raw = at_least_float32(raw)
    return torch.logaddexp(raw, torch.full((), math.log(floor), dtype=raw.dtype, device=raw.device))


def log_of_variance(variance: Tensor, floor: float) -> Tensor:
    """The parameter whose floor + exp is `variance`; a variance at the floor or below is set just above it."""
    return (variance - floor).clamp(min=_ABOVE_FLOOR * floor).log()


def _half_log_determinants(log_variance: Tensor | None, factor: Tensor | None, means: Tensor) -> Tensor:
    """Half of log|Sigma| for each row of variances, or for the covariance with this factor, (rows,) or (1,)."""
    if factor is not None:
        return factor.diagonal().log().sum()[None]
    if log_variance is None:
        return means.new_zeros(1)
    return 0.5 * (means.shape[1] // log_variance.shape[1]) * log_variance.sum(dim=1)


def _floored_factor(root: Tensor, floor: float) -> Tensor:
    """The lower Cholesky factor of floor I + A A^T, by a QR of A^T over sqrt(floor) I.

    In float64, and without that product: it would square the ratio of the largest variance to the floor, and the
    floor would be lost to rounding if features do not fill their space.
    """
    exact = _in_float64(root)
    with torch.autocast(root.device.type, enabled=False):
        scaled = math.sqrt(floor) * torch.eye(len(exact)).to(exact)
        upper = torch.linalg.qr(torch.cat([exact.T, scaled])).R
        signs = torch.where(upper.diagonal() < 0, -1.0, 1.0).to(upper)
        return (upper.T * signs).to(at_least_float32(root))


def _floored_eigenvalues(root: Tensor, floor: float) -> Tensor:
    """The eigenvalues of floor I + A A^T, by the singular values of A, float64; NaN where A is not finite.

    They show a collapsed direction that no diagonal entry of the factor shows.
    """
    exact = _in_float64(root)
    if not bool(exact.isfinite().all()):
        return exact.new_full((len(exact),), math.nan)
    return torch.linalg.svdvals(exact).square() + floor


def _root_of_covariance(covariance: Tensor, floor: float) -> Tensor:
    """An A with floor I + A A^T = `covariance`; eigenvalues below the floor are raised to just above it."""
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * (values - floor).clamp(min=_ABOVE_FLOOR * floor).sqrt()


def _in_float64(root: Tensor) -> Tensor:
    return root.to("cpu" if root.device.type == "mps" else root.device, torch.float64)  # mps has no float64


def _whitened(offsets: Tensor, factor: Tensor) -> Tensor:
    """Rows L^-1 o, whose squared lengths are Mahalanobis distances, in the dtype of the offsets."""
    return torch.linalg.solve_triangular(factor.to(offsets), offsets.T, upper=False).T


def warn_at_floor(share: float, floor: float) -> None:
    """Warn if variances lie on their floor, because densities then depend on the floor, not on the features."""
    if share > 0:
        warnings.warn(
            f"{math.ceil(100 * share)} % of the mixture's variances lie on their floor of {floor:g}, so densities "
            "there depend on the floor, not on the features. A feature is constant within a class, or features have "
            "collapsed: share variances between classes or fix them (covariance='identity'); in training, raise "
            "`variance_prior` or lower `likelihood_weight` of the loss.",
            UserWarning,
            stacklevel=3,
        )


def _log_prior_parameter(priors: Priors, classes: int) -> nn.Parameter:
    """Log-priors of a new head, (K,), with a gradient if they are learned.

    Fixed ones are a parameter too, not a buffer, so that K of these heads can be stacked.

    Raises:
        ValueError: Unless `priors` is one of the two words, or K probabilities above 0 that sum to one.
    """
    if isinstance(priors, str):
        if str(priors) == "empirical":  # a setting of methods, which have labels to count
            raise ValueError(
                "`priors` must be 'uniform', 'learned' or probabilities, because a head has no labels to count; got "
                f"{priors!r}. Pass the shares themselves, labels.bincount() / len(labels)."
            )
        check_choice("priors", priors, ("uniform", "learned"))
        return nn.Parameter(torch.zeros(classes), requires_grad=priors == "learned")
    fixed = _checked_priors(priors, classes).log().to(torch.get_default_dtype())
    return nn.Parameter(fixed, requires_grad=False)


def _checked_priors(priors: Sequence[float] | Tensor, classes: int) -> Tensor:
    """The priors as float64.

    Raises:
        ValueError: Unless they are `classes` probabilities above 0 that sum to one.
    """
    try:
        given = torch.as_tensor(priors, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"`priors` must be {classes} probabilities above 0 that sum to one; got {priors!r}."
        ) from None
    if given.shape != (classes,) or not bool((given > 0).all()) or abs(float(given.sum()) - 1) > 1e-6:
        raise ValueError(
            f"`priors` must be {classes} probabilities above 0 that sum to one; got {given.tolist()}. "
            "Divide counts by their sum; a class that never occurs needs a small share."
        )
    return given


def _check_labelled(features: Tensor, labels: Tensor, classes: int) -> None:
    """Check that features are (N, D) and finite, and labels (N,), int64, in 0 .. classes - 1.

    Raises:
        TypeError: If labels are not int64.
        ValueError: If anything else is not as described.
    """
    if features.ndim != 2 or len(features) == 0:
        raise ValueError(f"`features` must be (N, D), N at least 1; got {tuple(features.shape)}.")
    check_class_numbers(labels.cpu(), len(features), classes)
    broken = int((~features.isfinite().all(dim=1)).sum())
    if broken:
        raise ValueError(
            f"`features` must be finite; got {broken} of {len(features)} samples with NaN or infinity. Find the "
            "layer that makes them, or leave these samples out."
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


def rounding_of(distances: Tensor) -> Tensor:
    """Approximate rounding error of each distance in its dtype, in nats."""
    return torch.finfo(distances.dtype).eps * distances


def _warn_where_rounding_picks(logits: Tensor, distances: Tensor) -> bool:
    """Warn if the two most likely classes of a sample differ by less than the rounding error of its distances.

    Both are (B, K), K at least 2. Returns whether it warned. It never warns where values cannot be read: while a graph
    is compiled or captured, and under ``torch.func.vmap``.
    """
    capturing = logits.is_cuda and torch.cuda.is_current_stream_capturing()
    if not logits.numel() or capturing or torch.compiler.is_compiling():  # without values
        return False
    with torch.no_grad():
        rounding = rounding_of(distances.detach()).amax(dim=1)
        try:
            if rounding.max().item() <= LARGEST_ROUNDING:
                return False
        except RuntimeError:  # under vmap tensors have no values
            return False
        first, second = logits.detach().topk(2, dim=1).values.unbind(dim=1)
        lost = (rounding > LARGEST_ROUNDING) & (first - second < rounding)
        share = lost.double().mean().item()
    if share == 0:
        return False
    warnings.warn(
        f"rounding may decide the class of {math.ceil(100 * share)} % of these samples: they lie so far from the means "
        f"of the mixture that {logits.dtype} loses up to {rounding.max().item():.2g} nats of their scores to rounding. "
        "Scale the features, compute in float64, or, if classes share their covariance, use the linear head with "
        "the same posteriors (heads.linear_from_mixture).",
        stacklevel=3,
    )
    return True


def _warn_of_rounded_means(fitted: Tensor, kept: Tensor, variance: Tensor) -> None:
    """Warn if the rounding of fitted means noticeably changes distances.

    `fitted` are the means in float64, (K, D), `kept` the same in the head's dtype; the variances have a shape that
    broadcasts.
    """
    added = float(((fitted - kept.double()).square() / variance).mean(dim=1).max())
    if added > _LARGEST_MEAN_ERROR:
        warnings.warn(
            f"{kept.dtype} rounds the means of features so far from 0 by {math.sqrt(added):.2g} of their standard "
            f"deviation, which adds {added:.2g} to the mean of 2 d / D. Subtract a common offset from the features, or "
            "use a head in float64.",
            stacklevel=3,
        )
