"""Errors of every loss on clean test images, next to the paper's table where it is known, and its probabilities."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearance.research import THIN, Report, Scalar
from papers.engine.judging import MINIMUM_SEEDS
from papers.engine.ledger import JudgedStudy, TableRow, report_in
from papers.engine.study import StudyRequest, run_conditions
from papers.wan_2018.protocol import BASELINE, PAPER, accuracy_recipes
from papers.wan_2018.study import Column, margin_note, method_table, seeds_note

# Whether probabilities are right, which the slides claim as calibrated scores, and whether classes are Gaussian.
#
# Proper scores judge probabilities; the expected calibration error depends on its bins and is shown only. No threshold
# shows whether features are Gaussian: with enough images every network's are not.

AUDITS = ("calibration", "goodness_of_fit")
PROPER = {"nll": ("negative log-likelihood", "nats"), "brier": ("Brier score", "squared error")}
BINNED = {"ece": "ECE", "ece_debiased": "ECE, debiased"}
FIT = {
    "distance_ratio": ("mean 2d / D", "ratio"),
    "ks_distance": ("KS distance", "fraction"),
    "coverage": ("within the 95 % region", "fraction"),
}
OFFSET = TableRow("", "goodness_of_fit", "mean_offset", context={"statistics": "own", "class": "all"})
WHOSE = {"refitted": "fitted to training features", "own": "as the mixture learned them"}


def probability_sections(report: Report, dataset: str) -> list[str]:
    """Proper scores before and after a temperature, ECE, and the fit of Gaussians; only what was measured.

    >>> probability_sections(Report({}, {}, "", ""), "digits")
    []
    """
    measured = {record.measurement.audit for record in report.records}
    text = []
    if "calibration" in measured:
        text += [
            "## Whether probabilities are right: negative log-likelihood and Brier score",
            "On test images, as trained and after one temperature. A departure: no recipe keeps images back: it is "
            "the temperature from one half of the test images, measured on the other, and the other way round. "
            "No image is scored with a temperature that it helped to choose.",
            method_table(
                report,
                [proper(name, state) for state in ("as trained", "calibrated") for name in PROPER],
                dataset,
            ),
            "## The same as expected calibration error, shown only",
            "15 bins of equal width. It is blind to all but the largest probability, and nothing is judged by it.",
            method_table(report, [*_binned("as trained"), *_binned("calibrated"), _temperature()], dataset),
        ]
    if "goodness_of_fit" in measured:
        text += [
            "## Whether classes are Gaussian: squared distances of test features against chi-square",
            "Fitted are means and one variance of each dimension; on the training features themselves their ratio is "
            "1 by construction. Nothing is judged: there is no threshold.",
            method_table(report, [_fit(name, whose) for whose in WHOSE for name in FIT], dataset),
            "## How far learned means are from those of their classes",
            "Of the squared distance of training features to their learned mean, the part that is the distance of "
            "that mean from the class's own; 0 where they are equal.",
            method_table(report, [Column("offset of the means", OFFSET, judged=False)], dataset),
        ]
    return text


def proper(name: str, state: str) -> Column:
    """A proper score of probabilities, as trained or calibrated."""
    title, unit = PROPER[name]
    return Column(f"{title}, {state}", TableRow("", "calibration", name, unit, {"temperature": state}))


def _binned(state: str) -> list[Column]:
    return [
        Column(
            f"{title}, {state}",
            TableRow("", "calibration", name, context={"temperature": state}),
            judged=False,
        )
        for name, title in BINNED.items()
    ]


def _temperature() -> Column:
    return Column("temperature", TableRow("", "calibration", "temperature", "factor"), judged=False)


def _fit(name: str, whose: str) -> Column:
    title, unit = FIT[name]
    quantity = TableRow("", "goodness_of_fit", name, unit, {"statistics": whose, "class": "all"})
    return Column(f"{title}, {WHOSE[whose]}", quantity, judged=False)


SETTING = "augmented"
ALLOWED = 0.002  # more error than softmax that a better likelihood may cost: two tenths of a point
WHERE = {False: "", True: ", trained with crop and mirror"}


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: What was asked for. Seeds are runs of each method, those of the recipe, 5, by default. Without the
            dataset's files the ledger says "not run: no data".
    """
    recipes = {
        augmented: dataclasses.replace(recipe, audits=(*recipe.audits, *AUDITS))
        for augmented, recipe in accuracy_recipes(request.dataset, request.root, request.seeds).items()
    }
    study = JudgedStudy(PAPER, ("accuracy",), request.dataset)
    start = next(iter(recipes.values()))
    found = []
    for augmented, recipe in recipes.items():
        # each has its own images: cropping and mirroring are part of them
        data = study.data(start, request)
        found += run_conditions({augmented: recipe}, SETTING, data, request)
    report = request.paged(start, found, study.command(request.seeds), recipes)
    return study.write_ledger(report, sections(report, request.dataset), request.out)


def passages_in(tree: Mapping[str, Any], _folder: Path) -> list[str]:
    """The sections of a committed ledger, from its values."""
    found = sections(report_in(tree, tree["dataset"]), tree["dataset"])
    return [part.replace(THIN, " ") for part in found]


def sections(report: Report, dataset: str) -> list[str]:
    """The table of errors, what they cost against softmax, and of one condition its probabilities."""
    shown = sorted(
        {r.measurement.context[SETTING] for r in report.records if SETTING in r.measurement.context}
    )
    columns = [Column(f"test error{WHERE[bool(value)]}", error_quantity(bool(value))) for value in shown]
    lines = [
        no_worse(report, method, column)
        for method in report.methods
        if method != BASELINE
        for column in columns
    ]
    return [
        "## Errors",
        seeds_note(report),
        method_table(report, columns, dataset),
        f"## Whether a loss costs more than {100 * ALLOWED:g} points of {BASELINE}'s error",
        f"Differences of the errors in points, with the 95 % t interval, paired over seeds; fewer than {MINIMUM_SEEDS} "
        "decide nothing.",
        "\n".join(lines),
        *margin_note(report, columns),
        *(
            probability_sections(report, dataset)
            if len(shown) == 1
            else _fit_sections(report, shown, dataset)
        ),
    ]


def _fit_sections(report: Report, shown: Sequence[Scalar], dataset: str) -> list[str]:
    """How well networks fit their training images, under each condition, and how far learned means are off."""
    settings: list[tuple[str, dict[str, Scalar]]] = [(WHERE[bool(one)], {SETTING: one}) for one in shown]
    errors = [TableRow("", "accuracy", "error", context={"split": "train"} | one) for _, one in settings]
    offsets = [dataclasses.replace(OFFSET, context={**OFFSET.context, **one}) for _, one in settings]
    columns = [
        Column(f"{name}{where}", quantity, judged=False)
        for name, quantities in (("training error", errors), ("offset of the means", offsets))
        for (where, _), quantity in zip(settings, quantities, strict=True)
    ]
    return [
        "## Training images, and how far learned means are from those of their classes",
        "The offset is the part of the squared distance of training features to their learned mean that is the "
        "distance of that mean from the class's own.",
        method_table(report, columns, dataset),
    ]


def no_worse(report: Report, method: str, column: Column) -> str:
    """Whether the whole interval of the difference to softmax is below the allowed one, as a sentence.

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


def error_quantity(augmented: bool) -> TableRow:
    """The error on test images, with or without cropped and mirrored training images."""
    return TableRow("error", "accuracy", context={"split": "test", SETTING: augmented})
