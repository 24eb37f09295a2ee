"""How much do the features depend on the head they were trained with?"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from clearance._checks import check_count, check_positive
from clearance._precision import at_least_float32
from clearance._rng import generator
from clearance.audits._audit import Audit, Findings, Subject
from clearance.audits._heads import fresh_heads, head_training, scaled_features
from clearance.audits._samples import PartialSets, partial_sets
from clearance.data import StoredImageSet
from clearance.geometry.nearest import class_means, nearest_class_mean, nearest_neighbour, unit_length
from clearance.heads import HeadStack, train_heads
from clearance.vocabulary import Better, Measurement, Scalar

PIXEL_HEADS = ("nearest pixel", "class mean, pixels")  # those that no model has a part in
FITTED_UP_TO = 100  # images up to which a head must fit its own images, or is counted


@dataclass(frozen=True)
class HeadErrors:
    """Test errors of the r heads of one kind and size; how many failed, and in which way."""

    head: str
    samples: int
    errors: Tensor
    diverged: int = 0
    unfitted: int | None = None


@dataclass(frozen=True)
class CoAdaptation(Audit):
    """The error of fresh heads trained on the frozen features of a few training images.

    The extractor is frozen, its head discarded, and a new one is trained from random weights on n
    class-balanced training images; the test error is averaged over r(n) draws of them. Features that are
    good only for the head they grew up with need many images; class clouds that are nearly points need one
    of each class.

    Source: Sato et al. (2019), section 4.1 and Fig. 2 (r = 150, 50, 15, 5, 1 there).

    Heads, all on the same images: ``retrained`` (ReLU layers of `hidden` widths, the paper's), ``linear``,
    ``class mean``, ``class mean, unit length`` and ``nearest neighbour`` (nothing trained), and on raw pixels,
    whatever the model, ``nearest pixel`` and ``class mean, pixels``, unless a set stays
    on disk. Trained heads read features in units of
    :func:`clearance.heads.scale.feature_unit`, so features times a constant give the same numbers.

    Measurements, for each head and n: ``error`` (mean over draws, with their standard deviation), ``gap``
    (that error minus the error of the model's own head) and, for trained heads, ``diverged_heads`` (each
    counted as chance-level error, so that nothing gains by breaking) and ``unfitted_heads`` (trained on at
    most 100 images, and wrong on one of them).

    Args:
        per_class: Images of every class in a partial set, ascending; sizes that the training set does not
            allow are left out.
        repetitions: r, draws for each of `per_class`; those of the paper.
        hidden: Hidden widths of the retrained head; the paper's secondary head.
        lr: Step size of fresh heads, above 0; momentum is 0.9 with Nesterov's look-ahead. It and the steps were chosen
            on a split of the digits' training set: errors after 100 and 300 steps differed by about half a point at
            most, and a step size of 0.1 was no better.
        least_steps: Steps of a fresh head at least, 1 or more.
        passes: Passes of a fresh head over its images, where that is more, 1 or more.
        most_steps: Steps of a fresh head at most, 1 or more.
        all_images: Whether all training images are the last size.
        pixel_limit: Largest n for which the nearest neighbour and the nearest class mean on pixels are computed.
        neighbour_limit: Largest n for which the nearest neighbour on features is computed.

    Raises:
        ValueError: If a setting is out of range.

    Misleads: heads on one image of a class are for classes that the extractor has seen; they promise nothing
    for new ones.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> audit = CoAdaptation(per_class=(1,), repetitions=(3,), hidden=(8,), least_steps=20, all_images=False)
    >>> found = audit(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> next(m.n for m in found.measurements if m.name == "error" and m.context["head"] == "retrained")
    3
    """

    name: ClassVar[str] = "co_adaptation"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    per_class: tuple[int, ...] = (1, 10, 100, 1000)
    repetitions: tuple[int, ...] = (150, 50, 15, 5)
    hidden: tuple[int, ...] = (128, 128)
    lr: float = 0.03
    least_steps: int = 200
    passes: int = 20
    most_steps: int = 3000
    all_images: bool = True
    pixel_limit: int = 2000
    neighbour_limit: int = 2000

    def __post_init__(self) -> None:
        if len(self.per_class) != len(self.repetitions):
            raise ValueError(
                "`repetitions` must name a number of draws for each of `per_class`; got "
                f"{self.repetitions} for {self.per_class}."
            )
        for count in (*self.per_class, *self.repetitions):
            check_count("per_class and repetitions", count)
        if any(first >= second for first, second in itertools.pairwise(self.per_class)):
            raise ValueError(f"`per_class` must ascend, each size once; got {self.per_class}.")
        check_positive("lr", self.lr)
        for name in ("least_steps", "passes", "most_steps"):
            check_count(name, getattr(self, name))

    def examine(self, subject: Subject) -> Findings:
        """Every head on every partial set."""
        wrong = subject.test_predictions != subject.test.labels
        own_error = float(wrong.double().mean())
        return Findings(tuple(m for errors in self.errors(subject) for m in _measurements(errors, own_error)))

    def errors(self, subject: Subject) -> Iterator[HeadErrors]:
        """Test errors of every head on every partial set; the model's own head is not used."""
        for sets in partial_sets(
            subject.train, self.per_class, self.repetitions, subject.seed, whole=self.all_images
        ):
            yield from self._errors(subject, sets)

    def _errors(self, subject: Subject, sets: PartialSets) -> Iterator[HeadErrors]:
        for head, hidden in (("retrained", self.hidden), ("linear", ())):
            yield self._trained(subject, sets, head, hidden)
        for head, errors in self._untrained(subject, sets):
            yield HeadErrors(head, sets.samples, errors)

    def _untrained(self, subject: Subject, sets: PartialSets) -> Iterator[tuple[str, Tensor]]:
        features, rows = features_of(subject), sets.rows
        yield "class mean", class_mean_errors(features, rows)
        yield "class mean, unit length", class_mean_errors(features.normalised(), rows)
        if sets.samples <= self.neighbour_limit:
            yield "nearest neighbour", nearest_neighbour_errors(features, rows)
        if sets.samples <= self.pixel_limit and not _on_disk(subject):
            pixels = pixels_of(subject)
            yield PIXEL_HEADS[0], nearest_neighbour_errors(pixels, rows)
            yield PIXEL_HEADS[1], class_mean_errors(pixels, rows)

    def _trained(self, subject: Subject, sets: PartialSets, head: str, hidden: tuple[int, ...]) -> HeadErrors:
        train, test = scaled_features(subject)
        first = generator(subject.seed, "fresh heads", head, sets.samples)
        trained = train_heads(
            fresh_heads(train, hidden, subject.classes, len(sets.rows), first),
            train,
            subject.train.labels,
            head_training(sets.samples, self.lr, self.least_steps, self.passes, self.most_steps),
            rows=sets.rows,
            generator=generator(subject.seed, "head batches", head, sets.samples),
        )
        errors = (trained.stack.predictions(test) != subject.test.labels).double().mean(dim=1)
        errors[trained.diverged] = 1 - 1 / subject.classes
        unfitted = None
        if sets.samples <= FITTED_UP_TO:
            unfitted = _unfitted(trained.stack, train, subject.train.labels, sets.rows)
        return HeadErrors(head, sets.samples, errors, int(trained.diverged.sum()), unfitted)


def _unfitted(stack: HeadStack, features: Tensor, labels: Tensor, rows: Tensor) -> int:
    """How many heads are wrong on one of the images that they were trained on."""
    own = [stack.select(torch.tensor([k])).predictions(features[rows[k]])[0] for k in range(len(stack))]
    return int((torch.stack(own) != labels[rows]).any(dim=1).sum())


def _measurements(found: HeadErrors, own_error: float) -> list[Measurement]:
    context: dict[str, Scalar] = {"head": found.head, "samples": found.samples}
    repetitions = len(found.errors)
    error = float(found.errors.mean())
    spread = float(found.errors.std()) if repetitions > 1 else None

    def measured(
        name: str, value: float, unit: str, spread: float | None = None, better: Better = "lower"
    ) -> Measurement:
        return Measurement(
            CoAdaptation.name, name, value, unit, repetitions, spread, better=better, context=context
        )

    measurements = [measured("error", error, "fraction", spread)]
    if found.head not in PIXEL_HEADS:
        # near 0 is best: far below, the network's own last layers are worse than new ones
        measurements.append(measured("gap", error - own_error, "fraction", spread, better="neither"))
    if found.head in ("retrained", "linear"):
        measurements.append(measured("diverged_heads", found.diverged, "count"))
    if found.unfitted is not None:
        measurements.append(measured("unfitted_heads", found.unfitted, "count"))
    return measurements


@dataclass(frozen=True)
class Cloud:
    """Training and test points with their labels, (N, D) and (M, D); features of a model, or pixels."""

    train: Tensor
    test: Tensor
    labels: Tensor
    test_labels: Tensor
    classes: int

    def normalised(self) -> "Cloud":
        """The same with every point at unit length."""
        return replace(self, train=unit_length(self.train), test=unit_length(self.test))

    def errors(self, named: Tensor) -> Tensor:
        """The test error of each of r rows of answers, (r, M): points that are not finite are wrong.

        That of guessing where a training point is not.
        """
        finite = self.test.isfinite().all(dim=1)
        wrong = ((named != self.test_labels) | ~finite).double().mean(dim=1)
        return wrong if bool(self.train.isfinite().all()) else torch.full_like(wrong, 1 - 1 / self.classes)


def features_of(subject: Subject) -> Cloud:
    """What enters the model's head."""
    train, test = subject.train, subject.test
    inside, outside = at_least_float32(subject.train_features), at_least_float32(subject.test_features)
    return Cloud(inside, outside, train.labels, test.labels, subject.classes)


def _on_disk(subject: Subject) -> bool:
    return any(
        isinstance(some, StoredImageSet) and not some.is_small() for some in (subject.train, subject.test)
    )


def pixels_of(subject: Subject) -> Cloud:
    """The images themselves."""
    train, test = subject.train, subject.test
    return Cloud(train.images.flatten(1), test.images.flatten(1), train.labels, test.labels, subject.classes)


def class_mean_errors(cloud: Cloud, rows: Tensor) -> Tensor:
    """Errors of the nearest class mean of each of r partial sets, row numbers (r, n); shape (r,)."""
    found = [class_means(cloud.train[r], cloud.labels[r]) for r in rows]
    return cloud.errors(torch.stack([there[nearest_class_mean(means, cloud.test)] for there, means in found]))


def nearest_neighbour_errors(cloud: Cloud, rows: Tensor) -> Tensor:
    """Errors of the nearest point of each of r partial sets, row numbers (r, n); shape (r,)."""
    return cloud.errors(
        torch.stack([nearest_neighbour(cloud.train[r], cloud.labels[r], cloud.test) for r in rows])
    )
