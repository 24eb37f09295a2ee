"""FGSM on every network, as the paper's table 6 has it, with the verdict that the scale of logits cannot move.

The paper does not say whether pixels were clipped, nor which loss the gradient is of. Here pixels are clipped, each
network is attacked with its own gradients, and the loss is cross-entropy of the logits that the network answers with;
beside it stands the gradient of the whole loss that it was trained with, margin and likelihood included.
"""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

from clearance.audits._samples import fixed_images
from clearance.experiments.datasets import load_dataset
from clearance.experiments.grid import plans_of
from clearance.experiments.recipe import Recipe
from clearance.experiments.reproduce import data_if_there
from clearance.experiments.reproductions.added_records import records_of, whose, with_added_records
from clearance.experiments.reproductions.study_ledger import Quantity
from clearance.experiments.reproductions.wan_2018.fgsm_attacks import BOXES, TRAINING, WHITE, attacked_numbers
from clearance.experiments.reproductions.wan_2018.protocol import PROTOCOLS, base_recipe
from clearance.experiments.reproductions.wan_2018.study import (
    Column,
    images_told,
    judged_study,
    method_table,
    seeds_told,
)
from clearance.experiments.study_request import StudyRequest
from clearance.records import Report
from clearance.vocabulary import Scalar

VERDICT = "robustness"
Tree = dict[str, Any]


def run(request: StudyRequest) -> Path:
    """Train every method, attack what was trained, and write the ledger; trained networks are read back.

    Args:
        request: What was asked for. Seeds are runs of each method, those of the recipe, 5, by default. Without the
            dataset's files the ledger says "not run: no data".
    """
    recipe = attacked_recipe(request.dataset, request.root, request.seeds)
    study = judged_study("fgsm", request.dataset)
    if (data := data_if_there(recipe)) is None:
        return study.without_data(recipe, request)
    plans = plans_of(recipe)
    found = request.grid(plans, data)
    varied = PROTOCOLS[request.dataset]
    limits = {"dataset": request.dataset, "images": varied.attacked_images, "epsilons": varied.epsilons}
    work = partial(attacked_run, runs=str(request.runs), root=request.root)
    measured = with_added_records(
        found,
        plans,
        work,
        lambda plan: {**whose(plan, data.train.name, request.runs), **limits},
        "attacked",
        request,
    )
    report = request.paged(recipe, measured, study.command(request.seeds))
    return study.write_ledger(report, sections(report, request.dataset), request.out)


def attacked_recipe(dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The paper's recipe, audited for the scale-proof verdict at the radii of the attack.

    >>> attacked_recipe("digits").audit_settings["robustness"]["inf"]
    [0.1, 0.2, 0.3]
    """
    varied = PROTOCOLS[dataset]
    start = base_recipe(dataset, root, seeds)
    verdict = {"inf": list(varied.epsilons), "two": [], "images": varied.verdict_images}
    return dataclasses.replace(
        start, audits=(*start.audits, VERDICT), audit_settings={**start.audit_settings, VERDICT: verdict}
    )


def sections(report: Report, dataset: str) -> list[str]:
    """Errors under attack beside the paper's, what the training loss finds, confidence, and the verdict."""
    varied = PROTOCOLS[dataset]
    radii = (0.0, *varied.epsilons)
    return [
        "## Errors under FGSM",
        f"On {images_told(report, 'attacked', 'accuracy', {'box': WHITE})} of the test set. {seeds_told(report)}",
        _table(report, dataset, "accuracy", WHITE, radii, flipped=True),
        "## The same with the gradient of the whole training loss",
        _table(report, dataset, "accuracy", TRAINING, radii, flipped=True),
        "## Posterior of the predicted class on the attacked images",
        _table(report, dataset, "confidence", WHITE, radii, flipped=False),
        "## Errors under the worst attack found: the verdict that the scale of logits cannot move",
        f"On {images_told(report, VERDICT, 'robust_accuracy', {})} of those. What FGSM leaves is no evidence of "
        "robustness; these errors are the least that is to be expected from an attacker.",
        method_table(report, [_worst(radius) for radius in varied.epsilons], dataset),
    ]


def _worst(radius: float) -> Column:
    context: dict[str, Scalar] = {"norm": "inf", "epsilon": radius}
    quantity = Quantity("", VERDICT, "robust_accuracy", context=context, better="higher")
    return Column(f"epsilon {radius:g}", quantity, flipped=True)


def _table(
    report: Report, dataset: str, name: str, box: str, radii: tuple[float, ...], *, flipped: bool
) -> str:
    columns = [Column(f"epsilon {radius:g}", fgsm_quantity(name, box, radius), flipped) for radius in radii]
    return method_table(report, columns, dataset)


def fgsm_quantity(name: str, box: str, epsilon: float) -> Quantity:
    """The share that is right, or the confidence, under FGSM at a radius."""
    context: dict[str, Scalar] = {"attack": "FGSM", "box": box, "epsilon": epsilon}
    return Quantity("", "attacked", name, context=context, better="higher" if name == "accuracy" else "lower")


def attacked_run(task: Tree, runs: str, root: str | None) -> Tree:
    """Records of a finished run under FGSM, as plain values.

    Args:
        task: ``run``, its folder, ``dataset``, ``images``, how many at most, and ``epsilons``; ``method``, ``seed`` and
            ``data``, the name of its images, for the records.
        runs: Where runs are kept.
        root: The folder that holds the dataset's files.
    """
    test = fixed_images(
        load_dataset(task["dataset"], "test", root), task["images"], seed=0
    )  # as the verdict's
    numbers = [
        one
        for box in BOXES
        for one in attacked_numbers(Path(runs) / task["run"], test, task["epsilons"], box)
    ]
    return records_of(task, numbers)
