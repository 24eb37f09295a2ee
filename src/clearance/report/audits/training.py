"""The page on training: loss and error step by step, errors epoch by epoch, what early stopping would have given."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from clearance.records.derived import SummaryRow
from clearance.records.record import ExhibitRecord
from clearance.report.audit_page import AuditPage, Row, Section, Term
from clearance.report.drawing import (
    Columns,
    bands,
    draw_legend,
    finite,
    label_logarithmic,
    page_figure,
)
from clearance.report.findings import Findings
from clearance.report.names import (
    listed,
    method_name,
    setting,
)
from clearance.report.over_seeds import bars, curves, rows_of, stored, summary_exhibit
from clearance.report.pictures import Picture, picture
from clearance.report.svg import GRID, INK, series
from clearance.report.tables import Compact, by_method, mean
from clearance.vocabulary import Scalar

MOST_STEPS = 250
MOST_RUNS = 20  # of a method, whose lines a picture shows; more hide each other


def training_curves(
    runs: Sequence[tuple[str, Columns]], methods: Sequence[str], size: tuple[float, float]
) -> Figure:
    """Loss over steps, a thin line per run.

    `runs` are (method, columns ``step`` and ``loss``); what is None or not finite is a gap. Methods are in the page's
    order, `size` is width and height, inches.
    """
    figure, axes = page_figure(size)
    named: set[str] = set()
    for method, columns in runs:
        x, y = _thinned(columns)
        label = "_" if method in named else method_name(method)
        named.add(method)
        axes.plot(x, y, color=series(methods.index(method)), linewidth=1.1, alpha=0.8, label=label)
    axes.set_xlabel("training step", color=INK)
    axes.set_ylabel("loss on the training batch", color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    _logarithmic_if_it_helps(axes)
    draw_legend(axes)
    return figure


def _thinned(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Every k-th point of a training curve; None and what is not finite become gaps."""
    numbers = [np.nan if value is None else float(value) for value in columns.get("loss", ())]
    step = -(-len(numbers) // MOST_STEPS) or 1
    y = np.array(numbers[::step], dtype=float)
    return np.array(columns["step"][::step], dtype=float)[: len(y)], np.where(np.isfinite(y), y, np.nan)


def _logarithmic_if_it_helps(axes: Axes) -> None:
    values = np.concatenate([np.ravel(line.get_ydata()) for line in axes.lines] or [np.zeros(0)])
    values = values[np.isfinite(values)]
    if len(values) and values.min() > 0 and values.max() > 30 * values.min():
        axes.set_yscale("log")
        axes.set_ylabel(f"{axes.get_ylabel()} (logarithmic)")
        label_logarithmic(axes.yaxis, "")
        return
    if len(values) and values.min() >= 0:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


WIDE_SIZE = (5.9, 3.3)


def training_pictures(findings: Findings) -> list[Picture]:
    """Loss while training, a line per run, of the first runs, where any was recorded."""
    records = [one for one in findings.exhibits("training", "curve") if "step" in one.exhibit.columns]
    of_method = [_first(records, method) for method in findings.methods]
    shown = [one for found in of_method for one in found[:MOST_RUNS]]
    if not shown:
        return _weak_heads(findings)
    drawn = training_curves([(one.method, one.exhibit.columns) for one in shown], findings.methods, WIDE_SIZE)
    few = all(len(found) <= MOST_RUNS for found in of_method)
    caption = (
        "Loss on the current training batch, with the last layers in use at that step; a "
        f"thin line per run{'' if few else ', of each method the first ones'}."
    )
    return [picture(findings, drawn, caption, shown), *_weak_heads(findings)]


def _first(records: Iterable[ExhibitRecord], method: str) -> list[ExhibitRecord]:
    """The first runs of a method that have recorded it, one more than are shown if there are."""
    own = (one for one in records if one.method == method)
    having = (one for one in own if any(map(finite, one.exhibit.columns.get("loss", ()))))
    return list(itertools.islice(having, MOST_RUNS + 1))


def _weak_heads(findings: Findings) -> list[Picture]:
    """How good the heads were that a method trained against, of each method's first seed that says so."""
    records = [one for one in findings.exhibits("training", "weak_heads") if "step" in one.exhibit.columns]
    firsts = {record.method: record for record in reversed(records) if record.method in findings.methods}
    rows = {
        name: [
            {"method": record.method, "step": step, "mean": value, "low": None, "high": None}
            for record in firsts.values()
            for step, value in zip(
                *(record.exhibit.columns.get(key, ()) for key in ("step", name)), strict=False
            )
            if value is not None
        ]
        for name in ("weak_head_accuracy", "weak_heads_at_chance")
    }
    good, guessing = rows.values()
    if not good:
        return []
    labels = ("training step", "share")
    drawn = bands(good, "step", findings.methods, labels, size=WIDE_SIZE, percent=True, dashed=guessing)
    names = ", ".join(f"{method_name(method)}, seed {record.seed}" for method, record in firsts.items())
    caption = (
        f"{names}: the accuracy of the temporary last layers on images they were not trained on (solid), and the "
        "share of these last layers at chance (dashed)."
    )
    return [picture(findings, drawn, caption, list(firsts.values()))]


AUDIT, NAME, OVER = "training", "epochs", "epochs_over_seeds"
ERRORS = {"test": "test error", "validation": "validation error"}
OWN = ("split", "chosen_on")  # what identifies an error besides the condition
Condition = tuple[tuple[str, Scalar], ...]


def condition_of(context: Mapping[str, Scalar]) -> Condition:
    """What was varied between runs of one report: every setting that is not the error's own.

    >>> condition_of({"split": "test", "noise": 0.8})
    (('noise', 0.8),)
    """
    return tuple(sorted((key, value) for key, value in context.items() if key not in OWN))


def conditions(findings: Findings) -> list[Condition]:
    """Every condition that curves were recorded under, in order."""
    return list(dict.fromkeys(condition_of(one.exhibit.context) for one in findings.exhibits(AUDIT, NAME)))


def over_epochs(findings: Findings) -> ExhibitRecord | None:
    """A row for each condition, method, set of images and epoch."""
    rows: list[dict[str, Any]] = []
    for place, condition in enumerate(conditions(findings)):
        mine = [
            one for one in findings.exhibits(AUDIT, NAME) if condition_of(one.exhibit.context) == condition
        ]
        for name, column in ERRORS.items():
            found = curves(mine, "epoch", column, findings.methods, most=1.0)
            rows += [{"condition": place, "images": name, **row} for row in found]
    return summary_exhibit(findings, AUDIT, OVER, rows, bars(findings, "Shaded"))


SIZE = (5.9, 3.9)
WHAT = (
    "Errors after every pass through the training images. Solid: test images, whose labels are right. A solid line "
    "that rises again shows that the network begins to memorise wrong labels."
)
DASHED = "Dashed: validation images kept out of training, with the same share of wrong labels."
NOT_MEANT = (
    "Nothing was chosen on the test images: every other number on this page is from the last epoch. The table shows"
    " what stopping at the lowest validation error (the lowest dashed point) would have given."
)


def epochs_section(findings: Findings) -> Section | None:
    """A picture and a table for each condition that runs were made under."""
    record = stored(findings, AUDIT, OVER)
    if record is None:
        return None
    varied = conditions(findings)
    drawn = [_picture(findings, record, place, condition) for place, condition in enumerate(varied)]
    tables = [table for condition in varied if (table := _table(findings, condition)) is not None]
    said = [WHAT, *([DASHED] if "validation" in record.exhibit.columns["images"] else [])]
    return Section("Epoch by epoch", [*said, NOT_MEANT] if tables else said, [Row(drawn), *tables])


def _picture(findings: Findings, record: ExhibitRecord, place: int, condition: Condition) -> Picture:
    rows = [row for row in rows_of(record) if row["condition"] == place]
    validated = [row for row in rows if row["images"] == "validation"]
    drawn = bands(
        [row for row in rows if row["images"] == "test"],
        "epoch",
        findings.methods,
        ("epoch", "wrong"),
        size=SIZE,
        percent=True,
        dashed=validated,
    )
    dashed = "Dashed: validation images. " if validated else ""
    caption = f"Solid: test images. {dashed}{record.exhibit.caption}".strip()
    name = _condition_name(condition)
    shown = picture(findings, drawn, f"{name.striptags()}. {caption}" if name else caption, [record])
    # the numbers of a condition are marked as such, as all numbers of a page are
    return replace(shown, caption=Markup("{}. {}").format(name, caption)) if name else shown


def _table(findings: Findings, condition: Condition) -> Compact | None:
    """The last epoch and the one that the validation images choose."""
    stopped = _rows(findings, "training", "early_stopped_error", condition)
    if not stopped:
        return None
    last = _rows(findings, "accuracy", "error", condition, split="test")
    which = _rows(findings, "training", "early_stopped_epoch", condition)
    columns: dict[str | Markup, dict[str, Markup]] = {
        "after the last epoch": {row.method: mean(row) for row in last},
        "at the lowest validation error": {row.method: mean(row) for row in stopped},
        "that epoch": {row.method: mean(row) for row in which},
    }
    name = _condition_name(condition)
    title = Markup("Wrong on test images{}{}").format(", " if name else "", name)
    return by_method(findings, title, columns)


def _rows(findings: Findings, audit: str, name: str, condition: Condition, **wanted: str) -> list[SummaryRow]:
    rows = findings.rows("mean", audit, name, **wanted)
    return [row for row in rows if condition_of(row.context) == condition]


def _condition_name(condition: Condition) -> Markup:
    return listed([setting(key, value) for key, value in condition])


PAGE = AuditPage(
    title="Training",
    reading="The cost of training; it says nothing about the network.",
    place=0,
    glossary={
        "diverged_heads": Term(
            "Last layers left out while training",
            "FOCA trains against last layers that are trained from scratch in every step; this many diverged and "
            "were left out.",
            "Zero is right; a few among thousands do no harm.",
            "It says nothing about the trained network.",
        ),
        "seconds": Term(
            "Training time",
            "Wall-clock time of the training, without the measuring afterwards. FOCA's includes its last part, in "
            "which the last layers that the network keeps are trained: in a short training that is most of it.",
            "Lower is better. It depends on the machine; the ratio between methods depends on it less.",
            "It is not a bound: none of the methods was tuned for speed.",
        ),
        "memory": Term(
            "Training memory",
            "The most memory that training added to what its process held before: to program and images. Of the "
            "graphics card, where one was used.",
            "Lower is better. A MiB is 1,048,576 bytes.",
            "It also depends on how the system hands memory out: a difference of a tenth means nothing.",
        ),
        "steps": Term(
            "Training steps",
            "How many batches changed the network.",
            "Neither direction is better; it shows whether methods had the same number.",
            "Equal steps are not equal work: a step of one method may cost several of another.",
        ),
        "early_stopped_error": Term(
            "Error at the epoch chosen by validation",
            "The error on test images at the first epoch with the lowest error on validation images, whose labels "
            "have the same share of errors as the training labels.",
            "Lower is better. Far below the error of the last epoch means that training was too long.",
            "Every other number is from the network after the last epoch.",
        ),
        "early_stopped_epoch": Term(
            "Epoch chosen by validation",
            "Which epoch that is.",
            "Neither direction is better.",
            "Early is not fast: steps of different methods cost differently.",
        ),
    },
    section=epochs_section,
    over_seeds={OVER: over_epochs},
    drawn=(
        "curve",
        "weak_heads",
        "epochs",
    ),
)
