"""Errors of every loss on clean test images, beside the paper's table where it is known (CIFAR-100)."""

from functools import partial
from pathlib import Path

from clearance.experiments.grid import Listener
from clearance.experiments.reproduce import data_if_there
from clearance.experiments.reproductions.elsayed_2018.conditions import run_conditions
from clearance.experiments.reproductions.sato_2019.study_ledger import Quantity
from clearance.experiments.reproductions.wan_2018.protocol import accuracy_recipes
from clearance.experiments.reproductions.wan_2018.study import Column, StudyOf, method_table, seeds_told
from clearance.records import Report

SETTING = "augmented"
HEADS = {False: "test error", True: "test error, trained with crop and mirror"}


def run(
    out: Path,
    *,
    seeds: int | None,
    jobs: int,
    listener: Listener,
    dataset: str = "digits",
    root: str | None = None,
) -> Path:
    """Run the study and write its ledger; interrupted, it goes on where it stood.

    Args:
        out: Where ledger, report and runs are kept.
        seeds: Runs of each method; those of the recipe, 5, by default.
        jobs: Processes at a time.
        listener: Told of events, as in :func:`clearance.experiments.grid.run_grid`.
        dataset: digits, mnist, cifar10 or cifar100.
        root: The folder that holds its files. Without them the ledger says "not run: no data".
    """
    recipes = accuracy_recipes(dataset, root, seeds)
    study = StudyOf("accuracy", dataset, partial(sections, dataset=dataset))
    start = next(iter(recipes.values()))
    found = []
    for (
        augmented,
        recipe,
    ) in recipes.items():  # each has its own images: cropping and mirroring are part of them
        if (data := data_if_there(recipe)) is None:
            return study.without_data(start, seeds, out)
        found += run_conditions({augmented: recipe}, SETTING, data, out, jobs, listener)
    return study.written(start, found, seeds, out)


def sections(report: Report, dataset: str) -> list[str]:
    """The table of errors."""
    shown = sorted(
        {r.measurement.context[SETTING] for r in report.records if SETTING in r.measurement.context}
    )
    columns = [Column(HEADS[bool(value)], error_quantity(bool(value))) for value in shown]
    return ["## Errors", seeds_told(report), method_table(report, columns, dataset)]


def error_quantity(augmented: bool) -> Quantity:
    """The error on test images, with or without cropped and mirrored training images."""
    return Quantity("error", "accuracy", context={"split": "test", SETTING: augmented})
