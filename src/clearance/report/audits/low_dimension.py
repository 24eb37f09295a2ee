"""The page on the main directions of features (Fig. 4 and Table 1 of Sato et al., 2019)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from clearance.records.record import ExhibitRecord
from clearance.records.store import exhibit_file
from clearance.report.audit_page import AuditPage, Row, Section, Term, section
from clearance.report.drawing import MOST_POINTS, bands, page_figure
from clearance.report.findings import Findings
from clearance.report.names import cited, class_noun
from clearance.report.numbers import exact
from clearance.report.over_seeds import middle, rows_of, stored, summary_exhibit, values, with_interval
from clearance.report.pictures import Picture, clouds, one_seed, per_method, picture
from clearance.report.svg import GRID, INK, MUTED, series
from clearance.report.tables import Compact, by_method, means, number

AUDIT = "low_dimension"
TABLE, SENSITIVITY = "table", "sensitivity"
FIRST, MEAN = "first class", "mean over classes"
QUANTITIES = (
    ("lda_eigenvalue", "split", "train"),
    ("lda_eigenvalue", "split", "test"),
    ("threshold_error", "chosen_on", "test"),
    ("threshold_error", "chosen_on", "train"),
)


def first_class(findings: Findings) -> str | None:
    """The class that the paper's table is about: the first that was measured."""
    row = findings.row("mean", AUDIT, "lda_eigenvalue")
    return None if row is None else str(row.context["class"])


def regulariser(findings: Findings) -> float | None:
    """The regulariser that every class was measured with."""
    row = findings.row("mean", AUDIT, "threshold_error")
    return None if row is None else float(row.context["regulariser"])


def table(findings: Findings) -> ExhibitRecord | None:
    """The paper's table: a row per method and number, of the first class and as the mean over classes.

    The mean over classes is taken inside each seed; mean and interval are over seeds.
    """
    rows: list[dict[str, Any]] = []
    for name, key, choice in QUANTITIES:
        for classes in (FIRST, MEAN):
            context: dict[str, Any] = {key: choice, "regulariser": regulariser(findings)}
            if classes == FIRST:
                context["class"] = first_class(findings)
            found = values(findings, AUDIT, name, **context)
            most = 1.0 if name == "threshold_error" else None
            for method in findings.methods:
                seeds = [sum(one) / len(one) for one in found.get(method, {}).values()]
                if seeds:
                    numbers = middle(seeds, most)
                    rows.append(
                        {"method": method, "quantity": name, "on": choice, "classes": classes, **numbers}
                    )
    caption = "One class against the rest on the best line: mean and 95 % interval over seeds."
    return summary_exhibit(findings, AUDIT, TABLE, rows, caption)


def sensitivity(findings: Findings) -> ExhibitRecord | None:
    """Scatter ratio of the first class over the regulariser, on training and on test images."""
    found = findings.rows("mean", AUDIT, "lda_eigenvalue")
    rows = [
        with_interval(row, split=row.context["split"], regulariser=row.context["regulariser"])
        for row in found
        if row.context.get("class") == first_class(findings)
    ]
    rows.sort(key=lambda row: float(row["regulariser"] or 0))
    return summary_exhibit(findings, AUDIT, SENSITIVITY, rows, "Scatter ratio over the regulariser.")


def strips(columns: Mapping[str, Sequence[Any]], name: str) -> Figure:
    """Each point is an image: its place on the line, and its class as the row.

    `columns` are ``x``, ``y`` (the row) and ``label``; `name` is the label that the line was made for: it is coloured,
    the others are grey.
    """
    figure, axes = page_figure((3.2, 2.6))
    step = -(-len(columns["x"]) // MOST_POINTS) or 1
    x, y = (np.array(columns[key][::step], dtype=float) for key in ("x", "y"))
    mine = np.array([str(label) == name for label in columns["label"][::step]], dtype=bool)
    axes.scatter(x[~mine], y[~mine], s=7, color=MUTED, alpha=0.5, linewidths=0)
    axes.scatter(x[mine], y[mine], s=14, color=series(1), linewidths=0)
    if mine.any():
        edge = float(x[mine].min())
        axes.axvline(edge, color=series(1), linewidth=0.9, dashes=(4, 3), zorder=1)
    axes.invert_yaxis()  # the first class on top
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_ylabel("one row for each class", color=INK)
    for side in axes.spines.values():
        side.set(visible=True, color=GRID)
    return figure


SIZE = (5.9, 3.9)
WHAT = (
    "How well can one direction separate a class from all others? And along how many directions do the images of a "
    "class differ?"
)
FOOT = (
    "Scatter ratio: how far the class lies from the rest, relative to the spread of both, on the best line for "
    "features of equal length; higher is better. Wrong side: the share of test images that a single threshold on "
    "that line puts on the wrong side; chosen on test images it is the paper's number and too optimistic, chosen on"
    " training images it is the one to use."
)


def directions_section(findings: Findings) -> Section | None:
    """Planes, lines, the table, and what the regulariser does to it."""
    noun = class_noun(findings.dataset)
    wide = [one for one in (_sensitivity(findings), _spectrum(findings)) if one is not None]
    planes = Row(
        clouds(findings, AUDIT, "plane", "Training features"),
        "features",
        f"Training images on the two directions in which they differ most; a colour per {noun}",
        cite=cited("Fig. 4"),
    )
    lines = Row(
        _lines(findings),
        "features",
        f"Test images on the line that separates one {noun} (coloured) from the others (grey); dashed: its farthest "
        "image",
    )
    parts = [planes, lines, _table(findings), _dimensions(findings), Row(wide)]
    return section("Dimension of the features", [WHAT], parts)


def _lines(findings: Findings) -> list[Picture]:
    found = one_seed(findings, AUDIT, "lda")
    return [
        per_method(
            findings,
            record,
            strips(record.exhibit.columns, str(record.exhibit.context.get("class"))),
            "One class against the rest,",
        )
        for record in found.values()
    ]


def _table(findings: Findings) -> Compact | None:
    """The paper's table, and what it does not have: training images to choose on, and other classes."""
    record = stored(findings, AUDIT, TABLE)
    eps = regulariser(findings)
    if record is None or eps is None:
        return None
    rows = rows_of(record)
    columns: dict[str | Markup, dict[str, Markup]] = {}
    for name, _, choice in QUANTITIES:
        for classes in (FIRST, MEAN):
            unit = "ratio" if name == "lda_eigenvalue" else "fraction"
            columns[_column(name, choice, classes)] = {
                row["method"]: number(row["mean"], unit, row["low"], row["high"])
                for row in rows
                if (row["quantity"], row["on"], row["classes"]) == (name, choice, classes)
            }
    title = Markup("{} <code>{}</code> against the rest, and the mean over classes; regulariser {}").format(
        class_noun(findings.dataset).capitalize(),
        first_class(findings),
        exact(eps),
    )
    foot = Markup("<cite>{}</cite> {}").format(cited("Table 1"), FOOT)
    return by_method(findings, title, columns, foot, [exhibit_file(record)])


def _column(name: str, choice: str, classes: str) -> str:
    images = "test images" if choice == "test" else "training images"
    what = f"scatter ratio, {images}" if name == "lda_eigenvalue" else f"wrong side, chosen on {images}"
    return what if classes == FIRST else f"{what}: mean over classes"


def _dimensions(findings: Findings) -> Compact | None:
    wanted = (
        ("share of a class's spread on its first direction", "first_axis_share", "mean"),
        ("the same in the plane of the picture", "plane_axis_share", "mean"),
        ("effective dimension of a class", "effective_rank", "mean"),
        ("effective dimension of all images", "effective_rank", "all"),
    )
    columns = {title: means(findings, AUDIT, name, **{"class": which}) for title, name, which in wanted}
    return by_method(findings, "In how few directions test images differ", columns)


def _sensitivity(findings: Findings) -> Picture | None:
    record = stored(findings, AUDIT, SENSITIVITY)
    rows = [] if record is None else rows_of(record)
    if record is None or len({row["regulariser"] for row in rows}) < 2:
        return None
    of = {split: [row for row in rows if row["split"] == split] for split in ("test", "train")}
    labels = ("regulariser", "scatter ratio")
    drawn = bands(
        of["test"], "regulariser", findings.methods, labels, size=SIZE, log="xy", dashed=of["train"]
    )
    caption = (
        "Scatter ratio of that class over the regulariser, which the paper does not name. Solid: test images; "
        "dashed: training images."
    )
    return picture(findings, drawn, caption, [record])


def _spectrum(findings: Findings) -> Picture | None:
    records = findings.exhibits(AUDIT, "spectrum")
    seed = next((record.seed for record in records), None)
    records = [record for record in records if record.seed == seed and record.method in findings.methods]
    rows = [
        {"method": record.method, "axis": axis, "mean": share, "low": None, "high": None}
        for record in records
        for axis, share in _shares(record.exhibit.columns)
    ]
    if not rows:
        return None
    labels = ("direction, the largest first", "share of the spread")
    drawn = bands(rows, "axis", findings.methods, labels, size=SIZE, percent=True, log="x")
    caption = f"Within a class: how much of the spread each direction has, mean over classes. Seed {seed}."
    return picture(findings, drawn, caption, records)


def _shares(columns: Mapping[str, Sequence[Any]]) -> list[tuple[Any, Any]]:
    pairs = zip(columns.get("axis", ()), columns.get("within a class (mean)", ()), strict=False)
    return [(axis, share) for axis, share in pairs if share is not None]


PAGE = AuditPage(
    title="Dimension of the features",
    reading="The fewer directions separate the classes, the simpler the features; it is not a merit in itself.",
    place=50,
    glossary={
        "lda_eigenvalue": Term(
            "Scatter ratio of one class against the rest",
            "Features are scaled to equal length and projected on the line on which the class lies farthest from "
            "all others, relative to the spread of both there. The line is found on training images; a small "
            "amount, the regulariser, is added to the spread so that lines without any spread do not win.",
            "Higher is better. The number for test images is the one to use.",
            "With fewer training images than features, the number for training images is decided by the regulariser.",
        ),
        "threshold_error": Term(
            "Wrong side of the best threshold",
            "On that line, the share of test images that a single threshold between the class and the rest puts on the "
            "wrong side.",
            "Lower is better. Among ten equally common classes, never predicting the class is wrong on 10 %.",
            "Chosen on the test images, as in the paper, it is smaller than with any threshold in use.",
        ),
        "first_axis_share": Term(
            "Share of a class's spread on its first direction",
            "The share of a class's variance along a single direction.",
            "100 % means that the class is a line. The paper found classes close to lines with FOCA.",
            "It says nothing about errors.",
        ),
        "plane_axis_share": Term(
            "Share of a class's spread on one direction of the picture",
            "The same in the plane of the picture: features are first projected on the two directions in which the "
            "training images differ most.",
            "100 % means that the class is a line in the picture; 50 % is the least.",
            "It leaves out all other directions.",
        ),
        "effective_rank": Term(
            "Effective dimension",
            "Along how many directions the images differ, each weighted by its share of the variance (the "
            "exponential of the entropy of the shares).",
            "For a class, fewer means a simpler shape. All classes together need about one less than the number of "
            "classes.",
            "Fewer is not always better: classes that share directions are confused.",
        ),
    },
    section=directions_section,
    over_seeds={TABLE: table, SENSITIVITY: sensitivity},
    drawn=(
        "spectrum",
        "lda",
        "plane",
    ),
)
