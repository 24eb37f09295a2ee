"""The page's numbers for people who read on paper: measurements and columns that a report draws, from `linear`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clearance.explore.example import example_distances
from clearance.explore.machines import LOG_LAMBDAS, STRAIGHT, Machines
from clearance.explore.pair_figures import figures_at
from clearance.explore.scene import Scene
from clearance.linear.hyperplane import adversarial_distance, error_distance, wrong
from clearance.linear.loss_scaling import LOSSES, large_scale_limit, scaled_loss, small_scale_limit
from clearance.linear.tilting import tilting_angle
from clearance.records.record import ExhibitRecord, Record
from clearance.vocabulary import Exhibit, Measurement

AUDIT = "tilting"
PENALTIES = {"penalty 1e-6": 0, "penalty 0.01": 40, "penalty 100": 80}
"""The machines whose numbers stand in the report's tables, and their step of the slider."""

LARGE, SMALL = 10**1.5, 10**-1.5  # the ends of the page's slider over ||w||
REACH, BINS = 6.0, 60


def pair_records(scene: Scene, machines: Machines) -> list[Record]:
    """Errors, angle and distances of three machines of a pair, as measurements.

    Args:
        scene: The samples.
        machines: Of one of its pairs.
    """
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
