"""How far must an image change until another class is predicted with high confidence?"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clearance._checks import check_count, check_fraction, check_positive
from clearance.attacks.ascent import TargetedAscent
from clearance.attacks.attack import logits_of
from clearance.attacks.minimum_norm import MinimumNorm
from clearance.audits._audit import Audit, Findings, Subject
from clearance.audits._change_sheet import change_sheet
from clearance.audits._samples import fixed_images
from clearance.data import ImageSet
from clearance.linear.temperature import calibrated_temperature
from clearance.models._running import evaluating
from clearance.models.classifier import Classifier
from clearance.vocabulary import Better, Measurement, Scalar

PIXELS = "pixel units"


@dataclass(frozen=True)
class HighConfidenceAdversarials(Audit):
    r"""Targeted ascent until the confidence in the next class equals the median confidence of the predictions.

        x' <- clip(x' + step * g / ||g||_2),  g = grad log softmax(logits / T)_t,  until p_t(x') >= confidence

    T is the temperature at which the median confidence on held-out images is `confidence`, so that networks with
    large and with small logits are comparable; the target t is the class after an image's own, the first after the
    last.

    Source: Tanay and Griffin, *A New Angle on L2 Regularization* (2018), the section on neural networks: there for one
    image of each class, with steps of one grey level.

    Measurements, medians over images, in the Euclidean norm: ``confident_distance``, how far the ascent went, infinite
    where it did not arrive, 0 for an image that is taken for the target from the start; ``nearest_distance``, of the
    same images the nearest wrong one that :class:`~clearance.attacks.MinimumNorm` finds, 0 where the answer is wrong.
    ``reached``: the share that arrived. ``temperature``: T, 0 where no temperature gives that median confidence.
    Exhibit ``contact_sheet``: the first image of each class, what it became, the confidence in each, and how
    long the change is.

    Args:
        confidence: Of the target at which to stop, and of the median image; above 1 over the number of classes, below
            1. The article's is 0.95.
        images: At most, but one of every class at least; a class-balanced choice by the seed where there are more.
        grey_levels: Length of a step, of 255, above 0.
        steps: At most.
        search: Steps of the search for the nearest wrong image.

    Raises:
        ValueError: If a setting is out of range.

    Misleads as a shortest distance: the ascent's path is not the shortest, and ends where the network is confident, not
    where it errs. A network that hides its gradients seems far from everything (see the audit `robustness`).

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(per_class=9, seed=0), gaussian_images(per_class=9, seed=1)
    >>> audit = HighConfidenceAdversarials(images=6, grey_levels=20.0, steps=20, search=5)
    >>> found = audit(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [m.name for m in found.measurements]
    ['confident_distance', 'nearest_distance', 'reached', 'temperature']
    """

    name: ClassVar[str] = "high_confidence_adversarials"
    needs: ClassVar[tuple[str, ...]] = ("gradients",)
    confidence: float = 0.95
    images: int = 100
    grey_levels: float = 1.0
    steps: int = 1000
    search: int = 100

    def __post_init__(self) -> None:
        check_fraction("confidence", self.confidence, open_below=True, open_above=True)
        check_positive("grey_levels", self.grey_levels)
        for name in ("images", "steps", "search"):
            check_count(name, getattr(self, name))

    def examine(self, subject: Subject) -> Findings:
        """The temperature first, then the ascent and the search on the same images."""
        if not 1 / subject.classes < self.confidence:
            raise ValueError(
                f"`confidence` must be above 1/{subject.classes}, what guessing among {subject.classes} classes "
                f"reaches; got {self.confidence}."
            )
        some = fixed_images(subject.test, self.images, subject.seed).in_memory()
        with evaluating(subject.model):
            temperature = self._temperature(subject)
            moved, distance = self._ascended(subject.model, some, temperature)
            nearest = MinimumNorm(2.0, steps=self.search)(subject.model, some.images, some.labels).distance
            sheet = change_sheet(self.name, subject.model, some, moved, distance, temperature)
        reached = float(distance.isfinite().double().mean())
        numbers = (
            self._number("confident_distance", _median(distance), PIXELS, len(some), "higher"),
            self._number("nearest_distance", _median(nearest), PIXELS, len(some), "higher"),
            self._number("reached", reached, "fraction", len(some)),
            self._number("temperature", temperature, "", len(subject.test)),
        )
        return Findings(numbers, (sheet,))

    def _temperature(self, subject: Subject) -> float:
        """Of the held-out images with finite logits; infinite where there are none, 0 where ties leave none."""
        logits = subject.test_logits.double()
        logits = logits[logits.isfinite().all(dim=1)]
        if not len(logits):
            return torch.inf
        try:
            return calibrated_temperature(logits.cpu(), self.confidence)
        except ValueError:
            return 0.0

    def _ascended(self, model: Classifier, some: ImageSet, temperature: float) -> tuple[Tensor, Tensor]:
        """What images became, and how far that is: infinite where the confidence was not reached.

        Images whose logits are not finite are not attacked: they count as wrong unchanged.
        """
        if temperature == torch.inf:
            return some.images, torch.zeros(len(some), device=some.labels.device)
        if temperature == 0:
            return some.images, torch.full((len(some),), torch.inf, device=some.labels.device)
        ascent = TargetedAscent(
            confidence=self.confidence,
            step=self.grey_levels / 255,
            steps=self.steps,
            temperature=temperature,
        )
        finite = logits_of(model, some.images).isfinite().all(dim=1)
        images, labels = some.images[finite], some.labels[finite]
        hit = ascent(model, images, labels, (labels + 1) % some.class_count)
        moved, distance = some.images.clone(), hit.distance.new_zeros(len(some))
        moved[finite], distance[finite] = hit.images, torch.where(hit.success, hit.distance, torch.inf)
        return moved, distance

    def _number(self, name: str, value: float, unit: str, n: int, better: Better = "neither") -> Measurement:
        context: dict[str, Scalar] = {} if name == "nearest_distance" else {"confidence": self.confidence}
        return Measurement(self.name, name, value, unit, n, better=better, context=context)


def _median(values: Tensor) -> float:
    """The lower of two in the middle: a value that occurs."""
    return float(values.median())
