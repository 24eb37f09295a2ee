"""What distances to the boundary come to over a data set, under the names of the linear case."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from clearance.audits._along_gradient import bisected_distances, mirror_images
from clearance.audits._change_sheet import picture_pixels
from clearance.audits._local_tilting import centroid_ways, nearest_sample_ways, tilting_angles
from clearance.audits._nearest_rival import NearestRival
from clearance.data import ImageSet
from clearance.models.classifier import Classifier
from clearance.vocabulary import Better, Exhibit, Measurement, Scalar

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
    no image has one, both are the worst there is; a gap that is no number is infinitely wrong.
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
    """Numbers along the gradient beside the first-order distance, and the mirror images."""
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
    """The median tilting angle against both directions; pi / 2 of no image, pi of a network that is no number."""
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
        for text in (classes[own], f"{classes[own]} as {_called(other, classes)}" if there else "none found")
    ]
    caption = (
        f"Images and, right of each, the mirror image that is as sure of the rival, norm {norm}; not clipped."
    )
    return Exhibit(
        AUDIT,
        "mirror_images",
        "images",
        {"image": picture_pixels(shown), "label": label},
        caption,
        {"norm": norm},
    )


def _called(output: int, classes: tuple[str, ...]) -> str:
    """The name of a class, or the number of an output of the network that is none of the images' classes."""
    return classes[output] if output < len(classes) else f"output {output}"


def _number(
    name: str, value: float, unit: str, n: int, better: Better, context: dict[str, Scalar]
) -> Measurement:
    return Measurement(AUDIT, name, value, unit, n, better=better, context=context)
