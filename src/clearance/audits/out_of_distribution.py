"""How many images of things that the model never saw does a threshold reject?"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clearance._checks import check_count
from clearance.audits._audit import Audit, Findings, Subject, share_of
from clearance.audits._samples import balanced_rows, first_half, fixed_images, other_images
from clearance.audits.rejection import KEPT, check_enough, detection, lowest_for_nan, rejection_threshold
from clearance.data import ImageSet
from clearance.geometry.nearest import unit_length
from clearance.models.features import logits_from
from clearance.vocabulary import Exhibit, Measurement, Scalar

NAMED = "unknown"  # the setting that says which images these are
_CHUNK = 256
USUAL: dict[str, Callable[[Tensor], Tensor]] = {
    "auroc_softmax": lambda logits: logits.softmax(dim=1).amax(dim=1),  # Hendrycks and Gimpel (2017)
    "auroc_energy": lambda logits: logits.logsumexp(dim=1),  # Liu et al. (2020), T = 1
}
_CURVE = tuple(k / 100 for k in range(50, 101))


@dataclass(frozen=True)
class OutOfDistribution(Audit):
    """The share of images of unknown things that a threshold rejects which keeps 95 % of the test images.

    score(x) = minus half the squared distance of f(x) to its k-th nearest training features, all of unit length

    The score is settled beforehand, not picked for these images: it reads features alone, so that neither their
    unit, nor the scale of logits, nor the last layer moves it; k is that of :class:`clearance.audits.Likelihood`,
    which has more scores. The threshold is chosen on one half of the test images.

    Source: Sun et al., *Out-of-Distribution Detection with Deep Nearest Neighbors* (2022), for the score; Vovk et al.
    (2005) for the threshold, see :func:`clearance.audits.rejection_threshold`.

    Measurements: ``rejected``, of the unknown images, and ``kept``, of the other half of the test images, each with
    its 95 % Wilson interval for this threshold; ``auroc``, the chance that an unknown image scores below a test image
    of that half; ``auroc_softmax`` and ``auroc_energy``, the same with the largest probability (Hendrycks and Gimpel
    2017) and the energy (Liu et al. 2020) as score. The exhibit has the share that is rejected at every share kept.
    Without unknown images there is no measurement.

    Args:
        other: Images of unknown things, of the same shape; a recipe gives the name of a dataset. Labels are not read.
        images: At most, of these; drawn by the seed where there are more.
        neighbours: k.
        reference: The most training images to be near to, the same number of each class.

    Raises:
        ValueError: If `other` has images of another shape, or the test images are too few for a threshold.

    Misleads as a defence, and as a promise for other unknown things: the share belongs to these images. Where these
    show the classes that the model knows, a high share is a fault of the model.

    >>> from torch import nn
    >>> from clearance.data import ImageSet, gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> noise = ImageSet(torch.rand(50, 1, 8, 8), torch.arange(50) % 2, ("a", "b"), "noise")
    >>> found = OutOfDistribution(other=noise)(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [(m.name, m.n) for m in found.measurements]
    [('rejected', 50), ('kept', 30), ('auroc', 50), ('auroc_softmax', 50), ('auroc_energy', 50)]
    """

    name: ClassVar[str] = "out_of_distribution"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    other: ImageSet | str | None = None
    images: int = 1000
    neighbours: int = 5
    reference: int = 5000

    def __post_init__(self) -> None:
        for name in ("images", "neighbours", "reference"):
            check_count(name, getattr(self, name))

    def examine(self, subject: Subject) -> Findings:
        """Score both, choose the threshold on one half of the test images, count on the other and on the unknown."""
        if self.other is None:
            return Findings(())
        half = first_half(subject.test.labels, subject.seed)
        check_enough(int(half.sum()))
        other = self._unknown(subject)
        known, limit = self.fitted(subject)
        seen = self._scores(subject.test_features, known)
        features = subject.features(other)
        unknown = self._scores(features, known)
        rest = seen[~half]
        context: dict[str, Scalar] = {NAMED: other.name}
        return Findings(
            (
                _share("rejected", unknown < limit, context),
                _share("kept", rest >= limit, {}),
                Measurement(
                    self.name, "auroc", detection(rest, unknown)["auroc"], "fraction", len(unknown), better="higher",
                    context=context,
                ),
                *self._usual(subject, ~half, other, features, context),
            ),
            (_curve(rest, unknown, other.name),),
        )  # fmt: skip

    def fitted(self, subject: Subject) -> tuple[Tensor, float]:
        """Features of training images, of unit length, and the threshold, chosen on half of the test images."""
        known, half = self._known(subject), first_half(subject.test.labels, subject.seed)
        return known, rejection_threshold(self._scores(subject.test_features[half], known))

    def _usual(
        self, subject: Subject, kept: Tensor, unknown: ImageSet, features: Tensor, context: dict[str, Scalar]
    ) -> Iterator[Measurement]:
        """The AUROC of the usual scores that read logits, on the same images."""
        seen = subject.test_logits[kept].double()
        other = logits_from(subject.model, features, unknown).double()
        for name, score in USUAL.items():
            found = detection(lowest_for_nan(score(seen)), lowest_for_nan(score(other)))["auroc"]
            yield Measurement(
                self.name, name, found, "fraction", len(other), better="higher", context=context
            )

    def _unknown(self, subject: Subject) -> ImageSet:
        other = other_images(self.other, subject.test).unlabelled().to(subject.test.labels.device)
        return fixed_images(other, self.images, subject.seed)

    def _known(self, subject: Subject) -> Tensor:
        rows = balanced_rows(subject.train.labels, self.reference, subject.seed, subject.classes)
        return unit_length(_finite(subject.train_features[rows]))

    def _scores(self, features: Tensor, known: Tensor) -> Tensor:
        """(N,), float64; images without finite features are the least normal of all."""
        parts = [neighbour_score(part.double(), known, self.neighbours) for part in features.split(_CHUNK)]
        return lowest_for_nan(torch.cat(parts))


def _finite(features: Tensor) -> Tensor:
    return features.double().nan_to_num(0.0, 0.0, 0.0)


def _share(name: str, counted: Tensor, context: dict[str, Scalar]) -> Measurement:
    return share_of(OutOfDistribution.name, name, int(counted.sum()), len(counted), "higher", context)


def _curve(seen: Tensor, unknown: Tensor, name: str) -> Exhibit:
    """The share of unknown images below the quantile that keeps each share of the test images."""
    ordered = seen.sort(descending=True).values
    limits = ordered[[max(1, round(kept * len(ordered))) - 1 for kept in _CURVE]]
    rejected = (unknown[None] < limits[:, None]).double().mean(dim=1)
    columns = {
        "share of test images kept": list(_CURVE),
        "share of unknown images rejected": rejected.tolist(),
    }
    caption = (
        f"Test images that a threshold keeps, and images of {name!r} that it rejects: nearer to the top is better; at "
        f"{KEPT:.0%} is the threshold of the first screen, which was chosen on other test images."
    )
    return Exhibit(OutOfDistribution.name, "thresholds", "curve", columns, caption, {NAMED: name})


def neighbour_score(features: Tensor, known: Tensor, neighbours: int) -> Tensor:
    """Minus half the squared distance to the k-th nearest known features, all of unit length, (B,); at most 0.

    Source: Sun et al., *Out-of-Distribution Detection with Deep Nearest Neighbors* (2022).

    Features are (B, D); `known`, (n, D), has unit length already; k is n where there are fewer.

    >>> neighbour_score(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]), 1)
    tensor([0.])
    """
    # half the squared distance of unit vectors is 1 - cos
    nearest = (unit_length(features) @ known.T).topk(min(neighbours, len(known)), dim=1)
    return nearest.values[:, -1] - 1
