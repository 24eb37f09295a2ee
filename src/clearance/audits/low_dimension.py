"""In how few dimensions do the classes lie, and how far does one direction set a class apart?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clearance._checks import check_positive
from clearance.audits._audit import Audit, Findings, Subject, mean_of
from clearance.audits._heads import are_a_cloud, check_every_class, check_spread
from clearance.data import ImageSet
from clearance.data.subsets import evenly_spaced
from clearance.geometry.discriminant import pooled_scatter, scatter_ratio, versus_rest
from clearance.geometry.nearest import unit_length
from clearance.geometry.spectrum import covariance_spectrum, effective_rank, first_axis_share, principal_axes
from clearance.vocabulary import Better, Exhibit, Measurement, Scalar


@dataclass(frozen=True)
class LowDimension(Audit):
    r"""How much of a class lies on one axis, and how far one axis sets a class apart from all others.

    ``lda_eigenvalue``: of the features divided by their length, the largest ratio of scatter between one class
    and the rest to the scatter within them, S_W + eps tr(S_W) / D I. For ``split`` train it is the generalised
    eigenvalue; for test, the ratio of the held-out features along the same direction. Every class at
    `regulariser`; the first class at every one of `regularisers`.

    ``threshold_error``: share of held-out images on the wrong side of the best threshold along that direction.
    ``chosen_on`` test is the smallest error that any threshold has, as in the source; for ``chosen_on`` train
    no held-out image was used. It is the number to use.

    ``first_axis_share``: share of a class's variance, held out, on its first principal axis (1: a line); for
    each class and their mean. ``plane_axis_share``: the mean of the same after projection on the plane of the first
    two principal axes of the training features, the plane of the picture. ``effective_rank``: exp(entropy) of the
    shares of variance, of all held-out features (``class`` all) and within a class (``class`` mean). All are of the
    features as they are.

    Source: Sato et al. (2019), section 4.3, Table 1 and Fig. 4 (first class; eps not stated; errors chosen on
    test). Roy and Vetterli (2007) for the rank.

    Where all features are equal or one is not finite, every number is the worst: 0, all images, all axes.

    Exhibits: ``spectrum`` (share of variance axis by axis), ``lda`` (held-out features along the direction of
    the first class, a row for each class), ``plane`` (training features on two principal axes).

    Args:
        regularisers: eps, each above 0; the source states none, so the first class is given for all of them.
        regulariser: eps for every class and for thresholds.

    Raises:
        ValueError: If the test set has no class with two images, which would all pass for points.

    Misleads: with fewer training images than dimensions the training eigenvalue is decided by eps; a class
    of few held-out images lies in few dimensions whatever its features. All classes together cannot stay
    apart below an effective rank of about C - 1: fewer is not always better.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=200, seed=0), gaussian_images(per_class=50, seed=1)
    >>> found = LowDimension()(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [m.context["class"] for m in found.measurements if m.name == "first_axis_share"]
    ['0', '1', '2', 'mean']
    """

    name: ClassVar[str] = "low_dimension"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    regularisers: tuple[float, ...] = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    regulariser: float = 1e-3

    def __post_init__(self) -> None:
        for value in (*self.regularisers, self.regulariser):
            check_positive("regulariser", value)

    def examine(self, subject: Subject) -> Findings:
        """Directions that set classes apart, then spectra, then pictures."""
        check_every_class(subject.train, "train")
        check_spread(subject.test, "test")
        lines = _Lines(subject) if are_a_cloud(subject.train_features, subject.test_features) else None
        whole = lines is not None
        found = [
            *self._directions(subject, lines),
            *_dimensions(subject, whole=whole),
            _in_the_plane(subject, whole=whole),
        ]
        # Of a broken extractor something is drawn too: 0 for what is not a number.
        train, test = (f.nan_to_num(0.0, 0.0, 0.0) for f in (subject.train_features, subject.test_features))
        scores = lines.scores(0, self.regulariser)[1] if lines else torch.zeros(len(test))
        exhibits = (
            spectrum(self.name, test, subject.test),
            line(self.name, scores, subject.test),
            plane(self.name, train, subject.train),
        )
        return Findings(tuple(found), exhibits)

    def _directions(self, subject: Subject, lines: "_Lines | None") -> Iterator[Measurement]:
        others = [eps for eps in dict.fromkeys(self.regularisers) if eps != self.regulariser]
        for chosen, name in enumerate(subject.train.classes):
            for eps in (self.regulariser, *(others if chosen == 0 else ())):
                context: dict[str, Scalar] = {"class": name, "regulariser": eps}
                ratios = lines.ratios(chosen, eps) if lines else (0.0, 0.0)
                for split, value in zip(("train", "test"), ratios, strict=True):
                    n = len(subject.train if split == "train" else subject.test)
                    yield _measured(
                        "lda_eigenvalue", value, n, {**context, "split": split}, "ratio", better="higher"
                    )
            context = {"class": name, "regulariser": self.regulariser}
            errors = lines.errors(chosen, self.regulariser) if lines else (1.0, 1.0)
            for chosen_on, value in zip(("test", "train"), errors, strict=True):
                n = len(subject.test)
                yield _measured("threshold_error", value, n, {**context, "chosen_on": chosen_on}, "fraction")


class _Lines:
    """Features of unit length on the lines that set each class apart from the rest."""

    def __init__(self, subject: Subject) -> None:
        self.train = unit_length(subject.train_features.double())
        self.test = unit_length(subject.test_features.double())
        self.train_labels, self.test_labels = subject.train.labels, subject.test.labels
        self.pooled = pooled_scatter(self.train, self.train_labels, subject.classes)

    def scores(self, chosen: int, regulariser: float) -> tuple[Tensor, Tensor]:
        """Training and held-out features on the line of a class."""
        direction = versus_rest(self.pooled, chosen, regulariser).direction
        return self.train @ direction, self.test @ direction

    def ratios(self, chosen: int, regulariser: float) -> tuple[float, float]:
        """Training eigenvalue, and the scatter ratio of held-out features on the same line."""
        found = versus_rest(self.pooled, chosen, regulariser)
        return found.eigenvalue, scatter_ratio(self.test @ found.direction, self.test_labels == chosen)

    def errors(self, chosen: int, regulariser: float) -> tuple[float, float]:
        """Held-out errors with the threshold chosen on held-out and on training features."""
        train, test = self.scores(chosen, regulariser)
        positive = self.test_labels == chosen
        fair = best_threshold(train, self.train_labels == chosen).error_on(test, positive)
        return best_threshold(test, positive).error, fair


def _dimensions(subject: Subject, *, whole: bool) -> Iterator[Measurement]:
    features, labels, classes = subject.test_features, subject.test.labels, subject.classes
    width, counts = features.shape[1], torch.bincount(labels, minlength=classes)
    shares, ranks = torch.zeros(classes), torch.full((classes,), float(width))
    overall = float(width)
    if whole:
        spectra = [covariance_spectrum(features[labels == k]) for k in range(classes)]
        shares = torch.tensor([first_axis_share(one) for one in spectra], dtype=torch.float64)
        ranks = torch.tensor([effective_rank(one) for one in spectra], dtype=torch.float64)
        overall = effective_rank(covariance_spectrum(features))
    share, rank = "first_axis_share", "effective_rank"
    for name, value, count in zip(subject.test.classes, shares.tolist(), counts.tolist(), strict=True):
        yield _measured(share, value, count, {"class": name}, "fraction", better="higher")
    mean: dict[str, Scalar] = {"class": "mean"}
    yield mean_of(LowDimension.name, share, shares, "fraction", "higher", mean)
    yield _measured(rank, overall, len(labels), {"class": "all"}, "count")
    yield mean_of(LowDimension.name, rank, ranks, "count", "lower", mean)


def _in_the_plane(subject: Subject, *, whole: bool) -> Measurement:
    shares = torch.zeros(subject.classes, dtype=torch.float64)
    if whole:
        places = subject.test_features.double() @ principal_axes(subject.train_features, 2).T
        classes = (places[subject.test.labels == k] for k in range(subject.classes))
        shares = torch.tensor(
            [first_axis_share(covariance_spectrum(own)) for own in classes], dtype=torch.float64
        )
    return mean_of(LowDimension.name, "plane_axis_share", shares, "fraction", "higher", {"class": "mean"})


def _measured(
    name: str,
    value: float,
    n: int,
    context: Mapping[str, Scalar],
    unit: str,
    *,
    better: Better = "lower",
) -> Measurement:
    return Measurement(LowDimension.name, name, value, unit, n, better=better, context=context)


PICTURED_AXES = 50
PICTURED_IMAGES = 500


def spectrum(audit: str, features: Tensor, data: ImageSet) -> Exhibit:
    """Share of variance on each of the first principal axes, of all features and within a class.

    Features are held-out ones, (N, D), finite.
    """
    count = min(PICTURED_AXES, features.shape[1])
    own = [_shares(features[data.labels == k], count) for k in data.labels.unique()]
    columns = {
        "axis": list(range(1, count + 1)),
        "all features": _shares(features, count).tolist(),
        "within a class (mean)": torch.stack(own).mean(dim=0).tolist(),
    }
    caption = "Share of variance on each principal axis of held-out features, of all and within a class."
    return Exhibit(audit, "spectrum", "curve", columns, caption, {"split": "test"})


def line(audit: str, scores: Tensor, data: ImageSet) -> Exhibit:
    """Held-out features along the direction that sets the first class apart, a row for each class.

    Scores, (N,), are projections.
    """
    rows = evenly_spaced(len(data), PICTURED_IMAGES)
    labels = data.labels.cpu()[rows].tolist()
    first = data.classes[0]
    columns = {
        "x": scores.cpu()[rows].tolist(),
        "y": labels,  # one axis is all there is: a second one would be arbitrary
        "label": [first if k == 0 else "other classes" for k in labels],
    }
    caption = (
        f"Held-out features of unit length along the one direction that sets class {first} apart from the "
        "others in training, a row for each class."
    )
    return Exhibit(audit, "lda", "scatter", columns, caption, {"class": first, "split": "test"})


def plane(audit: str, features: Tensor, data: ImageSet) -> Exhibit:
    """Some training features on the first two principal axes of all of them.

    Features are (N, D), finite.
    """
    rows = evenly_spaced(len(data), PICTURED_IMAGES).to(features.device)
    centre = features.double().mean(dim=0)
    places = ((features[rows].double() - centre) @ principal_axes(features, 2).T).cpu()
    columns = {
        "x": places[:, 0].tolist(),
        "y": places[:, 1].tolist(),
        "label": [data.classes[k] for k in data.labels[rows].tolist()],
    }
    caption = "Training features on the first two principal axes of all of them, each point an image."
    return Exhibit(audit, "plane", "scatter", columns, caption, {"split": "train"})


def _shares(features: Tensor, count: int) -> Tensor:
    found = covariance_spectrum(features)
    shares = (found / found.sum() if float(found.sum()) > 0 else found)[:count]
    return torch.nn.functional.pad(shares.cpu(), (0, count - len(shares)))


@dataclass(frozen=True)
class Threshold:
    """A threshold on scores.

    Args:
        value: The threshold; infinite if all scores are on one side.
        positive_above: Whether scores above `value` are classified positive, else those at or below it.
        error: Error on the scores that it was chosen on, a fraction.
    """

    value: float
    positive_above: bool
    error: float

    def error_on(self, scores: Tensor, positive: Tensor) -> float:
        """The error on other scores (N,), a fraction; `positive` (N,) marks the positive ones.

        >>> Threshold(0.5, True, 0.0).error_on(torch.tensor([0.0, 1.0]), torch.tensor([True, True]))
        0.5
        """
        called = (scores > self.value) == self.positive_above
        return float((called != positive).double().mean())


def best_threshold(scores: Tensor, positive: Tensor) -> Threshold:
    """The threshold with the fewest errors, of all thresholds and both orientations, in O(N log N).

    It lies half-way between two different scores, or at infinity if one class for all samples is best. Of equally
    good thresholds, the lowest with positives above is used.

    Scores, finite, and `positive`, boolean, are (N,).

    Misleads: on the samples that it was chosen on, its error is optimistic. It is at most the share of the rarer
    class.

    >>> best_threshold(torch.tensor([3.0, 1.0, 2.0, 4.0]), torch.tensor([True, False, False, True]))
    Threshold(value=2.5, positive_above=True, error=0.0)
    """
    ordered, order = scores.double().sort()
    count, named = len(ordered), positive[order].long()
    # Cut k has the k lowest scores below it: positives below and negatives above are wrong.
    below = torch.nn.functional.pad(named.cumsum(0), (1, 0))
    wrong = below + (count - named.sum()) - (torch.arange(count + 1, device=below.device) - below)
    parted = torch.nn.functional.pad(ordered[1:] > ordered[:-1], (1, 1), value=True)
    either = torch.where(parted, torch.stack([wrong, count - wrong]), count + 1)
    best = int(either.argmin())
    return Threshold(_cut(ordered, best % (count + 1)), best <= count, float(either.flatten()[best]) / count)


def _cut(ordered: Tensor, below: int) -> float:
    """A number with `below` scores at or under it."""
    if below == 0:
        return float("-inf")
    if below == len(ordered):
        return float("inf")
    lower, upper = float(ordered[below - 1]), float(ordered[below])
    middle = lower + (upper - lower) / 2
    return middle if lower <= middle < upper else lower  # neighbouring floats have no middle
