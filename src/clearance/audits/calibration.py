"""Is the classifier as sure as it is right?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, get_args

import torch
from torch import Tensor

from clearance._checks import check_choice, check_count
from clearance.audits._audit import Audit, Findings, Subject
from clearance.audits._halves import first_half
from clearance.audits._reliability import Binning, Bins, binned, proper_scores, sureness, surplus
from clearance.audits._temperature import fitted_temperature
from clearance.data import ImageSet, as_image_set
from clearance.models._running import evaluating
from clearance.models.classifier import Classifier
from clearance.vocabulary import Exhibit, Measurement, Scalar

CHUNK = 512
AS_TRAINED, FITTED = "as trained", "calibrated"


@dataclass(frozen=True)
class Calibration(Audit):
    r"""How good a classifier's probabilities are, as trained and after one temperature: p = softmax(logits / T).

    ``nll``: mean of -log p_y. ``brier``: mean of sum_k (p_k - [k = y])^2, from 0 to 2. Both are lowest in expectation
    for the true probabilities, and judge. ``ece``: sum over bins of their share of images times |accuracy - mean
    confidence|, confidence being the largest probability; ``ece_debiased``: the same less what chance adds to it. They
    depend on the bins, are blind to all but the largest probability, and are shown only. ``overconfidence``: mean
    confidence less accuracy, with a 95 % interval; above 0 a classifier claims to be right more often than it is,
    below 0 less often. It can be 0 where sure images are too sure and unsure ones not sure enough.

    Source: Guo et al., *On Calibration of Modern Neural Networks* (2017), for ECE, 15 bins and the temperature;
    Kumar, Liang, Ma (2019) for the debiased form.

    Measurements: each of the five for ``temperature`` as trained and calibrated, and the ``temperature`` itself. It is
    fitted on `validation`; without one, on half of the held-out images for the other half and the other way round, so
    that no image is scored with a temperature that it helped to choose. Where every image is right, and the minimum is
    T = 0, it is fitted with one image more, imagined, that belongs to all classes alike. Logits of a
    Gaussian-mixture head are those without margin, as it is used. Exhibit ``overconfidence``, of kind ``per_image``:
    confidence less 1 of each right image, confidence of each wrong one, as trained, so that two models can be compared
    image by image.

    An image whose logits are not finite counts as sure and wrong, with infinite ``nll``.

    Args:
        bins: Of confidence, at least 1.
        binning: ``"equal width"`` (as published) or ``"equal mass"``.
        validation: Images for the temperature that the model was not trained on, with the same classes. In a
            comparison they are those that the recipe's ``validation`` keeps back, where labels are not noisy.

    Misleads where few images are wrong: a temperature that rests on two or three of them may be far off. And
    probabilities are those of images like these; calibrated here is not calibrated elsewhere. A temperature
    changes no answer.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(per_class=9, seed=0), gaussian_images(per_class=9, seed=1)
    >>> found = Calibration()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [m.name for m in found.measurements[:5]]
    ['nll', 'brier', 'overconfidence', 'ece', 'ece_debiased']
    """

    name: ClassVar[str] = "calibration"
    question: ClassVar[str] = "Is the classifier as sure as it is right?"
    bins: int = 15
    binning: Binning = "equal width"
    validation: ImageSet | None = None

    def __post_init__(self) -> None:
        check_count("bins", self.bins)
        check_choice("binning", self.binning, get_args(Binning))

    def examine(self, subject: Subject) -> Findings:
        """Before and after the temperature."""
        labels = subject.test.labels
        logits = _read(subject.model, subject.test_features)
        cooled, temperatures = self._calibrated(subject, logits)
        found: list[Measurement] = []
        exhibits = [_image_by_image(*sureness(logits, labels), subject.test)]
        for state, seen in ((AS_TRAINED, logits), (FITTED, cooled)):
            sure, right = sureness(seen, labels)
            bins = binned(sure, right, self.bins, self.binning)
            context: dict[str, Scalar] = {"temperature": state}
            found += [*_proper(seen, labels, context), _overconfidence(sure, right, context)]
            found += self._errors(bins, len(labels), context)
            exhibits.append(self._picture(bins, context))
        found.append(_temperature(temperatures))
        return Findings(tuple(found), tuple(exhibits))

    def _calibrated(self, subject: Subject, logits: Tensor) -> tuple[Tensor, list[float]]:
        """Logits over the temperature that others chose, and all temperatures."""
        if self.validation is not None:
            kept = as_image_set(self.validation).to(logits.device)
            _check_validation(kept, subject.test)
            parts = [_logits(subject.model, part) for part in kept.images.split(CHUNK)]
            temperature = _fitted(torch.cat(parts), kept.labels)
            return logits / temperature, [temperature]
        half, labels = first_half(subject.test.labels, subject.seed), subject.test.labels
        temperatures = [_fitted(logits[side], labels[side]) for side in (half, ~half)]
        return logits / torch.where(half, temperatures[1], temperatures[0])[:, None], temperatures

    def _errors(self, bins: Bins, images: int, context: dict[str, Scalar]) -> Iterator[Measurement]:
        binning: dict[str, Scalar] = {**context, "bins": self.bins, "binning": self.binning}
        for name, value in (("ece", bins.error), ("ece_debiased", bins.debiased_error)):
            yield Measurement(
                Calibration.name, name, value, "fraction", images, better="lower", context=binning
            )

    def _picture(self, bins: Bins, context: dict[str, Scalar]) -> Exhibit:
        columns = {
            "confidence": bins.confidence.tolist(),
            "accuracy": bins.accuracy.tolist(),
            "images": bins.count.long().tolist(),
        }
        caption = (
            f"How many images are right over how sure the classifier is of them, in {self.bins} bins of "
            f"{self.binning}."
        )
        return Exhibit(Calibration.name, "reliability", "curve", columns, caption, context)


def _check_validation(kept: ImageSet, test: ImageSet) -> None:
    if (kept.classes, kept.shape) != (test.classes, test.shape):
        raise ValueError(
            f"`validation` must have the classes and the image shape of the test images; got {kept.class_count} "
            f"classes of {kept.shape} and {test.class_count} of {test.shape}, or other names. Split it off the "
            "training set."
        )


def _read(model: Classifier, features: Tensor) -> Tensor:
    """Logits of features, float64."""
    with evaluating(model):
        return torch.cat([model.head(part) for part in features.split(CHUNK)]).double()


def _logits(model: Classifier, images: Tensor) -> Tensor:
    with evaluating(model):
        return model(images).double()


def _fitted(logits: Tensor, labels: Tensor) -> float:
    """The temperature of these images; 1 where no logits are finite."""
    kept = logits.isfinite().all(dim=1)
    return fitted_temperature(logits[kept].cpu(), labels[kept].cpu()) if bool(kept.any()) else 1.0


def _proper(logits: Tensor, labels: Tensor, context: dict[str, Scalar]) -> Iterator[Measurement]:
    units = {"nll": "nats", "brier": "squared error"}
    for (name, unit), values in zip(units.items(), proper_scores(logits, labels), strict=True):
        finite = len(values) > 1 and bool(values.isfinite().all())
        spread = float(values.std()) if finite else None
        yield Measurement(
            Calibration.name,
            name,
            float(values.mean()),
            unit,
            len(values),
            spread,
            better="lower",
            context=context,
        )


def _overconfidence(sure: Tensor, right: Tensor, context: dict[str, Scalar]) -> Measurement:
    value, low, high = surplus(sure, right)
    told = {**context, "interval": "Newcombe's hybrid 95 %"}
    return Measurement(
        Calibration.name, "overconfidence", value, "fraction", len(right), low=low, high=high, context=told
    )


def _image_by_image(sure: Tensor, right: Tensor, data: ImageSet) -> Exhibit:
    return Exhibit(
        Calibration.name,
        "overconfidence",
        "per_image",
        {"value": (sure - right.double()).tolist()},
        "Confidence of each held-out image less 1 where it is right, less 0 where it is wrong, in their order.",
        {"temperature": AS_TRAINED, "split": "test", "images": data.digest()[:16]},
    )


def _temperature(values: list[float]) -> Measurement:
    spread = float(torch.tensor(values, dtype=torch.float64).std()) if len(values) > 1 else None
    mean = sum(values) / len(values)
    return Measurement(Calibration.name, "temperature", mean, "factor", len(values), spread)
