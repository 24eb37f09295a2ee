"""Errors of every loss on clean test images, beside the paper's table where it is known (CIFAR-100)."""

from pathlib import Path

from clearance.experiments.reproduce import data_if_there
from clearance.experiments.reproductions.conditions import run_conditions
from clearance.experiments.reproductions.study_ledger import Quantity
from clearance.experiments.reproductions.wan_2018.protocol import accuracy_recipes
from clearance.experiments.reproductions.wan_2018.study import Column, judged_study, method_table, seeds_told
from clearance.experiments.study_request import StudyRequest
from clearance.records import Report

SETTING = "augmented"
HEADS = {False: "test error", True: "test error, trained with crop and mirror"}


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: What was asked for. Seeds are runs of each method, those of the recipe, 5, by default. Without the
            dataset's files the ledger says "not run: no data".
    """
    recipes = accuracy_recipes(request.dataset, request.root, request.seeds)
    study = judged_study("accuracy", request.dataset)
    start = next(iter(recipes.values()))
    found = []
    for (
        augmented,
        recipe,
    ) in recipes.items():  # each has its own images: cropping and mirroring are part of them
        if (data := data_if_there(recipe)) is None:
            return study.without_data(start, request)
        found += run_conditions({augmented: recipe}, SETTING, data, request)
    report = request.paged(start, found, study.command(request.seeds))
    return study.write_ledger(report, sections(report, request.dataset), request.out)


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
