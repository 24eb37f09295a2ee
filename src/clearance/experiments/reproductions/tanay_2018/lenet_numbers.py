"""What is measured of one trained LeNet: errors, sizes of weights, and images that it takes for another class."""

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from clearance._rng import derived_seed
from clearance.attacks.ascent import TargetedAscent
from clearance.attacks.minimum_norm import MinimumNorm
from clearance.audits import Accuracy, WeightScale
from clearance.audits._change_sheet import change_sheet
from clearance.audits._samples import fixed_images
from clearance.data import ImageSet
from clearance.experiments.reproductions.tanay_2018.networks import WATCHED, trained
from clearance.linear import calibrated_temperature
from clearance.models import Classifier
from clearance.models._running import evaluating
from clearance.records import Record
from clearance.vocabulary import Measurement

HIGH = "high-decay"
LOW = "low-decay"
DECAYS = {HIGH: 0.1, LOW: 1e-4}
CONFIDENCE = 0.95  # of the target, and in the median of the test set: the article's
AUDIT = "targeted"
CLASSES = 10
LANDMARKS = (5, 9, 10, 15, 20)  # epochs at which errors are held against the article's curves
Tree = dict[str, Any]


def measured_network(task: Tree, root: str | None, folder: str) -> Tree:
    """Errors and sizes of a network, how its errors went, and its first filters.

    Args:
        task: As `networks.trained` takes it.
        root: Where the dataset's files are.
        folder: Where networks are kept.
    """
    result, train, test = trained(task, root, folder)
    found = [audit(result.model, train, test, task["seed"]) for audit in (Accuracy(), WeightScale())]
    measured = [m for one in found for m in one.measurements]
    filters = result.model.state_dict()["extractor.conv1.weight"][:, 0]
    return {
        **_records([*measured, _gap(measured, len(test))], task),
        "status": str(result.status),
        "seconds": result.seconds,
        "history": result.history,
        "filters": filters.tolist(),
    }


def _gap(measured: Iterable[Measurement], count: int) -> Measurement:
    """How much more often test images are wrong than training images."""
    errors = {m.context["split"]: m.value for m in measured if (m.audit, m.name) == ("accuracy", "error")}
    return Measurement(
        "accuracy", "error_gap", errors["test"] - errors["train"], "fraction", count, better="lower"
    )


def attacked_network(task: Tree, root: str | None, folder: str) -> Tree:
    """How far images must be changed until the network is 95 % sure of the next class, and until it is wrong.

    The ascent's steps are one grey level long (``grey_levels``), along the gradient of the target's log probability, at
    the temperature at which the median test image is 95 % sure; targets are cyclic. Beside it the nearest wrong image
    that a search finds, of those that are right.

    Args:
        task: As `networks.trained` takes it, with ``images``, how many, ``grey_levels``, the length of a step of
            the ascent, ``ascent``, how many of them at most, and ``search``, the steps of the search.
        root: Where the dataset's files are.
        folder: Where networks are kept.

    Returns:
        ``records``; ``lengths`` of both kinds, image by image, None where the target was not reached, or the image was
        wrong from the start; and ``sheet``. Of a network whose answers are no numbers there is none of these.
    """
    result, _, test = trained(task, root, folder)
    model = result.model
    some = fixed_images(test, task["images"], derived_seed(0, "tanay-2018"))  # the same for all networks
    logits = _logits(model, test)
    if not bool(logits.isfinite().all()):  # diverged: nothing to attack
        return {"records": [], "lengths": None, "sheet": None}
    temperature = calibrated_temperature(logits, CONFIDENCE)
    ascent = TargetedAscent(
        confidence=CONFIDENCE, step=task["grey_levels"] / 255, steps=task["ascent"], temperature=temperature
    )
    hit = ascent(model, some.images, some.labels)
    near = MinimumNorm(norm=2.0, steps=task["search"])(model, some.images, some.labels)
    numbers = [
        Measurement(
            AUDIT, "reached", float(hit.success.double().mean()), "fraction", len(some), better="higher"
        ),
        Measurement(AUDIT, "temperature", temperature, "", len(test), better="neither"),
    ]
    with evaluating(model):
        sheet = change_sheet(AUDIT, model, some, hit.images, hit.distance, temperature)
    lengths = {
        "norm_at_confidence": _where(hit.distance, hit.success),
        "minimum_norm": _where(near.distance, near.success & (near.distance > 0)),
    }
    return {**_records(numbers, task), "lengths": lengths, "sheet": sheet.columns}


def paired_lengths(found: Mapping[str, Tree], tasks: Mapping[str, Tree]) -> list[Record]:
    """Mean lengths of high and low decay over the same images: those for which both networks have one of each kind.

    Args:
        found: What `attacked_network` made of each task.
        tasks: The tasks; a pair are those that differ in their decay alone.

    A network without its counterpart, or whose counterpart diverged, has the mean of its own.
    """
    pairs: dict[tuple[str, int], list[str]] = {}
    for name, tree in found.items():
        if tree["lengths"] is not None:
            pairs.setdefault((tasks[name]["init"], tasks[name]["seed"]), []).append(name)
    records = []
    for names in pairs.values():
        lengths = {(name, kind): row for name in names for kind, row in found[name]["lengths"].items()}
        common = [k for k, values in enumerate(zip(*lengths.values(), strict=True)) if None not in values]
        if not common:  # a length of 0 would be the nearest of all
            continue
        for (name, measure), row in lengths.items():
            mean = statistics.fmean(row[k] for k in common)
            one = Measurement(AUDIT, measure, mean, "pixel units", len(common), better="higher")
            records += [Record.from_json(each) for each in _records([one], tasks[name])["records"]]
    return records


def errors_on_the_way(found: Mapping[str, Tree], tasks: Mapping[str, Tree]) -> list[Record]:
    """Training and test errors after each of the landmarks, from how errors went.

    Args:
        found: What `measured_network` made of each task.
        tasks: The tasks.
    """
    records = []
    for name, tree in found.items():
        last = [Record.from_json(row).measurement for row in tree["records"]]
        shown = {m.context["split"]: m.n for m in last if (m.audit, m.name) == ("accuracy", "error")}
        shown["train"] = min(shown["train"], CLASSES * WATCHED)
        errors = [
            Measurement("accuracy", "error_after", row[f"{split}_error"], "fraction", n, better="lower",
                        context={"split": split, "epoch": row["epoch"]})
            for row in tree["history"] if row["epoch"] in LANDMARKS for split, n in shown.items()
        ]  # fmt: skip
        records += [Record.from_json(row) for row in _records(errors, tasks[name])["records"]]
    return records


def _where(values: Tensor, counted: Tensor) -> list[float | None]:
    return [float(value) if one else None for value, one in zip(values, counted.tolist(), strict=True)]


def _records(measurements: Iterable[Measurement], task: Tree) -> Tree:
    method = next(name for name, decay in DECAYS.items() if decay == task["decay"])
    rows = [Record(task["dataset"], method, task["seed"], m).to_json() for m in measurements]
    for row in rows:
        row["context"] = {**row["context"], "init": task["init"]}
    return {"records": rows}


def _logits(model: Classifier, data: ImageSet) -> Tensor:
    with evaluating(model):
        return torch.cat([model(part) for part in data.images.split(512)])
