"""Does its confidence match its accuracy?"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from scipy.optimize import minimize_scalar
from scipy.special import erf
from torch import Tensor

from clearance._checks import check_choice, check_count
from clearance.audits._audit import Audit, Findings, Subject, mean_of, wilson_interval
from clearance.audits._samples import first_half
from clearance.data import ImageSet
from clearance.data.intake import open_images
from clearance.models.features import all_logits, named_classes
from clearance.records.summary import Z_95
from clearance.vocabulary import Exhibit, Measurement, Scalar

AS_TRAINED, FITTED = "as trained", "calibrated"
Binning = Literal["equal width", "equal mass"]


@dataclass(frozen=True)
class Bins:
    """Images sorted into bins by confidence; empty bins are left out.

    Args:
        count: Images in each, (B,).
        confidence: Mean of the largest probability, (B,).
        accuracy: Share of right images, (B,).
    """

    count: Tensor
    confidence: Tensor
    accuracy: Tensor

    @property
    def error(self) -> float:
        """ECE = sum_b n_b / n |accuracy_b - confidence_b|: Naeini et al. (2015); Guo et al. (2017), equation 3."""
        return float(self._weights @ (self.accuracy - self.confidence).abs())

    @property
    def debiased_error(self) -> float:
        r"""ECE less what chance alone adds to it; may fall a little below 0 where there is nothing left.

        2 ECE - sum_b n_b / n E|g_b + sigma_b Z|,    g = accuracy - confidence,    sigma^2 = accuracy (1 - accuracy) /
        (n_b - 1),    E|g + sigma Z| = sigma sqrt(2 / pi) exp(-g^2 / 2 sigma^2) + g erf(g / (sigma sqrt 2))

        Source: Kumar, Liang, Ma, *Verified Uncertainty Calibration* (2019), who draw the Z; here in closed form.
        A bin of one image says nothing about its own variance and is given that of a calibrated answer.

        Misleads near perfect calibration: two fifths of the bias go, not all of it.
        """
        gap = (self.accuracy - self.confidence).abs()
        alone = self.count == 1
        rate = torch.where(alone, self.confidence, self.accuracy)
        sigma = (rate * (1 - rate) / (self.count - 1).clamp(min=1)).sqrt()
        share = gap / torch.where(sigma > 0, sigma, 1)
        noisy = sigma * math.sqrt(2 / math.pi) * (-share.square() / 2).exp()
        noisy = noisy + gap * torch.as_tensor(erf((share / math.sqrt(2)).numpy()))
        return float(self._weights @ (2 * gap - torch.where(sigma > 0, noisy, gap)))

    @property
    def _weights(self) -> Tensor:
        return self.count / self.count.sum()


@dataclass(frozen=True)
class Calibration(Audit):
    r"""How good a classifier's probabilities are, as trained and after one temperature: p = softmax(logits / T).

    ``nll``: mean of -log p_y. ``brier``: mean of sum_k (p_k - [k = y])^2, from 0 to 2. Both are lowest in expectation
    for the true probabilities, and judge. ``ece``: sum over bins of their share of images times |accuracy - mean
    confidence|, confidence being the largest probability; ``ece_debiased``: the same less what chance adds to it. They
    depend on the bins, are blind to all but the largest probability, and are shown only. ``overconfidence``: mean
    confidence less accuracy, with a 95 % interval; above 0 a classifier claims to be right more often than it is,
    below 0 less often. It can be 0 where the classifier is overconfident on some images and underconfident on others.

    Source: Guo et al., *On Calibration of Modern Neural Networks* (2017), for ECE, 15 bins and the temperature;
    Kumar, Liang, Ma (2019) for the debiased form.

    Measurements: each of the five for ``temperature`` as trained and calibrated, the mean ``confidence`` as trained,
    and the ``temperature`` itself. It is fitted on `validation`; without one, on half of the held-out images for the
    other half and the other way round, so that no image is scored with a temperature that it helped to choose. Where
    every image is right, and the minimum is T = 0, it is fitted with one image more, imagined, that belongs to all
    classes alike. Logits of a Gaussian-mixture head are those without margin, as it is used. Exhibit
    ``overconfidence``, of kind ``per_image``: confidence less 1 of each right image, confidence of each wrong one, as
    trained, so that two models can be compared image by image.

    An image whose logits are not finite counts as confident and wrong, with infinite ``nll``.

    Args:
        bins: Of confidence, at least 1.
        binning: ``"equal width"`` (as published) or ``"equal mass"``.
        validation: Images for the temperature that the model was not trained on, with the same classes. In a
            comparison they are those that the recipe's ``validation`` keeps back, where labels are not noisy.

    Raises:
        ValueError: If a setting is out of range or unknown.

    Misleads where few images are wrong: a temperature that rests on two or three of them may be far off. And
    probabilities are those of images like these; calibrated here is not calibrated elsewhere. A temperature
    changes no answer.

    >>> from torch import nn
    >>> from clearance.models import Classifier
    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(per_class=9, seed=0), gaussian_images(per_class=9, seed=1)
    >>> found = Calibration()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [m.name for m in found.measurements[:5]]
    ['nll', 'brier', 'overconfidence', 'ece', 'ece_debiased']
    """

    name: ClassVar[str] = "calibration"
    bins: int = 15
    binning: Binning = "equal width"
    validation: ImageSet | str | None = None

    def __post_init__(self) -> None:
        check_count("bins", self.bins)
        check_choice("binning", self.binning, get_args(Binning))

    def examine(self, subject: Subject) -> Findings:
        """Before and after the temperature."""
        labels = subject.test.labels
        logits = subject.test_logits.double()
        cooled, temperatures = self._calibrated(subject, logits)
        found: list[Measurement] = []
        exhibits = [_image_by_image(*confidences(logits, labels), subject.test)]
        for state, seen in ((AS_TRAINED, logits), (FITTED, cooled)):
            confidence, right = confidences(seen, labels)
            bins = binned(confidence, right, self.bins, self.binning)
            context: dict[str, Scalar] = {"temperature": state}
            found += [*_proper(seen, labels, context), _overconfidence(confidence, right, context)]
            found += self._errors(bins, len(labels), context)
            exhibits.append(self._picture(bins, context))
            if state == AS_TRAINED:
                found.append(mean_of(self.name, "confidence", confidence, "fraction", "neither", context))
        fitted = torch.tensor(temperatures, dtype=torch.float64)
        found.append(mean_of(self.name, "temperature", fitted, "factor", "neither", {}))
        return Findings(tuple(found), tuple(exhibits))

    def _calibrated(self, subject: Subject, logits: Tensor) -> tuple[Tensor, list[float]]:
        """Logits over the temperature that others chose, and all temperatures."""
        if self.validation is not None:
            kept = open_images(self.validation).to(logits.device)
            _check_validation(kept, subject.test)
            temperature = _fitted(all_logits(subject.model, kept).double(), kept.labels)
            return logits / temperature, [temperature]
        half, labels = first_half(subject.test.labels, subject.seed), subject.test.labels
        temperatures = [_fitted(logits[side], labels[side]) for side in (half, ~half)]
        return logits / logits.new_tensor(temperatures)[half.long()][:, None], temperatures

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
        caption = f"Accuracy over confidence, in {self.bins} bins of {self.binning}."
        return Exhibit(Calibration.name, "reliability", "curve", columns, caption, context)


def _check_validation(kept: ImageSet, test: ImageSet) -> None:
    if (kept.classes, kept.shape) != (test.classes, test.shape):
        raise ValueError(
            f"`validation` must have the classes and the image shape of the test images; got {kept.class_count} "
            f"classes of {kept.shape} and {test.class_count} of {test.shape}, or other names. Split it off the "
            "training set."
        )


def _fitted(logits: Tensor, labels: Tensor) -> float:
    """The temperature of these images; 1 where no logits are finite."""
    kept = logits.isfinite().all(dim=1)
    return fitted_temperature(logits[kept].cpu(), labels[kept].cpu()) if bool(kept.any()) else 1.0


def _proper(logits: Tensor, labels: Tensor, context: dict[str, Scalar]) -> Iterator[Measurement]:
    units = {"nll": "nats", "brier": "squared error"}
    for (name, unit), values in zip(units.items(), proper_scores(logits, labels), strict=True):
        yield mean_of(Calibration.name, name, values, unit, "lower", context)


def _overconfidence(confidence: Tensor, right: Tensor, context: dict[str, Scalar]) -> Measurement:
    value, low, high = surplus(confidence, right)
    context = {**context, "interval": "Newcombe's hybrid 95 %"}
    return Measurement(
        Calibration.name, "overconfidence", value, "fraction", len(right), low=low, high=high, context=context
    )


def _image_by_image(confidence: Tensor, right: Tensor, data: ImageSet) -> Exhibit:
    return Exhibit(
        Calibration.name,
        "overconfidence",
        "per_image",
        {"value": (confidence - right.double()).tolist()},
        "Confidence of each held-out image less 1 where it is right, less 0 where it is wrong, in their order.",
        {"temperature": AS_TRAINED, "split": "test", "images": data.digest()[:16]},
    )


LOG_LIMIT = 12.0  # temperatures from 6e-6 to 160,000 times the spread of the logits


def fitted_temperature(logits: Tensor, labels: Tensor) -> float:
    """The T above 0 that minimises the cross-entropy of softmax(logits / T) (Guo et al., 2017).

    Where no image is wrong the minimum would be at T = 0, and a head would be called more confident the longer it was
    trained: there one more image is imagined that belongs to all classes alike. (Platt, 1999, section 2.2, does so
    for two classes.) It weighs the more the sharper logits are, which is why it is not imagined elsewhere.

    Logits are (n, C), finite, with n at least 1; labels are class indices, (n,).

    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> 1.2 < fitted_temperature(logits, torch.tensor([0, 0, 1, 1])) < 3.0      # three of four are right
    True
    """
    best_wrong = logits.scatter(1, labels[:, None], -math.inf).amax(dim=1)
    none_wrong = bool((logits.gather(1, labels[:, None])[:, 0] >= best_wrong).all())  # a tie bounds nothing
    share = 1 / (len(labels) + 1) if none_wrong else 0.0
    targets = torch.nn.functional.one_hot(labels, logits.shape[1]).double()
    targets = (1 - share) * targets + share / logits.shape[1]
    exact = logits.double() - logits.double().amax(dim=1, keepdim=True)
    spread = float(exact.abs().max())
    if spread == 0:
        return 1.0
    # by the leads: a class that is masked by a very small logit takes no part in them
    lead = float((logits.gather(1, labels[:, None])[:, 0].double() - best_wrong.double()).abs().max())
    centre = math.log(lead or spread)

    def cross_entropy(log_temperature: float) -> float:
        log_p = torch.log_softmax(exact * math.exp(-log_temperature), dim=1)
        return float(-(targets * log_p).sum(dim=1).mean())

    # convex in 1 / T, so that log T has one valley
    bounds = (centre - LOG_LIMIT, centre + LOG_LIMIT)
    found = minimize_scalar(cross_entropy, bounds=bounds, method="bounded", options={"xatol": 1e-10})
    return math.exp(found.x)


def proper_scores(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    r"""Negative log-likelihood and Brier score of each image, (N,) and (N,), float64; for both, lower is better.

    nll = -log p_y,    brier = sum_k (p_k - [k = y])^2, from 0 to 2,    p = softmax(logits)

    Source: Brier, *Verification of forecasts expressed in terms of probability* (1950), the sum over all classes.
    An image whose logits are not finite gets the worst there is: infinity, and 2.

    Logits are (N, C), labels (N,).

    >>> nll, brier = proper_scores(torch.zeros(1, 2), torch.tensor([0]))
    >>> round(float(nll), 4), float(brier)
    (0.6931, 0.5)
    """
    log_p = logits.double().log_softmax(dim=1)
    p = log_p.exp()
    own = torch.nn.functional.one_hot(labels, logits.shape[1])
    nll = -log_p.gather(1, labels[:, None])[:, 0]
    brier = (p - own).square().sum(dim=1)
    broken = ~logits.isfinite().all(dim=1)
    return torch.where(broken, math.inf, nll), torch.where(broken, 2.0, brier)


def confidences(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The largest probability of each image and whether it is that of the right class: (N,) float64 and (N,) bool.

    Logits that are not finite count as confident and wrong.

    >>> confidences(torch.tensor([[0.0, 0.0, 80.0]]), torch.tensor([2]))
    (tensor([1.], dtype=torch.float64), tensor([True]))
    """
    broken = ~logits.isfinite().all(dim=1)
    confidence = logits.double().softmax(dim=1).amax(dim=1)
    return torch.where(broken, 1.0, confidence), named_classes(logits) == labels


def surplus(confidence: Tensor, right: Tensor) -> tuple[float, float, float]:
    r"""Mean confidence less the share of right images, with a 95 % interval.

    d = c - a,   d - sqrt((a_high - a)^2 + (z s_c / sqrt(n))^2)  to  d + sqrt((a - a_low)^2 + (z s_c / sqrt(n))^2)

    with the Wilson interval of the accuracy a, so that it has a width where no image is wrong. It is too wide
    where confidence is higher on images that are right.

    Source: Newcombe, *Interval estimation for the difference between independent proportions* (1998), method 10,
    with a normal interval for the mean confidence in place of the second proportion.

    `confidence`, in [0, 1], and `right`, bool, are (N,).

    >>> [round(x, 3) for x in surplus(torch.ones(100, dtype=torch.float64), torch.arange(100) < 90)]
    [0.1, 0.055, 0.174]
    """
    n, count = len(right), int(right.sum())
    mean, accuracy = float(confidence.mean()), count / n
    half = Z_95 * float(confidence.std()) / math.sqrt(n) if n > 1 else 1.0
    low, high = wilson_interval(count, n)
    gap = mean - accuracy
    return (
        gap,
        max(-1.0, gap - math.hypot(high - accuracy, half)),
        min(1.0, gap + math.hypot(accuracy - low, half)),
    )


def binned(confidence: Tensor, right: Tensor, bins: int, binning: Binning) -> Bins:
    """Images by their confidence.

    Args:
        confidence: (N,), in [0, 1], N at least 1.
        right: (N,), bool.
        bins: How many, at least 1.
        binning: ``"equal width"``: bin b holds ((b - 1) / bins, b / bins]. ``"equal mass"``: between the quantiles
            b / bins of `confidence`, so that all hold the same number except for ties, which stay together.

    >>> found = binned(torch.tensor([0.95, 0.97, 0.55]), torch.tensor([True, True, False]), 10, "equal width")
    >>> found.count.tolist(), found.accuracy.tolist()
    ([1.0, 2.0], [0.0, 1.0])
    """
    confidence, hit = confidence.double().cpu(), right.double().cpu()
    inner = torch.arange(1, bins, dtype=torch.float64) / bins
    edges = inner if binning == "equal width" else torch.quantile(confidence, inner)
    place = torch.bucketize(confidence, edges)
    count = torch.bincount(place, minlength=bins)
    filled = count > 0
    sums = [
        torch.zeros(bins, dtype=torch.float64).index_add_(0, place, each)[filled]
        for each in (confidence, hit)
    ]
    kept = count[filled].double()
    return Bins(kept, sums[0] / kept, sums[1] / kept)
