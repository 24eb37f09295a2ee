"""Errors of every loss on clean test images, beside the paper's table where it is known, and its probabilities."""

import dataclasses
from pathlib import Path

from clearance.experiments.reproduce import data_if_there
from clearance.experiments.reproductions.conditions import run_conditions
from clearance.experiments.reproductions.study_ledger import Quantity
from clearance.experiments.reproductions.wan_2018 import probabilities
from clearance.experiments.reproductions.wan_2018.protocol import BASELINE, accuracy_recipes
from clearance.experiments.reproductions.wan_2018.study import (
    Column,
    judged_study,
    margin_told,
    method_table,
    seeds_told,
)
from clearance.experiments.study_request import StudyRequest
from clearance.records import Report
from clearance.records.claims import MINIMUM_SEEDS

SETTING = "augmented"
ALLOWED = 0.002  # more error than softmax that a better likelihood may cost: two tenths of a point
HEADS = {False: "test error", True: "test error, trained with crop and mirror"}


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: What was asked for. Seeds are runs of each method, those of the recipe, 5, by default. Without the
            dataset's files the ledger says "not run: no data".
    """
    recipes = {
        augmented: dataclasses.replace(recipe, audits=(*recipe.audits, *probabilities.AUDITS))
        for augmented, recipe in accuracy_recipes(request.dataset, request.root, request.seeds).items()
    }
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
    """The table of errors, what they cost against softmax, and of one condition its probabilities."""
    shown = sorted(
        {r.measurement.context[SETTING] for r in report.records if SETTING in r.measurement.context}
    )
    columns = [Column(HEADS[bool(value)], error_quantity(bool(value))) for value in shown]
    lines = [
        no_worse(report, method, column)
        for method in report.methods
        if method != BASELINE
        for column in columns
    ]
    return [
        "## Errors",
        seeds_told(report),
        method_table(report, columns, dataset),
        f"## Whether a loss costs more than {100 * ALLOWED:g} points of {BASELINE}'s error",
        f"Differences of the errors in points, with the 95 % t interval, paired over seeds; fewer than {MINIMUM_SEEDS} "
        "decide nothing.",
        "\n".join(lines),
        *margin_told(report, columns),
        *(probabilities.sections(report, dataset) if len(shown) == 1 else ()),
    ]


def no_worse(report: Report, method: str, column: Column) -> str:
    """Whether the whole interval of the difference to softmax lies below what is allowed, in words.

    >>> no_worse(Report({}, {}, "", ""), "lgm", Column("test error", error_quantity(False)))
    '- lgm, test error: not measured.'
    """
    one = column.quantity.compared(report, method, BASELINE)
    start = f"- {method}, {column.head}: "
    if one is None or one.difference is None:
        return f"{start}not measured."
    if one.low is None or one.high is None:
        return f"{start}{_points(one.difference)}; **cannot tell**."
    verdict = "no" if one.high <= ALLOWED else "yes" if one.low > ALLOWED else "cannot tell"
    if one.seeds < MINIMUM_SEEDS:
        verdict = "cannot tell"
    return f"{start}{_points(one.difference)} ({_points(one.low)} to {_points(one.high)}); **{verdict}**."


def _points(value: float) -> str:
    return f"{100 * value:+.2f}"


def error_quantity(augmented: bool) -> Quantity:
    """The error on test images, with or without cropped and mirrored training images."""
    return Quantity("error", "accuracy", context={"split": "test", SETTING: augmented})
