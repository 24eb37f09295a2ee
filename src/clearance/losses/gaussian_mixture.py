"""Gaussian mixture features with a margin and a likelihood: the L-GM loss of Wan et al. (2018)."""

import math
import warnings
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from clearance._checks import check_non_negative
from clearance.heads.gaussian_mixture import LARGEST_ROUNDING, GaussianMixture, rounding_of, warn_at_floor
from clearance.losses._loss import Loss, check_labels
from clearance.losses.schedules import StepUp, scheduled
from clearance.tensors import LossTerms, Outputs

CHECK_EVERY = 100  # steps between two checks of the head
_TINY = 1e-30


class GaussianMixtureLoss(Loss):
    r"""Features as one Gaussian per class, with a margin and a likelihood: L-GM, Wan et al. (2018).

    L = mean_i CE(s_i, y_i) + lambda mean_i -log N(x_i; mu_{y_i}, Sigma_{y_i}) + lambda tau R,
    s_ik = log pi_k - 1/2 log|Sigma_k| - (1 + alpha 1(k = y_i)) d_k(x_i)

    The paper's slides write the likelihood as a sum over samples and the classification term as a mean; the authors'
    code takes the mean of both, as here: lambda_sum = lambda / batch size. The distance d is halved. alpha = 0 is
    the GM loss.

    The literal loss with learned variances has no lower bound: shrinking features, means and variances together
    lowers the likelihood term without end and does not change the other. R = mean_k 1/2 (log|Sigma_k| +
    tr Sigma_k^-1 - D) acts like tau samples of every class spread with variance 1. It bounds the unit of the
    features, and classes that contract to points keep variances near tau / (1 + tau).

    Margin and likelihood pull a feature vector to its mean by (alpha (1 - q_y) + lambda) Sigma_y^-1 (x - mu_y), with
    q_y the posterior under the margin, without bound and from the first step: features that are wide or far away at
    first, or that the mixture does not tell apart yet, are drawn together to one point before their classes part. So
    the gradient of these two terms in x is multiplied by p_y min(1, R_y / r), with the posterior p_y of the own class,
    r = ||x - mu_y|| and R_y half the root mean square of ||mu_k - mu_y|| over the other classes, both in units of
    Sigma_y: a vector is pulled as far as it is classified, and no harder than one at distance R_y. Where p_y is 1 and r
    at most R_y it is the published gradient; the loss itself and the gradients of means and variances are everywhere.
    Our addition.

    Args:
        alpha: The margin, at least 0; a number or :class:`~clearance.losses.schedules.StepUp`. Released for
            CIFAR-100: 0.1, then 0.2 and 0.3; for MNIST up to 1. 0.1 by default.
        likelihood_weight: lambda, at least 0; 0.1 as released for CIFAR-100 (0.03 for MNIST).
        variance_prior: tau, at least 0. The default 0.1 is our choice: at 0.01, the variances of digits' features
            fell so far that the default step size diverged. 0 is the paper's formula; only the head's floor then
            bounds it. No effect with covariance ``"identity"``.
        bounded: Whether the pull is limited so; False is the paper's formula.

    Shapes:
        outputs.head a `GaussianMixture` of K classes, outputs.features (B, D), outputs.logits (B, K), which it made;
        labels (B,).

    Raises:
        TypeError: If `alpha` is not a number or StepUp; in ``forward``, if the head is not a GaussianMixture.
        ValueError: If a number is out of range, or a setting of `alpha` is unknown or missing.

    Only this loss has the margin; the head's logits have none, in training or after. A schedule counts steps by
    ``after_step``, which your own loop must call as ``fit`` does; it also warns if variances lie on their floor. Set
    separate step sizes for means and variances with :func:`clearance.heads.mixture_groups`.

    Misleads as a measure of fit across models: the likelihood depends on the unit of the features.

    >>> head = GaussianMixture(2, 3)
    >>> features = torch.zeros(4, 2)
    >>> loss = GaussianMixtureLoss()(Outputs(features, head(features), head), torch.tensor([0, 1, 2, 0]))
    >>> list(loss.terms)
    ['classification', 'likelihood']
    """

    steps: Tensor

    _still = 0.01

    def __init__(
        self,
        alpha: float | StepUp | Mapping[str, float] = 0.1,
        likelihood_weight: float = 0.1,
        variance_prior: float = 0.1,
        bounded: bool = True,
    ) -> None:
        super().__init__()
        check_non_negative("likelihood_weight", likelihood_weight)
        check_non_negative("variance_prior", variance_prior)
        self.alpha = scheduled("alpha", alpha, StepUp)
        self.likelihood_weight, self.variance_prior = likelihood_weight, variance_prior
        self.bounded = bounded
        self._steps_seen, self._warned = 0, set[str]()
        if not isinstance(self.alpha, float):
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    @property
    def current_alpha(self) -> float:
        """The margin at this step."""
        return self.alpha(int(self.steps)) if callable(self.alpha) else float(self.alpha)

    def _weights_of_classes(self, outputs: Outputs) -> Tensor | None:
        means = _mixture_of(outputs).means
        return means if means.requires_grad else None

    @property
    def _without_steps(self) -> str | None:  # type: ignore[override]
        return f"alpha is still {self.current_alpha:g}, as at the start" if "steps" in self._buffers else None

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """Terms ``classification``, ``likelihood`` and ``variance_prior``, without those whose weight is 0."""
        check_labels(outputs.logits, labels)
        head = _mixture_of(outputs)
        features = outputs.features
        distance, volume = head.own_terms(
            bounded_pull(outputs, labels, head) if self.bounded else features, labels
        )
        scores = margin_scores(outputs.logits.to(distance.dtype), distance, labels, self.current_alpha)
        terms = {"classification": F.cross_entropy(scores, labels)}
        weight = self.likelihood_weight
        if weight > 0:
            likelihood = negative_log_likelihood(distance, volume, head.in_features)
            terms["likelihood"] = weight * likelihood.mean()
        if weight * self.variance_prior > 0 and head.covariance != "identity":
            excess = head.excess_log_variance()
            terms["variance_prior"] = weight * self.variance_prior * excess.mean()
        return LossTerms(terms)

    @torch.no_grad()
    def after_step(self, outputs: Outputs, labels: Tensor) -> None:
        """Count the step if alpha follows a schedule; check the head at the first and every 100th step.

        Warns:
            UserWarning: Once if variances lie on their floor, and once if features lie so far from the means
                that float32 rounds away the differences between classes.
        """
        super().after_step(outputs, labels)
        if "steps" in self._buffers:
            self.steps += 1
        if self._steps_seen % CHECK_EVERY == 0 and isinstance(outputs.head, GaussianMixture):
            self._check(outputs.head, outputs.features, labels)
        self._steps_seen += 1

    def _check(self, head: GaussianMixture, features: Tensor, labels: Tensor) -> None:
        if "floor" not in self._warned and (share := head.share_at_floor()) > 0:
            self._warned.add("floor")
            warn_at_floor(share, head.floor)
        distance, _ = head.own_terms(features, labels)
        lost = float(rounding_of(distance).max())
        if "far" not in self._warned and lost > LARGEST_ROUNDING:
            self._warned.add("far")
            warnings.warn(
                f"features lie so far from the means of the mixture that {distance.dtype} loses about {lost:.2g} nats "
                "of every class's score to rounding; scale the features, start with larger means (`initial_spread`), "
                "or compute in float64.",
                stacklevel=2,
            )


def _mixture_of(outputs: Outputs) -> GaussianMixture:
    """The Gaussian mixture that made these logits.

    Raises:
        TypeError: If another head made them.
    """
    if not isinstance(outputs.head, GaussianMixture):
        raise TypeError(
            "GaussianMixtureLoss needs a model whose head is a GaussianMixture, because it reads its means and "
            f"variances; got {type(outputs.head).__name__}. Give the model heads.GaussianMixture(features, classes), "
            "or turn its linear head into one with heads.mixture_from_linear."
        )
    return outputs.head


def bounded_pull(outputs: Outputs, labels: Tensor, head: GaussianMixture) -> Tensor:
    """The same features; gradients in them are multiplied by p_y min(1, R_y / r), see :class:`GaussianMixtureLoss`.

    Features are (B, D), the logits that the head made of them (B, K), labels (B,).
    """
    features = outputs.features
    with torch.no_grad():
        distance, _ = head.own_terms(features, labels)
        radius = head.half_distance_to_other_means(labels).to(distance) / 4  # R^2 / 2
        share = torch.where(distance > radius, (radius / distance.clamp(min=_TINY)).sqrt(), 1.0)
        share *= outputs.logits.softmax(dim=1).gather(1, labels[:, None])[:, 0]
    kept = features.detach()
    return kept + share.to(features.dtype)[:, None] * (features - kept)


def margin_scores(scores: Tensor, own_distance: Tensor, labels: Tensor, alpha: float) -> Tensor:
    r"""Scores with the margin in the true column: s_y - alpha d_y in place of s_y; the others are unchanged.

    The true column is lowered, not computed again, so that all columns of a sample have the same rounding.

    `scores`, (B, K), are log pi_k - 1/2 log|Sigma_k| - d_k, `own_distance`, (B,), is d_y, the halved one; labels are
    (B,), `alpha` is at least 0.

    Returns:
        (B, K); their softmax cross-entropy is L_cls of Wan et al. (2018).

    >>> margin_scores(torch.tensor([[-1.0, -2.0]]), torch.tensor([1.0]), torch.tensor([0]), 0.5)
    tensor([[-1.5000, -2.0000]])
    """
    if alpha == 0:  # 0 times an infinite distance is NaN
        return scores
    return scores.scatter_add(1, labels[:, None], (-alpha * own_distance)[:, None])


def negative_log_likelihood(own_distance: Tensor, own_half_log_determinant: Tensor, width: int) -> Tensor:
    r"""-log N(x; mu_y, Sigma_y) of each sample: d_y + 1/2 log|Sigma_y| + (D/2) log 2 pi.

    With Sigma = I and without its constant this is the center loss of each sample (Lemma 1 of Wan et al., 2018).

    `own_distance`, (B,), is d_y, the halved one; `own_half_log_determinant` is (B,) or one number; `width` is D.

    >>> round(float(negative_log_likelihood(torch.zeros(1), torch.zeros(1), 1)), 4)
    0.9189
    """
    return own_distance + own_half_log_determinant + 0.5 * width * math.log(2 * math.pi)
