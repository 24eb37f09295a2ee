"""The page's numbers for people who read on paper: measurements and columns that a report draws, from `linear`."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri

from clearance.explore.machines import LOG_LAMBDAS, STRAIGHT, Machines
from clearance.explore.scene import Scene
from clearance.linear.hyperplane import (
    adversarial_distance,
    error_distance,
    mirrored,
    signed_distances,
    wrong,
)
from clearance.linear.loss_scaling import LOSSES, large_scale_limit, scaled_loss, small_scale_limit
from clearance.linear.tilting import TiltingPlane, centroids, tilting_angle, tilting_plane
from clearance.records.record import ExhibitRecord, Record
from clearance.vocabulary import Exhibit, Measurement, Scalar

AUDIT = "tilting"


PENALTIES = {"penalty 1e-6": 0, "penalty 0.01": 40, "penalty 100": 80}
"""The SVMs whose numbers are in the report's tables, and their step of the slider."""
LARGE, SMALL = 10**1.5, 10**-1.5  # the ends of the page's slider over ||w||
REACH, BINS = 6.0, 60


def pair_records(scene: Scene, machines: Machines) -> list[Record]:
    """Errors, angle and distances of three machines of a pair, as measurements."""
    rows = path_columns(scene, machines)
    return [
        Record(pair_name(scene, machines), method, 0, found)
        for method, step in PENALTIES.items()
        for found in _at(scene, machines, {name: column[step] for name, column in rows.items()})
    ]


def _at(scene: Scene, machines: Machines, row: Mapping[str, float]) -> list[Measurement]:
    """The measurements of one machine."""
    counts = {
        split: len(scene.pair(machines.first, machines.second, split)[1]) for split in ("train", "test")
    }
    n, depth, distance = counts["train"], row["error_distance"], row["adversarial_distance"]
    return [
        *(_error(row[f"{split}_error"], split, count) for split, count in counts.items() if count),
        Measurement(AUDIT, "angle", row["angle"], "radians", n=n, better="neither"),
        Measurement(AUDIT, "adversarial_distance", distance, "length", n=n, better="higher"),
        Measurement(AUDIT, "error_distance", depth, "length", n=n, better="lower"),
    ]


def _error(value: float, split: str, count: int) -> Measurement:
    context = {"split": split}
    return Measurement("accuracy", "error", value, "fraction", n=count, better="lower", context=context)


def pair_name(scene: Scene, machines: Machines) -> str:
    """What a report calls a pair: "digits, 3 against 8"."""
    names = [scene.classes[index].name for index in (machines.first, machines.second)]
    return f"{scene.name}, {names[0]} against {names[1]}"


def pair_exhibits(scene: Scene, machines: Machines) -> list[ExhibitRecord]:
    """The pair's path over lambda, the figures on losses that belong to no dataset, and those of three machines."""
    path = Exhibit(
        AUDIT, "path", "curve", path_columns(scene, machines), "Angle, distances and errors at every penalty."
    )
    shown = [path, *loss_exhibits()]
    name = pair_name(scene, machines)
    return [
        *(ExhibitRecord(name, next(iter(PENALTIES)), 0, one) for one in shown),
        *(
            ExhibitRecord(name, method, 0, one)
            for method, step in PENALTIES.items()
            for one in figures_at(scene, machines, step)
        ),
    ]


def path_columns(scene: Scene, machines: Machines) -> dict[str, list[float]]:
    """What the page prints at every step: log10 lambda, angle, both distances and errors, 81 of each.

    Both distances count the two classes alike; an error of a split without samples is not a number.
    """
    train, test = (scene.pair(machines.first, machines.second, split) for split in ("train", "test"))
    rows = []
    for step, exponent in enumerate(LOG_LAMBDAS):
        plane = machines.plane(step)
        angle = tilting_angle(plane, *train)
        rows.append(
            {
                "log10_lambda": float(exponent),
                "angle": angle if angle > STRAIGHT else 0.0,
                "adversarial_distance": adversarial_distance(plane, *train, class_balanced=True),
                "error_distance": error_distance(plane, *train, class_balanced=True),
                "train_error": float(wrong(plane, *train).double().mean()),
                "test_error": float(wrong(plane, *test).double().mean()) if len(test[1]) else math.nan,
            }
        )
    return {name: [row[name] for row in rows] for name in rows[0]}


LEANING = 1e-3  # radians from which on what is left of w across z points somewhere for certain
POINTS = 250  # samples of a class that are drawn, the first ones
CHOSEN_AMONG = 1500  # samples of a class, the first ones: those that the page draws and lets one choose
PAIR_BINS = 40
DIGITS = 4


def figures_at(scene: Scene, machines: Machines, step: int) -> list[Exhibit]:
    """The tilting plane, the histogram of distances and, of images, the pictures at a step of the slider.

    The slider has 81 steps, from weak to strong regularisation.
    """
    seen = _seen(scene, machines, step)
    found = [_plane(scene, machines, seen), _distances(scene, machines, step)]
    return [*found, _pictures(scene, machines, step)] if scene.shape is not None else found


def _seen(scene: Scene, machines: Machines, step: int) -> TiltingPlane:
    """The tilting plane of an SVM; if it is not tilted, n is taken from the next one that is, as on the page."""
    pair = scene.pair(machines.first, machines.second)
    own = tilting_plane(machines.plane(step), *pair)
    if own.angle >= STRAIGHT:
        return own
    weaker = (tilting_plane(machines.plane(k), *pair) for k in range(step - 1, -1, -1))
    leaning = next((one for one in weaker if one.angle >= LEANING), own)
    return dataclasses.replace(own, n=leaning.n, angle=0.0)


def _plane(scene: Scene, machines: Machines, seen: TiltingPlane) -> Exhibit:
    """Places of the first samples, with the boundary's angle and offset as settings."""
    parts, names = [], []
    for index in (machines.first, machines.second):
        own = scene.classes[index]
        some = scene.values(own.train[:POINTS])
        parts.append(seen.coordinates(some))
        names += [own.name] * len(some)
    places = torch.cat(parts)
    columns: dict[str, list[Any]] = {
        "x": _rounded(places[:, 0]),
        "y": _rounded(places[:, 1]),
        "label": list(names),
    }
    context = {"angle": seen.angle, "offset": seen.offset, "separation": seen.separation}
    return Exhibit(AUDIT, "plane", "scatter", columns, "Training samples in the tilting plane.", context)


def _distances(scene: Scene, machines: Machines, step: int) -> Exhibit:
    """How many training samples of each class lie how far, positive on the side of the second class."""
    x, y = scene.pair(machines.first, machines.second)
    distances = signed_distances(machines.plane(step), x).numpy()
    reach = float(np.abs(distances).max()) or 1.0
    edges = np.linspace(-reach, reach, PAIR_BINS + 1)
    columns = {
        "centre": ((edges[:-1] + edges[1:]) / 2).tolist(),
        "first": np.histogram(distances[y < 0], edges)[0].tolist(),
        "second": np.histogram(distances[y > 0], edges)[0].tolist(),
    }
    names = [scene.classes[index].name for index in (machines.first, machines.second)]
    context: dict[str, Scalar] = {
        "first": names[0],
        "second": names[1],
        "scale": float(machines.scales[step]),
    }
    return Exhibit(AUDIT, "margins", "histogram", columns, "Signed distances of training samples.", context)


def _pictures(scene: Scene, machines: Machines, step: int) -> Exhibit:
    """Both class means, the weights over their largest, and a typical sample of each class with its mirror image.

    Mirror images are not clipped.
    """
    plane = machines.plane(step)
    means = centroids(*scene.pair(machines.first, machines.second))
    images, labels = [mean.numpy() for mean in means], []
    names = [scene.classes[index].name for index in (machines.first, machines.second)]
    labels = [*(f"mean of {name}" for name in names), "weights"]
    # over the largest, or few digits would round small ones away
    images.append((plane.weight / plane.weight.abs().max()).numpy())
    for index, mean, name in zip((machines.first, machines.second), means, names, strict=True):
        sample = _typical(scene.values(scene.classes[index].train), mean.numpy())
        images += [sample, mirrored(plane, sample[None])[0].numpy()]
        labels += [name, f"mirror image of {name}"]
    pixels = np.round(np.stack(images), DIGITS).reshape(len(images), *(scene.shape or ()))
    columns = {"image": pixels.tolist(), "label": labels}
    return Exhibit(AUDIT, "pictures", "images", columns, "Means, weights, and mirror images.")


def _typical(rows: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sample nearest to the mean, among those that the page chooses it from."""
    nearest: NDArray[np.float64] = rows[((rows[:CHOSEN_AMONG] - mean) ** 2).sum(axis=1).argmin()]
    return nearest


def _rounded(values: torch.Tensor) -> list[float]:
    found: list[float] = torch.round(values, decimals=DIGITS).tolist()
    return found


COUNT, CENTRE, SPREAD = 400, 1.3, 1.6


def example_distances() -> NDArray[np.float64]:
    """Signed distances  y d(x)  of a classifier that is wrong on a fifth: quantiles of a normal, shape (400,).

    >>> distances = example_distances()
    >>> float((distances <= 0).mean()), round(float(distances.mean()), 4)
    (0.2075, 1.3)
    """
    return np.round(CENTRE + SPREAD * ndtri((np.arange(COUNT) + 0.5) / COUNT), 4)


def loss_exhibits() -> list[Exhibit]:
    """The three losses, both limits over example distances, and the negative log-likelihood.

    Source: Tanay and Griffin (2018), the figures on loss scaling. The likelihood of the true class is
    1 / (1 + exp(-z)) at a score z, so that its negative logarithm is the softplus loss; its histogram is that of the
    example distances as scores.

    >>> [one.name for one in loss_exhibits()]
    ['losses', 'distances', 'limits', 'log_likelihood', 'likelihoods']
    """
    z = np.linspace(-3, 3, 121)
    losses = {"z": z.tolist(), **{name: scaled_loss(name, z, 1.0).tolist() for name in LOSSES}}
    distances = example_distances()
    # what lies farther is in the last bar, as on the page
    counts, edges = np.histogram(np.clip(distances, -REACH, REACH), BINS, (-REACH, REACH))
    likelihood = np.linspace(0.005, 1, 200)
    probabilities = 1 / (1 + np.exp(-distances))
    of_bins, ends = np.histogram(probabilities, 20, (0, 1))
    return [
        Exhibit(AUDIT, "losses", "curve", losses, "Three losses of y s(x)."),
        _histogram("distances", counts, edges, "Example distances y d(x) of 400 images."),
        Exhibit(
            AUDIT,
            "limits",
            "curve",
            _limits(),
            "A loss scaled by large and by small weights, and its limits.",
        ),
        Exhibit(
            AUDIT,
            "log_likelihood",
            "curve",
            {"likelihood": likelihood.tolist(), "loss": (-np.log(likelihood)).tolist()},
            "Negative log-likelihood of the true class.",
        ),
        _histogram("likelihoods", of_bins, ends, "Likelihoods of the true class of the example images."),
    ]


def _histogram(name: str, counts: Sequence[int] | np.ndarray, edges: np.ndarray, caption: str) -> Exhibit:
    centres = ((edges[:-1] + edges[1:]) / 2).tolist()
    columns = {"centre": centres, "count": [int(count) for count in counts]}
    return Exhibit(AUDIT, name, "histogram", columns, caption)


def _limits() -> dict[str, list[Any]]:
    z = np.linspace(-REACH, REACH, 121)
    rows: dict[str, list[Any]] = {"loss": [], "scale": [], "z": [], "scaled": [], "limit": []}
    for name in ("hinge", "softplus"):
        for scale, limit in ((LARGE, large_scale_limit), (SMALL, small_scale_limit)):
            rows["loss"] += [name] * len(z)
            rows["scale"] += [scale] * len(z)
            rows["z"] += z.tolist()
            rows["scaled"] += scaled_loss(name, z, scale).tolist()
            rows["limit"] += limit(name, z, scale).tolist()
    return rows
