"""Weak heads in closed form: Gaussian classes fitted to a small batch of features."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from clearance._checks import check_choice, check_positive
from clearance.heads.gaussian_mixture import GaussianMixture, log_of_variance
from clearance.heads.scale import feature_unit
from clearance.heads.train import TrainedHeads
from clearance.heads.weak._linear import check_batches, linear_names, solved_heads

_MISSING = -30.0  # log prior of a class that a batch lacks, below all that a class can lose by distance


@dataclass(frozen=True)
class GaussianMixtureHeads:
    r"""Heads that are the Gaussian mixture fitted to a batch: class means, and one shrunken covariance.

    mu_k = mean of class k in the batch;  Sigma_b = T (V_b + shrinkage * m) max(1, u0 / u)^2

    V_b are the variances of the batch within its classes (over all dimensions, or for each), m is the mean variance
    of a dimension over all batches that are drawn at once, between classes too, u the unit of these features
    (:func:`clearance.heads.scale.feature_unit`) and u0 the `least_unit` of ``draw``.

    Source: the mixture of Wan et al. (2018) in place of the head of Sato et al. (2019), Eq. 3; no source combines the
    two. With shrinkage one image per class is enough.

    Args:
        covariance: ``"scalar"`` or ``"diagonal"``, shared by all classes.
        shrinkage: Above 0, as a share of the features' total variance; the default is our choice.
        temperature: T, above 0: a factor on the variances. None is D, so that the logits equal those of a single
            dimension with the whole distance. With T = 1 and independent dimensions, confidence grows in proportion
            to D, far more than few images justify.

    Raises:
        ValueError: If a number is out of range or `covariance` is unknown.

    Like other weak heads they follow the scale of the features, and are weakened by features below the least unit.

    Misleads: they fit their batch from the first step on, so the mean loss under them starts low. They also do not
    bound the scale: their confidence is set here and not by the loss, so the loss keeps asking for larger features,
    and extractors without normalisation grow without bound and learn nothing (docs/foca.md). Use batch normalisation,
    and note the warning at the end of a run.

    >>> features, labels = torch.eye(4)[:3].expand(2, 3, 4), torch.arange(3).expand(2, 3)
    >>> drawn = GaussianMixtureHeads().draw(nn.Linear(4, 3), features, labels, torch.Generator())
    >>> drawn.stack(features)[0].argmax(dim=1)
    tensor([0, 1, 2])
    """

    covariance: Literal["scalar", "diagonal"] = "scalar"
    shrinkage: float = 0.1
    temperature: float | None = None

    def __post_init__(self) -> None:
        check_choice("covariance", self.covariance, ("scalar", "diagonal"))
        check_positive("shrinkage", self.shrinkage)
        if self.temperature is not None:
            check_positive("temperature", self.temperature)

    @torch.no_grad()
    def draw(
        self,
        architecture: nn.Module,
        features: Tensor,
        labels: Tensor,
        generator: torch.Generator,
        least_unit: Tensor | None = None,
    ) -> TrainedHeads:
        """K heads, one for each batch of features.

        Args:
            architecture: A GaussianMixture of the same covariance, or one nn.Linear with a bias, which then gets the
                equivalent weights.
            features: (K, n, D); head k is fitted to ``features[k]``.
            labels: (K, n). A class that a batch lacks is predicted for no point as near to its centre as its own.
            generator: Not used: a fit is not random.
            least_unit: Features below it give less confident heads, 0-dim.

        Raises:
            ValueError: If the head is neither, or shapes or labels do not fit.
        """
        del generator
        names = self._names(architecture)
        classes = len(architecture.get_parameter(names[0]))
        check_batches(features, labels, classes)
        means, variance, log_priors = self._fitted(features.double(), labels, classes, least_unit)
        if isinstance(architecture, GaussianMixture):
            spread = log_of_variance(variance, architecture.floor)
            solution = {"means": means, "log_priors": log_priors, "raw_log_variance": spread}
        else:
            weight = means / variance
            bias = log_priors - 0.5 * (means * weight).sum(dim=2)
            solution = dict(zip(names, (weight, bias), strict=True))
        return solved_heads(architecture, solution, like=features)

    def _names(self, architecture: nn.Module) -> tuple[str, str]:
        if not isinstance(architecture, GaussianMixture):
            return linear_names(architecture, "GaussianMixtureHeads")
        if architecture.covariance != self.covariance:
            raise ValueError(
                f"`covariance` must be that of the model's head, {architecture.covariance!r}; got {self.covariance!r}. "
                "Give the head 'scalar' or 'diagonal', and the weak heads the same."
            )
        return "means", "log_priors"

    def _fitted(
        self, features: Tensor, labels: Tensor, classes: int, least_unit: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Means (K, C, D), variances (K, 1, 1) or (K, 1, D), log priors (K, C)."""
        members = torch.nn.functional.one_hot(labels, classes).to(features)
        counts = members.sum(dim=1)
        centre = features.mean(dim=1, keepdim=True)
        shifted = features - centre
        offsets = (members.mT @ shifted) / counts.clamp(min=1)[..., None]
        rest = shifted - members @ offsets
        within = rest.square().mean(dim=1, keepdim=True)
        if self.covariance == "scalar":
            within = within.mean(dim=2, keepdim=True)
        kept = (
            features.isfinite().flatten(1).all(dim=1)
        )  # one head's infinite features do not affect the others
        whole = shifted[kept].square().mean()
        variance = within + self.shrinkage * whole
        variance = variance * (features.shape[2] if self.temperature is None else self.temperature)
        if not bool(whole > 0):
            variance = torch.ones_like(variance)  # features coincide: any variance gives equal logits
        elif least_unit is not None:
            variance = variance * (least_unit / feature_unit(features[kept])).clamp(min=1).square()
        present = counts > 0
        shares = present / present.sum(dim=1, keepdim=True)
        # a point as far from the centre as the batch's farthest is at most twice as far from a class that is there
        lost = 2 * (shifted.square() / variance).sum(dim=2).amax(dim=1, keepdim=True)
        return centre + offsets, variance, torch.where(present, shares.log(), _MISSING - lost)
