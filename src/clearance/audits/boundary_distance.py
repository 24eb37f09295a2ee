"""How far are images from the decision boundary, to first order and as a search finds it?"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearance._checks import check_choice, check_count
from clearance._first_order import dual_norm, first_order_distance
from clearance.attacks.attack import gradients_of
from clearance.attacks.losses import logit_margin
from clearance.attacks.minimum_norm import MinimumNorm
from clearance.attacks.transfer import has_steps
from clearance.audits._audit import Audit, Findings, Subject, named_class
from clearance.audits._change_sheet import picture_pixels
from clearance.audits._samples import fixed_images, fixed_rows
from clearance.audits.minimal_perturbation import minimum_distances
from clearance.audits.robustness import NORM_NAMES, checked_logits
from clearance.data import ImageSet
from clearance.geometry.nearest import squared_distances
from clearance.losses.margins import margin_distances
from clearance.models._running import evaluating, filters_channels_last
from clearance.models.classifier import Classifier, in_precision_of
from clearance.vocabulary import Better, Exhibit, Measurement, Scalar

CHUNK = 64  # activations of so many 28 x 28 images stay in a processor's cache: two thirds of the time of 256 at once


@dataclass(frozen=True)
class NearestRival:
    """Of a batch of images, in one norm.

    Args:
        images: In the model's precision, (B, C, H, W).
        labels: y, (B,).
        rival: k, the class with the smallest first-order distance, (B,).
        gap: m = z_y - z_k, positive where y is ahead, (B,).
        gradient: Of the gap in the image, (B, C, H, W).
        slope: Its dual norm, the local scale: gap = slope x distance, (B,).
        distance: Signed first-order distance, gap / slope, (B,).
    """

    images: Tensor
    labels: Tensor
    rival: Tensor
    gap: Tensor
    gradient: Tensor
    slope: Tensor
    distance: Tensor

    def rows(self, rows: Tensor) -> "NearestRival":
        """Of some of the images."""
        return NearestRival(*(getattr(self, one.name)[rows] for one in fields(self)))

    @property
    def usable(self) -> Tensor:
        """Where there is a direction to go in: the gradient is a number and not zero, (B,)."""
        return self.slope.isfinite() & (self.slope > 0) & self.gap.isfinite()

    def direction(self, norm: float) -> Tensor:
        """The step of p-norm 1 along which the gap falls fastest, by the slope; zero where none is usable.

        For p = 1 it is one pixel, the first of those with the largest gradient.
        """
        flat = torch.where(self.usable.unsqueeze(1), self.gradient.flatten(1), 0.0)
        if norm == 1:
            step = torch.zeros_like(flat)
            largest = flat.abs().argmax(dim=1, keepdim=True)
            step.scatter_(1, largest, flat.gather(1, largest).sign())
        elif math.isinf(norm):
            step = flat.sign()
        else:
            step = flat / torch.where(self.usable, self.slope, 1.0).unsqueeze(1)
        return -step.view_as(self.gradient)


def nearest_rivals(
    model: Classifier, images: Tensor, labels: Tensor, norm: float, rivals: int | None = None
) -> NearestRival:
    """Look at every rival (or those with the highest logits) once, and at the nearest again for its gradient.

    The model is in evaluation mode and takes images in its precision: (B, C, H, W), in [0, 1], with labels (B,).
    `norm` is 1, 2 or inf; None compares with every rival.
    """
    exact = in_precision_of(model, images)
    chosen = []
    for some, own in zip(exact.split(CHUNK), labels.split(CHUNK), strict=True):
        found = margin_distances(model, some, own, ("input",), norm=norm, top_k=rivals)
        # NaN is not a distance: never the nearest while another is one
        distances = found.distances["input"].nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf)
        chosen.append(found.rivals.gather(1, distances.argmin(dim=1, keepdim=True)).squeeze(1))
    return towards(model, exact, labels, torch.cat(chosen), norm)


def towards(model: Classifier, images: Tensor, labels: Tensor, rival: Tensor, norm: float) -> NearestRival:
    """Gap, gradient and distance of each image towards one rival of it."""

    def value(logits: Tensor, rows: slice) -> Tensor:
        return _gap(logits, labels[rows], rival[rows])

    logits, gradient = gradients_of(model, images, value, chunk=CHUNK)
    gap, slope = _gap(logits, labels, rival), dual_norm(gradient, norm)
    return NearestRival(images, labels, rival, gap, gradient, slope, first_order_distance(gap, slope))


def _gap(logits: Tensor, labels: Tensor, rival: Tensor) -> Tensor:
    return (logits.gather(1, labels.unsqueeze(1)) - logits.gather(1, rival.unsqueeze(1))).squeeze(1)


@torch.no_grad()
def _logits_in_parts(model: Classifier, images: Tensor) -> Tensor:
    return torch.cat([model(part) for part in images.split(8 * CHUNK)])


DOUBLINGS = 7  # of the first-order distance: up to 64 times as far
HALVINGS = {torch.float32: 26, torch.float64: 52}


def first_crossing(value: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
    """A t above 0 where `value` turns from positive to negative or 0, infinite where none was found up to 64.

    The smallest of 1, 2, 4 ... 64 at which it has turned, halved down: the first crossing where there is one alone.
    `value` goes from t (B,) to numbers (B,); `like` is any (B,) of the precision that is wanted.

    >>> first_crossing(lambda t: 3 - t, torch.zeros(1, dtype=torch.float64))
    tensor([3.], dtype=torch.float64)
    """
    low, high = torch.zeros_like(like), torch.full_like(like, torch.inf)
    for power in range(DOUBLINGS):
        at = torch.full_like(like, 2.0**power)
        turned = value(at) <= 0
        high = torch.where(turned & high.isinf(), at, high)
        low = torch.where(high.isinf(), at, low)
        if not bool(high.isinf().any()):
            break
    found = high.isfinite()
    for _ in range(HALVINGS.get(like.dtype, HALVINGS[torch.float32])):
        middle = torch.where(found, (low + high) / 2, low)
        turned = value(middle) <= 0
        high = torch.where(found & turned, middle, high)
        low = torch.where(found & ~turned, middle, low)
    return torch.where(found, (low + high) / 2, high)


def bisected_distances(model: Classifier, rivals: NearestRival, norm: float) -> Tensor:
    """How far along the steepest step of p-norm 1 any rival wins, (B,): 0 where one does already, infinite if never.

    The model is in evaluation mode.
    """

    def lead(images: Tensor) -> Tensor:
        """The gap to whichever rival is ahead of all others: negative where it wins."""
        return -logit_margin(_logits_in_parts(model, images), rivals.labels)

    wrong = ~(lead(rivals.images) > 0)
    times = first_crossing(_on_the_way(lead, rivals, norm), rivals.distance.abs())
    length = times * rivals.distance.abs()
    length = torch.where(rivals.usable, length, torch.inf)
    return torch.where(wrong, 0.0, length)


def mirror_images(model: Classifier, rivals: NearestRival, norm: float) -> tuple[Tensor, Tensor]:
    """Images with the same confidence in the nearest rival as now in their class, and how far that is over 2 |d|.

    x_m = x + t d v  with  m(x_m) = -m(x):  t = 2 to first order, found by a search along the steepest step v.

    Source: Tanay and Griffin (2018), the mirror image x - 2 d(x) w / ||w|| of a linear classifier.

    The model is in evaluation mode, p is the norm of the step.

    Returns:
        Images (B, C, H, W), not clipped to the range of pixels, and t / 2, (B,): infinite where none was found; the
        image is then itself.
    """

    def gap(images: Tensor) -> Tensor:
        return _gap(_logits_in_parts(model, images), rivals.labels, rivals.rival)

    moved = _on_the_way(gap, rivals, norm, signed=True)

    def left(times: Tensor) -> Tensor:
        """In units of the image's own gap: 2 at the image, 0 at its mirror image."""
        return moved(2 * times) / torch.where(rivals.gap == 0, 1.0, rivals.gap) + 1

    stretch = torch.where(rivals.usable & (rivals.gap != 0), first_crossing(left, rivals.distance), torch.inf)
    step = torch.where(stretch.isfinite() & rivals.usable, 2 * stretch * rivals.distance, 0.0)
    return rivals.images + _shaped(step, rivals.images) * rivals.direction(norm), stretch


def _on_the_way(
    value: Callable[[Tensor], Tensor], rivals: NearestRival, norm: float, *, signed: bool = False
) -> Callable[[Tensor], Tensor]:
    """`value` as a function of t, t first-order distances along the steepest step."""
    unit = rivals.distance if signed else rivals.distance.abs()
    unit = torch.where(rivals.usable, unit, 0.0)
    step = _shaped(unit, rivals.images) * rivals.direction(norm)

    def at(times: Tensor) -> Tensor:
        return value(rivals.images + _shaped(times, rivals.images) * step)

    return at


def _shaped(numbers: Tensor, images: Tensor) -> Tensor:
    return numbers.view(-1, *[1] * (images.ndim - 1))


POINTS = 256


def tilting_angles(rivals: NearestRival, ways: Tensor) -> Tensor:
    """The angle between the steepest descent of the gap and a direction in the data, (B,), in [0, pi] radians.

    atan2(||n||, w.z) with w = -grad m, the unit vector z of `ways`, and n = w - (w.z) z, which keeps the digits of
    small angles. Not a number where there is no gradient or no way. Ways, (B, C, H, W), lead from each image's class
    to its rival's.
    """
    w, way = -rivals.gradient.flatten(1), ways.flatten(1).to(rivals.gradient.dtype)
    length = way.norm(dim=1, keepdim=True)
    z = way / torch.where(length > 0, length, 1.0)
    along = (w * z).sum(dim=1)
    across = w - along.unsqueeze(1) * z
    angle = torch.atan2(across.norm(dim=1), along)
    return torch.where(rivals.usable & (length.squeeze(1) > 0), angle, torch.nan)


def centroid_ways(train: ImageSet, rivals: NearestRival) -> Tensor:
    """From the mean training image of each image's class to that of its rival, (B, C, H, W); no way without either."""
    # a network may have outputs for more classes than the images have
    outputs = max(train.class_count, int(rivals.rival.max()) + 1)
    means = rivals.images.new_zeros(outputs, *train.shape)
    for images, labels in train.batches(8 * CHUNK):
        means.index_add_(0, labels, images.to(means))
    counts = torch.bincount(train.labels, minlength=outputs)
    means /= counts.clamp(min=1).view(-1, 1, 1, 1)
    there = (counts[rivals.rival] > 0) & (counts[rivals.labels] > 0)
    return (means[rivals.rival] - means[rivals.labels]) * there.view(-1, 1, 1, 1)


def nearest_sample_ways(train: ImageSet, rivals: NearestRival) -> Tensor:
    """From each image to the nearest training image of its rival's class, (B, C, H, W); 0 where it has none."""
    ways = torch.zeros_like(rivals.images)
    for rival in rivals.rival.unique().tolist():
        rows = (rivals.rival == rival).nonzero().flatten()
        best = torch.full((len(rows),), torch.inf, device=rows.device, dtype=rivals.images.dtype)
        own = (train.labels == rival).nonzero().flatten()
        for part in own.split(8 * CHUNK) if len(own) else ():
            others = train.batch(part)[0].to(rivals.images)
            for places in torch.arange(len(rows), device=rows.device).split(POINTS):
                some = rows[places]
                points = rivals.images[some].flatten(1)
                way = (
                    others[squared_distances(points, others.flatten(1)).argmin(dim=-1)] - rivals.images[some]
                )
                apart = way.flatten(1).square().sum(dim=1)
                nearer = apart < best[places]
                best[places[nearer]], ways[some[nearer]] = apart[nearer], way[nearer]
    return ways


AUDIT = "boundary_distance"
PIXELS, RADIANS = "pixel units", "radians"
APART = (
    2.0  # factor between first order and the way along the gradient from which on neither is to be trusted
)
SHOWN = 6  # mirror images of an exhibit


def dataset_distances(rivals: NearestRival, norm: str) -> Iterator[Measurement]:
    """Adversarial distance, error distance and local scale of all images.

    d_adv = mean over classes of mean d(x);  d_err likewise of max(-d(x), 0).

    Source: Tanay and Griffin (2018), there for two classes. Images without a gradient are left out; where
    no image has one, both are the worst there is; a gap that is NaN is infinitely wrong.
    """
    distance = torch.where(rivals.gap.isnan(), -torch.inf, rivals.distance)
    kept = rivals.gap.isnan() | rivals.usable
    context: dict[str, Scalar] = {"norm": norm}
    both: tuple[tuple[str, Tensor, Better], ...] = (
        ("adversarial_distance", distance, "higher"),
        ("error_distance", (-distance).clamp(min=0), "lower"),
    )
    for name, values, better in both:
        worst = 0.0 if better == "higher" else math.inf
        mean = class_balanced_mean(values[kept], rivals.labels[kept]) if kept.any() else worst
        yield _number(name, mean, PIXELS, int(kept.sum()), better, context)
    slope = torch.where(rivals.slope.isnan(), torch.inf, rivals.slope)
    yield _number("local_scale", float(slope.median()), "", len(slope), "neither", context)


def class_balanced_mean(values: Tensor, labels: Tensor) -> float:
    """The mean over classes of the mean within each, of at least one value.

    >>> class_balanced_mean(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]))
    3.5
    """
    classes = labels.unique().tolist()
    means = [float(values[labels == k].double().mean()) for k in classes]
    return math.fsum(means) / len(means)


def way_numbers(model: Classifier, rivals: NearestRival, norm: str) -> tuple[list[Measurement], Tensor]:
    """Numbers along the gradient, to compare with the first-order distance, and the mirror images."""
    context: dict[str, Scalar] = {"norm": norm}
    count = len(rivals.labels)
    length = bisected_distances(model, rivals, float(norm))
    mirrors, stretch = mirror_images(model, rivals, float(norm))
    off = unreliable(rivals, length)
    met = stretch[stretch.isfinite()]
    typical = float(met.median()) if len(met) else math.inf
    return [
        _number("bisected_distance", float(length.median()), PIXELS, count, "higher", context),
        _number("unreliable_share", float(off.double().mean()), "fraction", count, "lower", context),
        _number("mirror_share", len(met) / count, "fraction", count, "neither", context),
        _number("mirror_stretch", typical, "", count, "neither", context),
    ], mirrors


def unreliable(rivals: NearestRival, length: Tensor) -> Tensor:
    """Images without a gradient, or whose first-order distance is more than twice, or less than half, what was found.

    Of a misclassified image nothing was searched for: only a missing gradient counts.
    """
    ratio = rivals.distance / torch.where(length > 0, length, 1.0)
    apart = (length > 0) & ~((ratio >= 1 / APART) & (ratio <= APART))
    return apart | ~rivals.usable


def angle_numbers(train: ImageSet, rivals: NearestRival) -> Iterator[Measurement]:
    """The median tilting angle against both directions; pi / 2 of no image, pi of a network whose output is NaN."""
    for direction, ways in (
        ("centroid", centroid_ways(train, rivals)),
        ("nearest sample", nearest_sample_ways(train, rivals)),
    ):
        angles = tilting_angles(rivals, ways)
        angles = angles[~angles.isnan()]
        nothing = math.pi if bool(rivals.gap.isnan().any()) else math.pi / 2
        value = float(angles.median()) if len(angles) else nothing
        yield _number("tilting_angle", value, RADIANS, len(angles), "lower", {"direction": direction})


def mirror_sheet(rivals: NearestRival, mirrors: Tensor, classes: tuple[str, ...], norm: str) -> Exhibit:
    """The first images of the set, each followed by its mirror image, in one common grey scale."""
    pairs = torch.stack([rivals.images[:SHOWN], mirrors[:SHOWN]], dim=1).flatten(0, 1).double().cpu()
    pairs = pairs.nan_to_num(0.0, 0.0, 0.0)
    low, high = float(pairs.min()), float(pairs.max())
    shown = (pairs - low) / (high - low) if high > low else pairs - low
    found = (mirrors[:SHOWN] != rivals.images[:SHOWN]).flatten(1).any(dim=1).tolist()
    named = zip(rivals.labels[:SHOWN].tolist(), rivals.rival[:SHOWN].tolist(), found, strict=True)
    label = [
        text
        for own, other, there in named
        for text in (
            classes[own],
            f"{classes[own]} as {named_class(classes, other)}" if there else "none found",
        )
    ]
    caption = (
        f"Images and, right of each, the mirror image: as confident in the rival, norm {norm}; not clipped."
    )
    return Exhibit(
        AUDIT,
        "mirror_images",
        "images",
        {"image": picture_pixels(shown), "label": label},
        caption,
        {"norm": norm},
    )


def _number(
    name: str, value: float, unit: str, n: int, better: Better, context: dict[str, Scalar]
) -> Measurement:
    return Measurement(AUDIT, name, value, unit, n, better=better, context=context)


def layer_spreads(
    model: Classifier, images: Tensor, layers: Sequence[str], norm: float, chunk: int
) -> dict[str, float]:
    """The typical p-norm of a deviation from the mean image, by layer.

    sqrt(mean over images and elements of (h - mean h)^2) * N^(1/p) for N elements; 0 where all images agree.

    Images are (B, C, H, W), layers names of submodules, ``"features"`` or ``"logits"``; the model, in evaluation mode,
    sees `chunk` images at once.

    >>> model = Classifier(torch.nn.Flatten(), torch.nn.Linear(4, 2)).eval()
    >>> images = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 1, 2, 2)
    >>> layer_spreads(model, images, ("features",), 2, chunk=1)           # 0.5 in each of four pixels
    {'features': 1.0}
    """
    rows = {layer: _deviation(model, images, layer, chunk) for layer in layers}
    return {
        layer: deviation * (1.0 if math.isinf(norm) else elements ** (1 / norm))
        for layer, (deviation, elements) in rows.items()
    }


def _deviation(model: Classifier, images: Tensor, layer: str, chunk: int) -> tuple[float, int]:
    """Root mean square deviation of an element from its mean over images, and how many elements there are."""
    origin = _layer_values(model, images[:1], layer)[
        0
    ]  # sums of squares lose nothing around a point of the cloud
    total, squares = torch.zeros_like(origin), torch.zeros_like(origin)
    for part in images.split(chunk):
        off = _layer_values(model, part, layer) - origin
        total += off.sum(dim=0)
        squares += off.square().sum(dim=0)
    variances = squares / len(images) - (total / len(images)).square()
    # unit by unit, so that a large one hides no other: rounding of equal images is not a spread; NaN stays NaN
    variances[variances <= 1e-12 * origin.square()] = 0.0
    variance, tiny = float(variances.mean()), 1e-12 * float(origin.square().median())
    return (0.0 if variance <= tiny else math.sqrt(variance)), origin.numel()


@torch.no_grad()
def _layer_values(model: Classifier, images: Tensor, layer: str) -> Tensor:
    outputs = model.outputs(images, () if layer in ("features", "logits") else (layer,))
    named = {"features": outputs.features, "logits": outputs.logits, **outputs.activations}
    return named[layer].flatten(1).double()


ALL = "all"


@dataclass(frozen=True)
class BoundaryDistance(Audit):
    r"""Distances of held-out images to the nearest boundary: linearised at any layer, and searched for at the input.

    first_order_distance = min_i (z_y - z_i) / ||grad_h (z_y - z_i)||_q, 1/p + 1/q = 1

    Positive on the right side, negative where the image is misclassified. At the input it is in pixel units.
    At every other layer it is in units of that layer's typical deviation from its mean over these images (in
    the same norm), so that features times a constant, undone by the next layer, give the same number.

    ``minimum_distance``, at the input: the nearest wrong image that
    :class:`~clearance.attacks.MinimumNorm` finds, past rounding as well where the network rounds; 0 where the image is
    misclassified, infinite where none was found.

    At the input, under the names of the linear case, and equal to :mod:`clearance.linear` on a linear network:
    ``adversarial_distance``, the mean signed first-order distance d, each class counting alike; ``error_distance``,
    that of max(-d, 0); ``local_scale``, the median slope ||grad (z_y - z_k)||_q towards the nearest rival k.
    ``tilting_angle``, between the way to a mistake, -grad, and the way to the rival class: between the centroids of
    training images, or to the nearest of them (``direction``).

    Along the steepest step: ``bisected_distance``, where a rival wins; ``mirror_share`` and ``mirror_stretch``, whether
    and how much further than 2 |d| the mirror image lies, with the same confidence in the rival as the image has in
    its class; ``unreliable_share``, images without a gradient or where first order and bisection differ by a factor
    above 2.

    Source: Elsayed et al. (2018), section 3, for the first-order distance; Moosavi-Dezfooli et al. (2016) for
    robustness as the median of the smallest perturbation; Tanay and Griffin (2018) for the linear case's names.

    Measurements: the median over images, for each ``norm``, ``class`` (and ``all``), and for first-order distances
    each ``layer``. Medians are of values that occur, the lower of two. A layer on which all images agree has
    distance 0. Exhibits ``distances`` for each norm, found against first order, image by image, and ``mirror_images``.

    Args:
        norms: ``"inf"``, ``"2"``, ``"1"``.
        layers: ``"input"``, names of submodules as in ``named_modules()``, ``"features"``, ``"logits"``.
        images: For first-order distances: at most, but one of every class at least; class-balanced, by the seed.
        searched: The same of these, for minimum distances, and for what lies along the gradient.
        steps: Of the search.
        rivals: Rival classes that are evaluated to first order, those with the highest logits; None is all. Two cost a
            third, and miss the nearest: a small network on MNIST had it among them for 85 % of images, among three
            for 93 %.

    Raises:
        ValueError: If a setting is out of range or unknown.

    Misleads: the first-order distance is not a bound on the true one, and infinite where a gradient is zero; the
    minimum distance is an upper bound, far too long for a network that hides its gradients otherwise than by rounding
    (see the audit `robustness`).

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> train, test = gaussian_images(per_class=9, seed=0), gaussian_images(per_class=9, seed=1)
    >>> audit = BoundaryDistance(norms=("2",), layers=("input",), steps=5)
    >>> found = audit(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [(m.name, m.context.get("class")) for m in found.measurements][:4:3]
    [('first_order_distance', 'all'), ('first_order_distance', '2')]
    """

    name: ClassVar[str] = "boundary_distance"
    needs: ClassVar[tuple[str, ...]] = ("features", "gradients")
    norms: tuple[str, ...] = ("inf", "2")
    layers: tuple[str, ...] = ("input", "features", "logits")
    images: int = 1000
    searched: int = 200
    steps: int = 100
    rivals: int | None = None

    def __post_init__(self) -> None:
        named = [NORM_NAMES.get(norm, norm) for norm in self.norms]
        for norm in named:
            check_choice("norms", norm, NORM_NAMES.values())
        object.__setattr__(self, "norms", tuple(dict.fromkeys(named)))
        for name in ("images", "searched", "steps"):
            check_count(name, getattr(self, name))
        if self.rivals is not None:
            check_count("rivals", self.rivals)

    def examine(self, subject: Subject) -> Findings:
        """Every norm, first to first order at every layer, then by search."""
        data = fixed_images(subject.test, self.images, subject.seed).in_memory()
        rows = fixed_rows(data, self.searched, subject.seed)
        some = data.subset(rows)
        found: list[Measurement] = []
        exhibits = []
        with evaluating(subject.model), filters_channels_last(subject.model):
            logits = checked_logits(subject.model, data.images)
            past_steps = has_steps(subject.model, data.images)
            rivals = None if self.rivals is None else min(self.rivals, logits.shape[1] - 1)
            for norm in self.norms:
                search = MinimumNorm(float(norm), steps=self.steps)
                every = _all_rivals(subject, data, float(norm), rivals)
                distance = minimum_distances(subject, some.images, some.labels, search, past_steps=past_steps)
                found.extend(self._first_order(subject, data, norm, rivals, every))
                found.extend(_medians("minimum_distance", distance, some, {"norm": norm}, PIXELS))
                found.extend(dataset_distances(every, norm))
                near = every.rows(rows)
                numbers, mirrors = way_numbers(subject.model, near, norm)
                found.extend(numbers)
                exhibits.append(_picture(norm, distance, _signed(near), some))
                exhibits.append(mirror_sheet(near, mirrors, data.classes, norm))
            near = nearest_rivals(subject.model, some.images, some.labels, 2.0, rivals)
            found.extend(angle_numbers(subject.train, near))
        return Findings(tuple(found), tuple(exhibits))

    def _first_order(
        self, subject: Subject, data: ImageSet, norm: str, rivals: int | None, near: NearestRival
    ) -> Iterator[Measurement]:
        others = tuple(layer for layer in self.layers if layer != "input")
        spreads = layer_spreads(subject.model, data.images, others, float(norm), CHUNK)
        elsewhere = _distances(subject, data, others, norm, rivals) if others else {}
        for layer in self.layers:
            context: dict[str, Scalar] = {"norm": norm, "layer": layer}
            if layer == "input":
                yield from _medians("first_order_distance", _signed(near), data, context, PIXELS)
                continue
            values = elsewhere[layer].double() / spreads[layer]
            if spreads[layer] == 0:  # all images in one point: there is no length to measure by
                values = torch.zeros_like(values)
            values = torch.where(values.isnan(), -torch.inf, values)
            yield from _medians("first_order_distance", values, data, context, "ratio")


def _signed(near: NearestRival) -> Tensor:
    """First-order distances; -inf where it is not a number."""
    return torch.where(near.distance.isnan(), -torch.inf, near.distance)


def _all_rivals(subject: Subject, data: ImageSet, norm: float, rivals: int | None) -> NearestRival:
    """The nearest rivals of all images, wherever their parts are looked at."""

    def call(rows: Tensor) -> tuple[Any, ...]:
        rows = rows.to(data.labels.device)
        return subject.model, data.images[rows], data.labels[rows], norm, rivals

    parts = subject.by_parts(nearest_rivals, len(data), call)
    return NearestRival(
        *(torch.cat([getattr(part, one.name) for part in parts]) for one in fields(NearestRival))
    )


def _distances(
    subject: Subject, data: ImageSet, layers: tuple[str, ...], norm: str, rivals: int | None
) -> dict[str, Tensor]:
    """Signed distance of each image to its nearest boundary, by layer."""

    def call(rows: Tensor) -> tuple[Any, ...]:
        rows = rows.to(data.labels.device)
        return subject.model, data.images[rows], data.labels[rows], layers, float(norm), rivals

    parts = [one for part in subject.by_parts(_distances_of, len(data), call) for one in part]
    return {layer: torch.cat([part[layer] for part in parts]) for layer in layers}


def _distances_of(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    layers: tuple[str, ...],
    norm: float,
    rivals: int | None,
) -> list[dict[str, Tensor]]:
    return [
        margin_distances(model, some, own, layers, norm=norm, top_k=rivals).nearest()
        for some, own in zip(images.split(CHUNK), labels.split(CHUNK), strict=True)
    ]


def _medians(
    name: str, values: Tensor, data: ImageSet, context: dict[str, Scalar], unit: str
) -> Iterator[Measurement]:
    """Over all images, then class by class; a class without images among them has no median."""
    everything = torch.ones_like(data.labels, dtype=torch.bool)
    chosen = {ALL: everything} | {title: data.labels == k for k, title in enumerate(data.classes)}
    for title, rows in chosen.items():
        part = values[rows]
        if len(part):
            yield Measurement(
                BoundaryDistance.name,
                name,
                float(part.median()),
                unit,
                len(part),
                better="higher",
                context={**context, "class": title},
            )


def _picture(norm: str, found: Tensor, linear: Tensor, data: ImageSet) -> Exhibit:
    shown = (found.isfinite() & linear.isfinite()).cpu()
    columns = {
        "x": linear.cpu()[shown].tolist(),
        "y": found.cpu()[shown].tolist(),
        "label": [data.classes[k] for k in data.labels.cpu()[shown].tolist()],
    }
    caption = (
        f"Distance to the nearest wrong image found (up) against the first-order distance (right), norm {norm}, "
        f"in pixel units; {int(shown.sum())} of {len(shown)} images, those where both are finite."
    )
    return Exhibit(BoundaryDistance.name, "distances", "scatter", columns, caption, {"norm": norm})
