"""Why margins trained on few images may err no less than cross-entropy (claim 4): two suspected causes, one at a time.

The recipes count one rival of a sample, as the published code does, where the paper counts all nine; and they use the
margin by itself, which teaches nothing about a sample beyond it, where the paper may have mixed it with cross-entropy.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.experiments.reproduce import NoDataError, data_if_there
from clearance.experiments.reproduction_ledger import reproduce_command
from clearance.experiments.reproductions.conditions import run_conditions
from clearance.experiments.reproductions.elsayed_2018.protocol import BASELINE, PAPER, small_data_recipes
from clearance.experiments.reproductions.elsayed_2018.small_data import SETTING
from clearance.experiments.reproductions.study_ledger import (
    COST,
    Quantity,
    provenance,
    save,
    table,
)
from clearance.experiments.study_request import StudyRequest
from clearance.records import Report

AS_RUN = "margin-l2"
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "all rivals": {"top_k": None},
    "with cross-entropy": {"cross_entropy_weight": 1.0},
}


def cause_recipes(request: StudyRequest) -> Mapping[int, Recipe]:
    """Those of the study of few images, with cross-entropy, the l2 margin, and the margin changed in one respect.

    >>> list(cause_recipes(StudyRequest(Path("out"), dataset="mnist"))[68].methods)[2:]
    ['margin-l2, all rivals', 'margin-l2, with cross-entropy']
    """
    recipes = small_data_recipes(request.dataset, request.root, request.seeds)
    return {count: _with_suspects(recipe) for count, recipe in recipes.items()}


def _with_suspects(recipe: Recipe) -> Recipe:
    margin = recipe.methods[AS_RUN]
    changed = {f"{AS_RUN}, {name}": _changed(margin, change) for name, change in CHANGES.items()}
    return dataclasses.replace(
        recipe, methods={BASELINE: recipe.methods[BASELINE], AS_RUN: margin, **changed}
    )


def _changed(method: Method, settings: Mapping[str, Any]) -> Method:
    return dataclasses.replace(method, objective_settings={**method.objective_settings, **settings})


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: What was asked for. Seeds are draws of images, 10 by default.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    recipes = cause_recipes(request)
    start = next(iter(recipes.values()))
    data = data_if_there(start)
    if data is None:
        raise NoDataError(f"the files of {request.dataset} are not there; give their folder with --root")
    found = run_conditions(recipes, SETTING, data, request)
    command = reproduce_command(PAPER, request.dataset, request.seeds, only="causes")
    return write_ledger(request.paged(start, found, command), request)


def write_ledger(report: Report, request: StudyRequest) -> Path:
    """Write ``ledger.md`` and ``ledger.json`` of a report of this study; the path of the first."""
    counts = sorted(
        {r.measurement.context[SETTING] for r in report.records if SETTING in r.measurement.context}
    )
    rows = [
        Quantity(f"{count} images", "accuracy", context={"split": "test", SETTING: count}) for count in counts
    ]
    rows += [
        dataclasses.replace(cost, label=f"{cost.label}, {counts[0]} images", context={SETTING: counts[0]})
        for cost in COST[:1]
        if counts
    ]
    lines = [
        "# elsayed-2018: why margins on few images err no less than cross-entropy (4)",
        provenance(report),
        f"{request.dataset}, the l2 margin on all layers; test error, mean over draws with the 95 % t interval, and "
        "how each stands to cross-entropy on the same draws. Each column after the second changes one thing, at the "
        "learning rate that was chosen without it.",
        table(report, rows, report.methods, BASELINE),
    ]
    return save(report, "\n\n".join(lines), rows, (BASELINE, AS_RUN), request.out)
