"""How large are the weights, and how loud are the answers that they give?"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearance._checks import check_count, check_fraction
from clearance.audits._audit import Audit, Findings, Subject
from clearance.audits._fixed_images import fixed_images
from clearance.audits._temperature import fitted_temperature
from clearance.audits._weight_layers import WeightLayer, root_mean_square, spectral_norm, weight_layers
from clearance.linear.temperature import calibrated_temperature
from clearance.models._running import evaluating
from clearance.vocabulary import Exhibit, Measurement, Scalar

ALL = "all"
CHUNK = 512


@dataclass(frozen=True)
class WeightScale(Audit):
    """The sizes that weight decay works on: of each layer's weights, of the logits, and what the loss still sees.

    ``weight_rms``, ``spectral_norm``: of each linear layer, convolution and attention, counted from the image
    (``layer``), and the first also over ``all`` of them. ``logit_scale``: root mean square over held-out images and
    classes of the logits minus their mean over classes. ``temperature``: what logits are divided by, so that the
    network is as sure as it is right (``by`` likelihood), or so that the median image is 95 % sure (``by`` median
    confidence).
    ``active_share``: of the training images that are right, those with a probability of at most 1 - `threshold`, for
    which the loss still asks for more. ``normalised_layers``: how many layers are directly followed by normalisation.

    Source: Tanay and Griffin (2018): the weights' size rescales the loss. Small, all images are active and classes are
    kept far from the boundary on average; large, only errors are. 95 % is the article's.

    Args:
        threshold: In (0, 1), of the loss's slope in the logit of the true class, 1 - p.
        images: At most, of each set; a class-balanced choice by the seed where there are more.

    No direction is better. Without images whose answer is right, ``active_share`` is 1: none is done with.

    Misleads where normalisation follows a layer: its weights then only set how fast they turn, and their size says
    nothing about the network's answers, unless a skip connection that goes round the layer is added before, as in
    transformers that normalise afterwards; that is not looked for. Read the logits' scale instead. Spectral norms of
    kernels are those of one patch. Which parameters decay is the optimiser's to say:
    :func:`~clearance.audits.decayed_parameters`.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=9, seed=0), gaussian_images(per_class=9, seed=1)
    >>> found = WeightScale()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [(m.name, m.context.get("layer")) for m in found.measurements][:3]
    [('weight_rms', '1'), ('weight_rms', 'all'), ('spectral_norm', '1')]
    """

    name: ClassVar[str] = "weight_scale"
    question: ClassVar[str] = "How large are the weights, and how loud the answers?"
    threshold: float = 0.05
    images: int = 2000

    def __post_init__(self) -> None:
        check_fraction("threshold", self.threshold, open_below=True, open_above=True)
        check_count("images", self.images)

    def examine(self, subject: Subject) -> Findings:
        """Weights first, then what they make of images."""
        test = fixed_images(subject.test, self.images, subject.seed)
        train = fixed_images(subject.train, self.images, subject.seed)
        with evaluating(subject.model):
            layers = weight_layers(subject.model, test.images[:2])
            logits = torch.cat([subject.model(part) for part in test.images.split(CHUNK)]).double().cpu()
            learnt = torch.cat([subject.model(part) for part in train.images.split(CHUNK)]).double().cpu()
        sizes = [(root_mean_square(one.weight), spectral_norm(one.weight, one.groups)) for one in layers]
        found = [
            *_weights(layers, sizes),
            _number("logit_scale", _finite(_logit_scale(logits)), len(logits)),
            *_temperatures(logits, test.labels.cpu()),
            self._active(learnt, train.labels.cpu()),
            _number("normalised_layers", sum(one.normalised for one in layers), max(len(layers), 1), "count"),
        ]
        return Findings(tuple(found), (_table(layers, sizes),))

    def _active(self, logits: Tensor, labels: Tensor) -> Measurement:
        right = logits.argmax(dim=1) == labels
        slope = 1 - logits.softmax(dim=1).gather(1, labels.unsqueeze(1)).squeeze(1)
        active = right & ~(slope < self.threshold)  # what is not a number is not done with
        share = float(active.sum()) / float(right.sum()) if bool(right.any()) else 1.0
        share = 1.0 if bool(logits.isnan().any()) else share
        context: dict[str, Scalar] = {"split": "train", "threshold": self.threshold}
        return _number("active_share", share, len(labels), "fraction", context)


def _weights(layers: list[WeightLayer], sizes: list[tuple[float, float]]) -> Iterator[Measurement]:
    for place, (one, (size, _)) in enumerate(zip(layers, sizes, strict=True), start=1):
        yield _number("weight_rms", size, one.weight.numel(), context={"layer": str(place)})
    count = sum(one.weight.numel() for one in layers)
    if count:
        squares = sum(one.weight.numel() * size**2 for one, (size, _) in zip(layers, sizes, strict=True))
        yield _number("weight_rms", math.sqrt(squares / count), count, context={"layer": ALL})
    for place, (one, (_, largest)) in enumerate(zip(layers, sizes, strict=True), start=1):
        yield _number("spectral_norm", largest, one.weight.numel(), context={"layer": str(place)})


def _logit_scale(logits: Tensor) -> float:
    return float((logits - logits.mean(dim=1, keepdim=True)).square().mean().sqrt())


def _temperatures(logits: Tensor, labels: Tensor) -> Iterator[Measurement]:
    """Infinite where logits are not numbers, 0 where no temperature makes the median image sure."""
    whole = bool(logits.isfinite().all())
    by_likelihood = fitted_temperature(logits, labels) if whole else math.inf
    try:
        by_median = calibrated_temperature(logits) if whole else math.inf
    except ValueError:
        by_median = 0.0
    yield _number("temperature", by_likelihood, len(labels), context={"by": "likelihood"})
    yield _number("temperature", by_median, len(labels), context={"by": "median confidence"})


def _number(
    name: str, value: float, n: int, unit: str = "", context: dict[str, Scalar] | None = None
) -> Measurement:
    return Measurement(WeightScale.name, name, value, unit, n, better="neither", context=context or {})


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def _table(layers: list[WeightLayer], sizes: list[tuple[float, float]]) -> Exhibit:
    columns: dict[str, Sequence[Any]] = {
        "layer": list(range(1, len(layers) + 1)),
        "weight_rms": [size for size, _ in sizes],
        "spectral_norm": [largest for _, largest in sizes],
        "name": [one.name for one in layers],
        "shape": [" x ".join(map(str, one.weight.shape)) for one in layers],
        "normalised": [str(one.normalised).lower() for one in layers],
    }
    return Exhibit(
        WeightScale.name, "layers", "curve", columns, "Size of the weights, layer by layer from the image."
    )
