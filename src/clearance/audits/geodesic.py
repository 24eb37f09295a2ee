"""How far does a head move when it is trained on few images instead of all?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from clearance._checks import check_choice, check_count, check_positive
from clearance._precision import at_least_float32
from clearance._rng import generator
from clearance.audits._audit import Audit, Findings, Subject, mean_of
from clearance.audits._heads import (
    are_a_cloud,
    check_every_class,
    fresh_heads,
    head_training,
    scaled_features,
)
from clearance.audits._samples import partial_sets
from clearance.audits.calibration import fitted_temperature
from clearance.heads import HeadStack, train_heads
from clearance.heads.fisher import path_distance, segment_distances
from clearance.vocabulary import Exhibit, Measurement, Scalar

READINGS = ("rms", "raw")
SHARE, FEWEST, MOST = 0.05, 500, 2500  # of the training images, for the Fisher information
ROUNDING = 1e-4  # of losses that are alike
AS_TRAINED, CALIBRATED = "as trained", "calibrated"


@dataclass(frozen=True)
class _Ends:
    """The head of all images and r heads of one image a class, from the same first weights."""

    full: HeadStack
    few: HeadStack
    broken: Tensor


NAME = "geodesic"


@dataclass(frozen=True)
class Paths:
    """What was found on r paths of heads.

    Args:
        features: How heads read them.
        temperature: Whether heads are as they were trained.
        segments: (r, 3 metrics, L + 1, P), infinite where an end is broken.
        errors: Test errors (r, P + 1), not a number where an end is broken; None where not measured.
        diverged: How many of the r paths have an end whose training diverged.
    """

    features: str
    temperature: str
    segments: Tensor
    errors: Tensor | None = None
    diverged: int = 0


@dataclass(frozen=True)
class Geodesic(Audit):
    """The distance between a head trained on all images and one trained on a single image of each class.

    Both are trained on the frozen features from the same first weights; the straight path between them is
    cut into P segments, each measured by the Fisher information at its left end:

    theta_a = (a theta_SD + (P - a) theta_LD) / P,  a = 0..P                    (Eq. 14)
    d(theta_LD, theta_SD) = [ sum_a d(theta_a, theta_{a+1})^2 ]^(1/2)           (Eq. 15)
    d(theta_a, theta_{a+1})^2 = (theta_{a+1} - theta_a)^T I_a (theta_{a+1} - theta_a)    (Eq. 16)

    Source: Sato et al. (2019), section 4.2 and Fig. 3. Features that any head can read need no long way.

    Measurements, each the mean over the draws of single images, with their standard deviation: ``distance``
    (Eq. 15) and ``length`` (the plain sum of the segments), for each layer and all together, by the paper's
    ``empirical`` information (true labels), the ``model``'s own (no labels) and the ``euclidean`` distance;
    ``path_error_rise`` (test error at the few-image end minus that at the other) and
    ``worst_path_error`` (the largest on the path minus that at the all-image end); ``diverged_heads``.

    The paper's information is small wherever heads are confident, whether or not they moved little. Therefore
    heads are also measured ``calibrated``: each end's logits are divided by the temperature that
    calibrates it on one half of the images of I_a, which its last layer absorbs, and the new path is measured on the
    other half.

    Heads read features in units of :func:`clearance.heads.scale.feature_unit` (``rms``), where features times
    a constant give the same numbers, and as they are (``raw``, the paper's).

    A draw with a head that diverged (its weights overflowed, or its loss on its own images is no better than
    that of always naming the classes' shares), or features that are all equal or not finite, counts as
    infinitely far and its test error as risen to that of guessing.

    Args:
        segments: P; that of the paper.
        repetitions: Draws of one image a class; the paper shows one.
        hidden: Hidden widths of the heads; the paper's.
        lr: Step size of fresh heads, above 0; that of the audit ``co_adaptation``.
        readings: Whether heads read features as ``"rms"``, ``"raw"`` or both.

    Raises:
        ValueError: If a class has no training image.

    Misleads: Eq. 15 depends on P, and the distance is along one straight line, which is not a geodesic but an
    upper bound of one's length only where it is summed. One first head, of many, is measured. Heads that know
    nothing are calibrated to say nothing, and then lie close together: compare distances with errors.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=8, seed=0), gaussian_images(per_class=8, seed=1)
    >>> walk = Geodesic(segments=2, repetitions=1, hidden=(4,))
    >>> found = walk(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> min(m.value for m in found.measurements if m.name == "distance") > 0
    True
    """

    name: ClassVar[str] = NAME
    needs: ClassVar[tuple[str, ...]] = ("features",)
    segments: int = 15
    repetitions: int = 3
    hidden: tuple[int, ...] = (128, 128)
    lr: float = 0.03
    readings: tuple[str, ...] = READINGS

    def __post_init__(self) -> None:
        for name, count in (("segments", self.segments), ("repetitions", self.repetitions)):
            check_count(name, count)
        for width in self.hidden:
            check_count("hidden", width)
        check_positive("lr", self.lr)
        for reading in self.readings:
            check_choice("readings", reading, READINGS)
        if len(set(self.readings)) != len(self.readings) or not self.readings:
            raise ValueError(f"`readings` must name one reading or more, each once; got {self.readings}.")

    def examine(self, subject: Subject) -> Findings:
        """Train both ends in each reading, then walk from one to the other."""
        found = [paths for reading in self.readings for paths in self._paths(subject, reading)]
        chance = 1 - 1 / subject.classes
        measured = [m for paths in found for m in measurements(paths, chance)]
        shown = [e for paths in found for e in exhibits(paths, chance)]
        return Findings(tuple(measured), tuple(shown))

    def _paths(self, subject: Subject, reading: str) -> Iterator[Paths]:
        train, test = (
            scaled_features(subject)
            if reading == "rms"
            else (at_least_float32(subject.train_features), at_least_float32(subject.test_features))
        )
        rows = fisher_rows(len(train), subject.seed).to(train.device)
        fitting, measuring = rows[: max(1, len(rows) // 2)], rows[len(rows) // 2 :]
        labels = subject.train.labels
        ends = self._ends(subject, train)
        diverged = int(ends.broken.sum())
        if not are_a_cloud(train) or not bool(test.isfinite().all()):
            ends.broken.fill_(value=True)
        segments = self._segments(ends, train[rows], labels[rows])
        errors = self._errors(ends, test, subject.test.labels)
        yield Paths(reading, AS_TRAINED, segments, errors, diverged)
        if reading == "rms":
            calm = _calibrated(ends, train[fitting], labels[fitting])
            yield Paths(reading, CALIBRATED, self._segments(calm, train[measuring], labels[measuring]))

    def _ends(self, subject: Subject, train: Tensor) -> _Ends:
        check_every_class(subject.train, "train")
        stream = generator(subject.seed, "geodesic", "first weights")
        first = fresh_heads(train, self.hidden, subject.classes, 1, stream)
        few = partial_sets(subject.train, (1,), (self.repetitions,), subject.seed)[0]
        ends = []
        for samples, rows in ((len(train), None), (few.samples, few.rows)):
            heads = first if rows is None else first.select(torch.zeros_like(rows[:, 0]))
            stream = generator(subject.seed, "geodesic", "batches", samples)
            training = head_training(samples, self.lr)
            labels = subject.train.labels
            trained = train_heads(heads, train, labels, training, rows=rows, generator=stream)
            ends.append((trained.stack, trained.diverged | _lost(trained.stack, train, labels, rows)))
        return _Ends(ends[0][0], ends[1][0], ends[0][1] | ends[1][1])

    def _segments(self, ends: _Ends, features: Tensor, labels: Tensor) -> Tensor:
        """Every segment of every path, infinite where an end is broken, (r, 3, L + 1, P)."""
        count = len(self.hidden) + 2
        found = torch.full((len(ends.few), len(METRICS), count, self.segments), torch.inf).double()
        for k in range(len(ends.few)):
            if not bool(ends.broken[k]):
                step = {name: value / self.segments for name, value in _displacement(ends, k).items()}
                seen = segment_distances(ends.full, step, features, labels, self.segments)
                found[k] = torch.stack([getattr(seen, metric) for metric in METRICS]).cpu()
        return found.nan_to_num(torch.inf, torch.inf)

    def _errors(self, ends: _Ends, test: Tensor, labels: Tensor) -> Tensor:
        """Test error at every point of every path, not a number where an end is broken, (r, P + 1)."""
        found = torch.full((len(ends.few), self.segments + 1), torch.nan).double()
        share = torch.arange(self.segments + 1, device=test.device) / self.segments
        for k in range(len(ends.few)):
            if not bool(ends.broken[k]):
                start, moved = ends.full.parameters, _displacement(ends, k)
                points = {
                    n: start[n] + torch.stack([a * v.to(test) for a in share]) for n, v in moved.items()
                }
                wrong = ends.full.holding(points).predictions(test) != labels
                found[k] = wrong.double().mean(dim=1).cpu()
        return found


def fisher_rows(count: int, seed: int) -> Tensor:
    """Which of `count` training images the Fisher information is taken over: 5 %, at least 500, at most 2,500.

    The paper's 5 % are 2,500 images; equal seeds give every model the same ones.

    >>> len(fisher_rows(60_000, 0)), len(fisher_rows(1300, 0)), len(fisher_rows(48, 0))
    (2500, 500, 48)
    """
    size = min(max(round(SHARE * count), FEWEST), MOST, count)
    return torch.randperm(count, generator=generator(seed, "geodesic", "fisher images"))[:size]


@torch.no_grad()
def _lost(heads: HeadStack, features: Tensor, labels: Tensor, rows: Tensor | None) -> Tensor:
    """Which heads do no better on the images that they were trained on than always naming the classes' shares.

    Steps that are too large for raw features can throw weights far away without any of them overflowing.
    """
    own = torch.arange(len(features), device=features.device)[None] if rows is None else rows
    return torch.stack([_learnt_nothing(heads[k], features[o], labels[o]) for k, o in enumerate(own)])


def _learnt_nothing(head: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
    shares = labels.bincount().double() / len(labels)
    entropy = torch.special.entr(shares).sum()  # the least loss of answers that are alike for all images
    loss = cross_entropy(head(features).double(), labels)
    return ~(loss < (1 - ROUNDING) * entropy)  # a loss that is not a number is lost too


def _displacement(ends: _Ends, k: int) -> dict[str, Tensor]:
    start = ends.full.parameters
    return {n: value[k].double() - start[n][0].double() for n, value in ends.few.parameters.items()}


def _calibrated(ends: _Ends, features: Tensor, labels: Tensor) -> _Ends:
    """The same ends, each last layer divided by the temperature that fits its head."""
    broken = ends.broken.clone()
    stacks = []
    for stack in (ends.full, ends.few):
        last = f"{len(list(stack.architecture.children())) - 1}."
        exact = stack.holding({name: value.double() for name, value in stack.parameters.items()})
        logits = exact(features.double())
        finite = logits.isfinite().flatten(1).all(dim=1)
        broken.logical_or_(~finite)
        fitted = [fitted_temperature(z, labels) if ok else 1.0 for z, ok in zip(logits, finite, strict=True)]
        temperature = torch.tensor(fitted, dtype=torch.float64, device=features.device)
        calm = {
            name: value / temperature.view(-1, *[1] * (value.ndim - 1)) if name.startswith(last) else value
            for name, value in exact.parameters.items()
        }
        stacks.append(stack.holding(calm))
    return _Ends(stacks[0], stacks[1], broken)


METRICS = ("empirical", "model", "euclidean")


def measurements(paths: Paths, chance: float) -> Iterator[Measurement]:
    """Means over the draws; a draw whose test errors are not numbers counts as risen by `chance`."""
    context: dict[str, Scalar] = {"features": paths.features, "temperature": paths.temperature}
    layers = paths.segments.shape[2]
    names = [*(str(number) for number in range(1, layers)), "all"]
    for name, values in (("distance", path_distance(paths.segments)), ("length", paths.segments.sum(dim=-1))):
        for m, metric in enumerate(METRICS):
            unit = "ratio" if metric == "euclidean" else "nats"
            for row, layer in enumerate(names):
                found = {"metric": metric, "layer": layer, **context}
                yield mean_of(NAME, name, values[:, m, row], unit, "lower", found)
    if paths.errors is not None:
        rises = paths.errors - paths.errors[:, :1]
        last, worst = rises[:, -1].nan_to_num(chance), rises.amax(dim=1).nan_to_num(chance)
        yield mean_of(NAME, "path_error_rise", last, "fraction", "lower", context)
        yield mean_of(NAME, "worst_path_error", worst, "fraction", "lower", context)
        counted = {"features": paths.features}
        yield Measurement(
            NAME,
            "diverged_heads",
            paths.diverged,
            "count",
            len(rises),
            better="lower",
            context=counted,
        )


def exhibits(paths: Paths, chance: float) -> Iterator[Exhibit]:
    """Test error at each point and the paper's distance of each segment, means over the draws."""
    if paths.errors is None:
        return
    context: dict[str, Scalar] = {"features": paths.features, "temperature": paths.temperature}
    errors = paths.errors.nan_to_num(chance).mean(dim=0).tolist()
    yield Exhibit(
        NAME,
        "path_error",
        "curve",
        {"position": list(range(len(errors))), "error": errors},
        f"Test error on the way from the head of all images (0) to one of an image a class ({len(errors) - 1}).",
        context,
    )
    rows = paths.segments[:, 0, :-1].mean(dim=0).tolist()
    columns = {
        f"layer {number}": [d if d < torch.inf else None for d in row] for number, row in enumerate(rows, 1)
    }
    yield Exhibit(
        NAME,
        "segments",
        "curve",
        {"segment": list(range(1, len(rows[0]) + 1)), **columns},
        "Empirical Fisher distance of each segment of that way, layer by layer.",
        context,
    )
