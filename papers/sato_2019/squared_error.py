"""Whether classes are nearly one-dimensional (claim P1) under softmax alone: the same with squared error, on digits.

The paper sees each class of FOCA on a line through the plane of the first two principal axes, and suspects softmax:
a loss that falls for ever as features grow stretches every class away from the origin. Squared error has no such pull.
"""

import dataclasses
from pathlib import Path
from typing import Any

from clearance.research import Recipe, build_data, plans_of
from papers.engine.catalogue import paper_recipe
from papers.engine.ledger import COST, ONE_IMAGE, OWN_HEAD, TableRow, in_words, provenance, save, table
from papers.engine.study import StudyRequest

COMMAND = "python -m papers sato_2019 --only squared-error"
PLAIN, FOCA = "plain", "foca"
SQUARED = {PLAIN: "plain, squared error", FOCA: "foca, squared error"}
# Chosen on a quarter of the training set by the one-image error, one seed, among learning rates a factor 2 apart: plain
# 0.05 to 0.8, FOCA 0.025 to 0.4, its weak heads 0.005 and 0.01 (at 0.1, the step of cross-entropy, they diverge).
CHANGES: dict[str, dict[str, Any]] = {PLAIN: {"lr": 0.4}, FOCA: {"lr": 0.1, "head_lr": 0.01}}
PLANE, SHARE = (
    TableRow(f"share of a class's {what} on its first axis", "low_dimension", name, "fraction",
             {"class": "mean"}, better="higher")
    for what, name in (("variance in the plane", "plane_axis_share"), ("whole variance", "first_axis_share"))
)  # fmt: skip


def squared_error_recipe(seeds: int | None = None) -> Recipe:
    """Plain training and FOCA of the digits recipe, each with both losses.

    >>> {name: method.loss for name, method in squared_error_recipe().methods.items()}  # doctest: +NORMALIZE_WHITESPACE
    {'plain': 'cross-entropy', 'foca': 'cross-entropy', 'plain, squared error': 'squared-error',
     'foca, squared error': 'squared-error'}
    """
    start = paper_recipe("sato_2019", "digits")
    methods = {name: start.methods[name] for name in (PLAIN, FOCA)}
    methods |= {
        SQUARED[name]: dataclasses.replace(start.methods[name], loss="squared-error", **change)
        for name, change in CHANGES.items()
    }
    return dataclasses.replace(
        start,
        seeds=start.seeds if seeds is None else seeds,
        audits=("accuracy", "co_adaptation", "low_dimension"),
        audit_settings={"co_adaptation": {"per_class": [1], "repetitions": [50], "all_images": False}},
        methods=methods,
    )


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: What was asked for. Seeds are runs of each method, those of the recipe, 5, by default.
    """
    recipe = squared_error_recipe(request.seeds)
    found = request.grid(plans_of(recipe), build_data(recipe))
    report = request.paged(recipe, found, request.command(COMMAND))
    rows = [PLANE, SHARE, ONE_IMAGE, OWN_HEAD, *COST]
    lines = [
        "# sato_2019: one-dimensional classes (P1), with cross-entropy and with squared error",
        provenance(report),
        "Digits; mean over seeds with the 95 % t interval, in brackets the verdict against plain training.",
        table(report, rows, report.methods, PLAIN),
        "\n".join(
            f"- {about}, {row.label}: {in_words(report, row, *pair)}"
            for row in (PLANE, SHARE)
            for about, pair in (
                ("Cross-entropy, FOCA against plain", (FOCA, PLAIN)),
                ("Squared error, FOCA against plain", (SQUARED[FOCA], SQUARED[PLAIN])),
                ("FOCA, squared error against cross-entropy", (SQUARED[FOCA], FOCA)),
            )
        ),
    ]
    return save(report, "\n\n".join(lines), rows, (PLAIN, SQUARED[PLAIN], FOCA), request.out)
