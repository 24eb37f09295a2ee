"""Are the features of each class distributed as a Gaussian?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from scipy.special import chdtr, gammaincinv
from torch import Tensor

from clearance._checks import check_choice
from clearance.audits._audit import Audit, Findings, Subject, share_of
from clearance.audits._heads import are_a_cloud
from clearance.heads.gaussian_mixture import (
    GaussianMixture,
    half_distances,
    mixture_statistics,
    own_half_distance,
)
from clearance.vocabulary import Exhibit, Measurement, Scalar

REGION = 0.95  # of the probability: what lies within is counted
PICTURED = 200  # quantiles
ALL, OWN, REFITTED = "all", "own", "refitted"
Fitted = Literal["scalar", "class_scalar", "diagonal", "class_diagonal", "full"]


@dataclass(frozen=True)
class GoodnessOfFit(Audit):
    r"""Squared Mahalanobis distances of held-out features to their own class, against chi-square.

    2 d_y(x) = (x - mu_y)^T Sigma_y^-1 (x - mu_y),  which is chi-square with D degrees of freedom if class y is Gaussian

    Source: Wan et al. (2018) assume these Gaussians; the test is that of any textbook.

    ``distance_ratio``: mean of 2 d over D; 1 if the Gaussians are right, above where held-out features lie farther out.
    ``ks_distance``: the largest gap between the distribution of 2 d and chi-square's, from 0 to 1.
    ``coverage``: share of images within the region that holds 95 % of the Gaussian, with a Wilson interval.
    ``mean_offset``, of a Gaussian-mixture head only: the part of the squared distance of training features to their
    learned means that is the distance of these means from the classes' own (`GaussianMixture.mean_offset`).

    Each for ``class`` (and ``all``), and for ``statistics`` refitted: means and covariance of training features, in any
    classifier alike; and own: those of a Gaussian-mixture head as it was trained. On the training features
    themselves the refitted ratio is 1, whatever they look like. No threshold: there is no p-value here, because
    with enough images every real network is refused.

    Directions along which training features do not vary are left out, and D counts those that are kept. Where all
    features are equal, a feature is not finite or none varies within a class, each number is the worst there is.

    Args:
        covariance: Of the refitted Gaussians: ``"scalar"``, ``"class_scalar"``, ``"diagonal"``, ``"class_diagonal"``,
            ``"full"`` (one matrix for all classes; with fewer training images than D it fits them and nothing else).

    Raises:
        ValueError: If `covariance` is unknown.

    Misleads: a ratio near 1 is no Gaussian, only the right size. Units that are nearly always off have a tiny variance
    in training, and a single test image in which they are on can dominate the ratio: compare it with the coverage.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=300, seed=0), gaussian_images(per_class=300, seed=1)
    >>> found = GoodnessOfFit()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)      # pixels are Gaussian
    >>> 0.95 < found.measurements[0].value < 1.05
    True
    """

    name: ClassVar[str] = "goodness_of_fit"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    covariance: Fitted = "diagonal"

    def __post_init__(self) -> None:
        check_choice("covariance", self.covariance, get_args(Fitted))

    def examine(self, subject: Subject) -> Findings:
        """Refitted statistics, and the head's own where it has some."""
        found: list[Measurement] = []
        exhibits = []
        for statistics, (distances, width) in self._distances(subject).items():
            context: dict[str, Scalar] = {"statistics": statistics}
            found.extend(_by_class(distances, width, subject, context))
            if width:
                exhibits.append(_picture(distances, width, context))
        if isinstance(subject.model.head, GaussianMixture):
            found.append(_offset(subject, subject.model.head))
        return Findings(tuple(found), tuple(exhibits))

    def _distances(self, subject: Subject) -> dict[str, tuple[Tensor, int]]:
        """2 d of every held-out image and its degrees of freedom, 0 where nothing can be said; by statistics."""
        head, test = subject.model.head, subject.test
        nothing = (torch.full((len(test),), torch.inf, dtype=torch.float64), 0)
        sound = are_a_cloud(subject.train_features, subject.test_features)
        found = {REFITTED: nothing}
        if sound:
            fitted = fitted_gaussians(
                subject.train_features, subject.train.labels, subject.classes, self.covariance
            )
            if fitted.width:
                found[REFITTED] = fitted.squared_own(subject.test_features, test.labels).cpu(), fitted.width
        if isinstance(head, GaussianMixture):
            found[OWN] = nothing
            if sound:
                with torch.no_grad():
                    half = head.own_half_distance(subject.test_features.double(), test.labels)
                found[OWN] = 2 * half.double().cpu(), head.in_features
        return found


def _by_class(
    distances: Tensor, width: int, subject: Subject, context: dict[str, Scalar]
) -> Iterator[Measurement]:
    labels = subject.test.labels.cpu()
    chosen = {ALL: torch.ones_like(labels, dtype=torch.bool)}
    chosen |= {title: labels == k for k, title in enumerate(subject.test.classes)}
    for title, rows in chosen.items():
        if bool(rows.any()):
            yield from _measured(distances[rows], width, {**context, "class": title})


def _measured(distances: Tensor, width: int, context: dict[str, Scalar]) -> Iterator[Measurement]:
    from scipy.stats import kstest  # slow to import, and only this audit needs it

    count = len(distances)
    ratio, gap, inside = torch.inf, 1.0, 0
    if width:
        ratio = float(distances.mean()) / width
        gap = float(kstest(distances.numpy(), lambda x: chdtr(width, x)).statistic)
        inside = int((distances <= 2 * gammaincinv(width / 2, REGION)).sum())
    spread = float(distances.std()) / width if width and count > 1 else None
    name = GoodnessOfFit.name
    yield Measurement(name, "distance_ratio", ratio, "ratio", count, spread, context=context)
    yield Measurement(name, "ks_distance", gap, "fraction", count, better="lower", context=context)
    yield share_of(name, "coverage", inside, count, "neither", context)


def _offset(subject: Subject, head: GaussianMixture) -> Measurement:
    """How far the head's means are from those of the training features; 1, the worst, where these say nothing."""
    sound = are_a_cloud(subject.train_features)
    value = head.mean_offset(subject.train_features, subject.train.labels) if sound else 1.0
    context: dict[str, Scalar] = {"statistics": OWN, "class": ALL}
    count = len(subject.train)
    return Measurement(
        GoodnessOfFit.name, "mean_offset", value, "fraction", count, better="lower", context=context
    )


def _picture(distances: Tensor, width: int, context: dict[str, Scalar]) -> Exhibit:
    """Quantiles of 2 d / D over those of chi-square."""
    count = min(PICTURED, len(distances))
    levels = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    columns = {
        "chi-square": (2 * gammaincinv(width / 2, levels.numpy()) / width).tolist(),
        "features": (torch.quantile(distances, levels) / width).tolist(),
    }
    caption = (
        f"Quantiles of the squared distance to the own class, over the {width} directions that it counts, against "
        "those of chi-square."
    )
    return Exhibit(GoodnessOfFit.name, "quantiles", "curve", columns, caption, context)


LEAST_VARIANCE = 1e-10  # of the largest: what is less is rounding of float32 features


@dataclass(frozen=True)
class FittedGaussians:
    """Class means and covariance of features, in float64, on the directions along which features vary.

    Unlike the head :class:`~clearance.heads.GaussianMixture` it has no floor, which would be in the features' unit:
    a direction without variance is left out, and `width` counts those that are kept.

    Args:
        basis: (D, D'), the directions kept.
        means: (K, D').
        log_variance: (1 or K, 1 or D').
    """

    basis: Tensor
    means: Tensor
    log_variance: Tensor

    @property
    def width(self) -> int:
        """How many directions are kept: the degrees of freedom of a squared distance."""
        return self.basis.shape[1]

    def projected(self, features: Tensor) -> Tensor:
        """Features along the directions kept, (N, D')."""
        return features.to(self.basis.dtype) @ self.basis

    def squared_own(self, features: Tensor, labels: Tensor) -> Tensor:
        """2 d_y(x), exact, (N,)."""
        return 2 * own_half_distance(self.projected(features), self.means, labels, self.log_variance)

    def squared(self, features: Tensor) -> Tensor:
        """2 d_k(x) to every class, (N, K), differentiable; in the dtype that the basis has."""
        return 2 * half_distances(self.projected(features), self.means, self.log_variance)


def fitted_gaussians(features: Tensor, labels: Tensor, classes: int, covariance: Fitted) -> FittedGaussians:
    """Maximum-likelihood means and covariance, so that the mean of 2 d_y over these features is `width`.

    Features are (N, D), labels (N,), every class at least once; K classes. `covariance` is as in
    :class:`~clearance.heads.GaussianMixture`.

    Raises:
        ValueError: If features are not finite, or a class has no sample.

    >>> features, labels = torch.randn(60, 3), torch.arange(60) % 2
    >>> fitted = fitted_gaussians(features, labels, 2, "full")
    >>> round(float(fitted.squared_own(features, labels).mean()), 6)
    3.0
    """
    found = mixture_statistics(features, labels, classes, covariance)
    if covariance == "full":
        values, vectors = torch.linalg.eigh(found.variance)
        kept = values > LEAST_VARIANCE * values.max().clamp(min=0)
        basis, variance = vectors[:, kept], values[kept][None]
    else:
        variance = found.variance.expand(-1, features.shape[1])
        kept = (variance > LEAST_VARIANCE * variance.max()).all(dim=0)
        basis = torch.eye(features.shape[1], dtype=torch.float64, device=features.device)[:, kept]
        variance = variance[:, kept]
    return FittedGaussians(basis, found.means @ basis, variance.log())
