"""How often is the classifier wrong?"""

import math
from dataclasses import dataclass
from typing import ClassVar

from clearance.audits._audit import Audit, Findings, Subject
from clearance.data import ImageSet
from clearance.models.classifier import Classifier
from clearance.models.features import predictions
from clearance.vocabulary import Measurement

Z_95 = 1.959963984540054  # the standard normal's 97.5 % point


def wilson_interval(wrong: int, images: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a fraction; never leaves [0, 1], and is not empty at 0 or 1.

    centre +- half = (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    Source: Wilson, JASA 1927.

    >>> low, high = wilson_interval(0, 10)
    >>> low, round(high, 4)
    (0.0, 0.2775)
    """
    fraction, shrink = wrong / images, 1 + Z_95**2 / images
    centre = fraction + Z_95**2 / (2 * images)
    half = Z_95 * math.sqrt(fraction * (1 - fraction) / images + Z_95**2 / (4 * images**2))
    low = 0.0 if wrong == 0 else (centre - half) / shrink
    high = 1.0 if wrong == images else (centre + half) / shrink
    return low, high


@dataclass(frozen=True)
class Accuracy(Audit):
    """The error of the classifier with its own head, on training and held-out images.

    Measurement ``error``: wrong images / images, with a 95 % Wilson interval, for ``split`` train and test.
    An image whose logits are not finite counts as wrong.

    Misleads as a comparison of two models audited on the same images: their intervals overlap more than the
    models differ; compare over seeds, paired.
    """

    name: ClassVar[str] = "accuracy"
    question: ClassVar[str] = "How often is the classifier wrong?"

    def examine(self, subject: Subject) -> Findings:
        """Errors on both sets."""
        sets = {"test": subject.test, "train": subject.train}
        return Findings(tuple(_error(subject.model, data, split) for split, data in sets.items()))


def _error(model: Classifier, data: ImageSet, split: str) -> Measurement:
    wrong = int((predictions(model, data) != data.labels).sum())
    low, high = wilson_interval(wrong, len(data))
    return Measurement(
        audit=Accuracy.name,
        name="error",
        value=wrong / len(data),
        unit="fraction",
        n=len(data),
        low=low,
        high=high,
        better="lower",
        context={"split": split, "interval": "wilson 95 %"},
    )
