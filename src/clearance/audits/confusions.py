"""Which two classes are confused most, and how close are their features?"""

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearance._checks import check_count
from clearance.audits._audit import Audit, Findings, Subject, wilson_interval
from clearance.audits._heads import are_a_cloud
from clearance.geometry.scatter import class_distance_normalised_variances, class_scatter
from clearance.vocabulary import Exhibit, Measurement


@dataclass(frozen=True)
class Confusions(Audit):
    """The pair of classes with the most errors between them, and how near their features lie.

    share = (images of a called b + images of b called a) / all errors,   for the pair with the largest share
    closeness = median separation of all pairs / separation of that pair
    separation = distance of the two class means / sqrt(sum of the classes' variances)

    The separation has no unit: features times a constant give the same number. A closeness of 3 means that the
    two classes lie three times nearer, for their own spread, than the median pair.

    Measurements, on held-out images: ``worst_share`` with a 95 % Wilson interval over the errors (0 where nothing is
    wrong), ``worst_closeness`` (of the pair with the most errors; of the nearest pair where nothing is wrong) and
    ``largest_closeness`` (of the nearest pair). The exhibit names the pairs, worst first. With two classes there is one
    pair, and each number is 1.

    Args:
        shown: Pairs that the exhibit names at most.

    Misleads: the pair is picked by its own count, so its share on new images will on average be smaller. An image whose
    logits are not finite is an error of no pair. Where all features are equal, closeness is infinite.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> found = Confusions()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [m.name for m in found.measurements]
    ['worst_share', 'worst_closeness', 'largest_closeness']
    """

    name: ClassVar[str] = "confusions"
    question: ClassVar[str] = "Which two classes are confused most, and how close are their features?"
    shown: int = 20

    def __post_init__(self) -> None:
        check_count("shown", self.shown)

    def examine(self, subject: Subject) -> Findings:
        """Count errors by pair, measure separations, and name the worst."""
        errors, total = pair_errors(subject.test_predictions, subject.test.labels, subject.classes)
        closeness = self._closeness(subject)
        # ties, and a model without errors: the nearer pair first
        order = sorted(range(len(errors)), key=lambda k: (-int(errors[k]), -float(closeness[k])))
        worst = order[0]
        count = int(errors[worst])
        low, high = wilson_interval(count, total) if total else (0.0, 1.0)
        share = Measurement(
            self.name, "worst_share", count / total if total else 0.0, "fraction", max(total, 1), low=low, high=high,
            better="lower", context={"split": "test", "interval": "wilson 95 % over errors"},
        )  # fmt: skip
        return Findings(
            (
                share,
                self._ratio("worst_closeness", float(closeness[worst]), len(errors)),
                self._ratio("largest_closeness", float(closeness.max()), len(errors)),
            ),
            (self._named(subject, errors, closeness, order[: self.shown]),),
        )

    def _closeness(self, subject: Subject) -> Tensor:
        """Of every pair, in the order of itertools.combinations."""
        if not are_a_cloud(subject.test_features):
            return torch.full((math.comb(subject.classes, 2),), math.inf, dtype=torch.float64)
        cloud = class_scatter(subject.test_features, subject.test.labels, subject.classes)
        near = (2 * class_distance_normalised_variances(cloud)).sqrt()  # 1 / separation
        far = near.median()
        return torch.where(near > 0, near / far, 1.0).cpu() if bool(far > 0) else torch.ones_like(near).cpu()

    def _ratio(self, name: str, value: float, pairs: int) -> Measurement:
        return Measurement(self.name, name, value, "ratio", pairs, better="lower", context={"split": "test"})

    def _named(self, subject: Subject, errors: Tensor, closeness: Tensor, order: list[int]) -> Exhibit:
        pairs = list(itertools.combinations(subject.test.classes, 2))
        columns: dict[str, list[Any]] = {
            "pair": [" and ".join(pairs[k]) for k in order],
            "errors": [int(errors[k]) for k in order],
            "closeness": [float(closeness[k]) for k in order],
        }
        return Exhibit(self.name, "pairs", "histogram", columns, "Errors between two classes, most first.")


def pair_errors(answers: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, int]:
    """Errors between each two classes, both ways, and all errors.

    Args:
        answers: Classes given, (N,); -1 for none, which is an error of no pair.
        labels: True classes, (N,).
        classes: C.

    Shapes:
        returns (C (C - 1) / 2,) in the order of itertools.combinations, and a number.

    >>> pair_errors(torch.tensor([1, 0, 2, -1]), torch.tensor([0, 1, 2, 2]), 3)
    (tensor([2, 0, 0]), 3)
    """
    named = answers >= 0
    flat = torch.bincount(labels[named] * classes + answers[named], minlength=classes**2)
    counts = flat.reshape(classes, classes).cpu()
    first, second = torch.triu_indices(classes, classes, offset=1)
    return counts[first, second] + counts[second, first], int((answers != labels).sum())
