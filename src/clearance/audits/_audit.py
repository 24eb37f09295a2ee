"""The contract of an audit, and what several audits of one classifier share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from clearance.data import ImageSet
from clearance.data.intake import open_images
from clearance.models._running import device_of, evaluating
from clearance.models.classifier import Classifier, check_classifier
from clearance.models.features import batch_size_for, extract_features, logits_from, named_classes
from clearance.records.summary import Z_95
from clearance.vocabulary import Better, Exhibit, Measurement, Scalar


@dataclass(frozen=True)
class Findings:
    """What an audit found.

    Args:
        measurements: Numbers, each with its unit, what it was taken over, and the settings that identify it.
        exhibits: Curves, pictures and numbers for each image, as arrays.

    >>> Findings((Measurement("mine", "share", 0.25, "fraction", 8),)).measurements[0].value
    0.25
    """

    measurements: tuple[Measurement, ...]
    exhibits: tuple[Exhibit, ...] = ()


def check_comparable(train: ImageSet, test: ImageSet) -> None:
    """Raise ValueError unless both sets have the same classes and images of one shape.

    >>> from clearance.data import gaussian_images
    >>> check_comparable(gaussian_images(class_count=2), gaussian_images(class_count=3))
    Traceback (most recent call last):
        ...
    ValueError: `train` and `test` must have the same classes in the same order; got 2 and 3: only `test` has 2...
    """
    if train.shape != test.shape:
        raise ValueError(
            f"`train` and `test` must have the same image shape; got {train.shape} and {test.shape}. "
            "Give --size (in Python, `preprocessing` of wrap) to resize both."
        )
    if train.classes != test.classes:
        alone = [
            f"only `{which}` has {_short([name for name in these if name not in others])}"
            for which, these, others in (
                ("train", train.classes, test.classes), ("test", test.classes, train.classes),
            )
            if set(these) - set(others)
        ]  # fmt: skip
        how = "Rename or remove what only one of them has." if alone else "Give both in one order."
        alone = alone or [f"{_short(train.classes)} and {_short(test.classes)}"]
        raise ValueError(
            f"`train` and `test` must have the same classes in the same order; got {train.class_count} and "
            f"{test.class_count}: {'; '.join(alone)}. {how}"
        )


def _short(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _check_precision(model: Classifier, data: ImageSet) -> None:
    """Raise ValueError if weights are in another precision than images and the model does not convert them itself."""
    image, _ = data.batch(torch.tensor([0]))
    kinds = {weight.dtype for weight in model.parameters() if weight.is_floating_point()} - {image.dtype}
    if not kinds:
        return
    try:
        with evaluating(model), torch.no_grad():
            model(image)
    except RuntimeError as error:
        raise ValueError(
            f"the model must take images in {image.dtype}; its weights are in {kinds.pop()}, and it says: "
            f"{' '.join(str(error).split())}. "
            "Call model.float(), or cast the images within the model."
        ) from error


def right_after(model: Classifier, data: ImageSet, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Which images the model is right on after a change, (N,) bool, on the CPU; logits must be finite for that."""
    device = device_of(model)
    with evaluating(model):
        found = [
            named_classes(model(change(images.to(device)).to(device))).cpu() == labels.cpu()
            for images, labels in data.batches(batch_size_for(model, data))
        ]
    return torch.cat(found)


PART = 256  # images of one part under attack: whole chunks, which a model sees together wherever they are attacked
FEATURE_BATCHES, FEATURE_IMAGES = 8, 512  # of one part of a set whose features are extracted, at least


class Workers(Protocol):
    """Where the parts of an audit are done if not here."""

    def __call__(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What `function`, importable by name, returns for each call, in order."""


def parts_of(count: int, size: int) -> tuple[Tensor, ...]:
    """The rows 0 to count - 1 in parts of one size, but for the last.

    >>> [len(rows) for rows in parts_of(5, 2)]
    [2, 2, 1]
    """
    return tuple(torch.arange(count).split(size))


class Subject:
    """A trained classifier with the images that it is audited on; features are extracted once.

    Args:
        model: Audited in evaluation mode; not changed.
        train: The images that the model was trained on (fresh heads learn from these).
        test: Held-out images with the same classes.
        seed: Decides partial sets and first weights; equal seeds give different models the same ones.
        new_classes: Images of classes that the model never saw: some to learn from, others to be tested on;
            for the audit of that name.
        workers: Where attacks, searches and features are computed, in parts of fixed size; None is here. The numbers
            are the same.

    Raises:
        ValueError: If the two sets of a pair have different classes or image shapes.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(per_class=5, seed=0), gaussian_images(per_class=4, seed=1)
    >>> subject = Subject(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> subject.test_features.shape
    torch.Size([12, 64])
    """

    def __init__(
        self,
        model: Classifier,
        train: Any,
        test: Any,
        seed: int = 0,
        new_classes: tuple[Any, Any] | None = None,
        workers: Workers | None = None,
    ) -> None:
        check_classifier(model)
        self.workers = workers
        device = device_of(model)
        self.model = model
        self.train: ImageSet = open_images(train).to(device)
        self.test: ImageSet = open_images(test).to(device)
        self.seed = seed
        self.on_progress: Callable[[int, int], object] | None = None
        check_comparable(self.train, self.test)
        _check_precision(model, self.test)
        self.new_classes: Subject | None = None
        if new_classes is not None:
            self.new_classes = Subject(model, *new_classes, seed, workers=workers)

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self.train.class_count

    @cached_property
    def train_features(self) -> Tensor:
        """Features of the training images, shape (N, D)."""
        return self.features(self.train)

    @cached_property
    def test_features(self) -> Tensor:
        """Features of the held-out images, shape (N, D)."""
        return self.features(self.test)

    @cached_property
    def train_predictions(self) -> Tensor:
        """The class that the model's own head names for each training image, (N,), from the features."""
        return named_classes(logits_from(self.model, self.train_features, self.train))

    @cached_property
    def test_logits(self) -> Tensor:
        """What the model's own head gives for the held-out images, (N, K), from the features."""
        return logits_from(self.model, self.test_features, self.test)

    @cached_property
    def test_predictions(self) -> Tensor:
        """The class that the model's own head names for each held-out image, (N,)."""
        return named_classes(self.test_logits)

    def features(self, data: ImageSet) -> Tensor:
        """Features of any images, shape (N, D)."""
        if self.workers is None:
            return extract_features(self.model, data, on_progress=self.progress)
        size = batch_size_for(self.model, data)
        parts = parts_of(len(data), max(FEATURE_BATCHES, FEATURE_IMAGES // size) * size)
        return torch.cat(self.workers(extract_features, [(self.model, data.subset(rows)) for rows in parts]))

    def by_parts(
        self,
        function: Callable[..., Any],
        count: int,
        call: Callable[[Tensor], tuple[Any, ...]],
        size: int = PART,
    ) -> list[Any]:
        """What a function returns for the parts of some images; without workers they are one part.

        Args:
            function: Importable by name; gradients are off while it runs.
            count: How many images.
            call: The arguments for some rows of them.
            size: Images of a part.
        """
        if self.workers is None:
            return [function(*call(torch.arange(count)))]
        return self.workers(function, [call(rows) for rows in parts_of(count, size)])

    def progress(self, done: int, of: int) -> None:
        """An audit says how many of its steps are done, for who waits (`on_progress`)."""
        if self.on_progress is not None:
            self.on_progress(done, of)


class Audit(ABC):
    """One question about a trained classifier. Final: call it; subclasses implement ``examine``.

    Attributes:
        name: The audit's name in records.
        needs: What it asks of a model besides logits, ``"features"`` or ``"gradients"``: without it, as of a black box,
            the audit is left out.

    >>> class Width(Audit):
    ...     name = "width"
    ...     def examine(self, subject):
    ...         width = subject.test_features.shape[1]
    ...         return Findings((Measurement(self.name, "features", width, "count", len(subject.test)),))
    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(seed=0), gaussian_images(seed=1)
    >>> Width()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test).measurements[0].value
    64
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()

    def __call__(
        self,
        model: Classifier,
        train: Any,
        test: Any,
        seed: int = 0,
        new_classes: tuple[Any, Any] | None = None,
    ) -> Findings:
        """Audit `model` alone; see :class:`Subject` for the arguments."""
        with torch.inference_mode(False):  # tensors of a caller's inference mode have no gradients
            return self.examine(Subject(model, train, test, seed, new_classes))

    @abstractmethod
    def examine(self, subject: Subject) -> Findings:
        """Measure; print nothing, store nothing."""


UNANSWERED = "no finite logits"  # where no class is predicted


def named_class(classes: tuple[str, ...], k: int) -> str:
    """The name of a class that a classifier answers, which may have more outputs than there are names.

    >>> named_class(("a", "b"), 1), named_class(("a", "b"), 2), named_class(("a", "b"), -1)
    ('b', 'output 2', 'no finite logits')
    """
    if k < 0:
        return UNANSWERED
    return classes[k] if k < len(classes) else f"output {k}"


WILSON = "wilson 95 %"  # the interval's name in the context of a measurement


def wilson_interval(wrong: int, images: int, z: float = Z_95) -> tuple[float, float]:
    """The Wilson interval of a fraction, 95 % by default; never leaves [0, 1], and is not empty at 0 or 1.

    centre +- half = (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    Source: Wilson, JASA 1927.

    >>> low, high = wilson_interval(0, 10)
    >>> low, round(high, 4)
    (0.0, 0.2775)
    """
    fraction, shrink = wrong / images, 1 + z**2 / images
    centre = fraction + z**2 / (2 * images)
    half = z * math.sqrt(fraction * (1 - fraction) / images + z**2 / (4 * images**2))
    low = 0.0 if wrong == 0 else (centre - half) / shrink
    high = 1.0 if wrong == images else (centre + half) / shrink
    return low, high


def share_of(
    audit: str, name: str, count: int, images: int, better: Better, context: Mapping[str, Scalar]
) -> Measurement:
    """`count` of `images` as a fraction, with its Wilson interval.

    >>> found = share_of("mine", "right", 0, 10, "higher", {})
    >>> found.value, found.low, round(found.high, 4)
    (0.0, 0.0, 0.2775)
    """
    low, high = wilson_interval(count, images)
    found = {**context, "interval": WILSON}
    return Measurement(
        audit, name, count / images, "fraction", images, low=low, high=high, better=better, context=found
    )


def mean_of(
    audit: str, name: str, values: Tensor, unit: str, better: Better, context: Mapping[str, Scalar]
) -> Measurement:
    """The mean of some numbers; their standard deviation where there are several, all finite."""
    spread = float(values.std()) if len(values) > 1 and bool(values.isfinite().all()) else None
    mean = float(values.mean())
    return Measurement(audit, name, mean, unit, len(values), spread, better=better, context=dict(context))


def share_of_errors(
    audit: str, name: str, count: int, errors: int, context: Mapping[str, Scalar]
) -> Measurement:
    """`count` of the wrong images as a fraction; 0 of one, with an interval of everything, where none is wrong."""
    low, high = wilson_interval(count, errors) if errors else (0.0, 1.0)
    found = {**context, "interval": f"{WILSON} over errors"}
    n = max(errors, 1)
    return Measurement(
        audit, name, count / n, "fraction", n, low=low, high=high, better="lower", context=found
    )
