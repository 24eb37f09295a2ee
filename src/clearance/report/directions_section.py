"""The main directions of the features (Fig. 4), and how far one line sets a class apart (Table 1)."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from clearance.records.store import exhibit_file
from clearance.report import directions as over
from clearance.report.bands import bands
from clearance.report.compact import Compact, by_method, mean, number
from clearance.report.findings import Findings
from clearance.report.gallery import Picture, clouds, one_seed, per_method, picture
from clearance.report.names import class_noun
from clearance.report.numbers import exact
from clearance.report.over_seeds import rows_of, stored
from clearance.report.paper import cited
from clearance.report.section import Row, Section
from clearance.report.strips import strips

SIZE = (5.9, 3.9)
WHAT = (
    "Seen from the one direction that serves it best, how far does a class lie from all others? And along how "
    "many directions do the images of a class differ at all?"
)
FOOT = (
    "Scatter ratio: how far the class lies from the rest, over how widely both are spread, on the best line for "
    "features of equal length; higher is better. Wrong side: the share of test images that a single threshold on "
    "that line puts wrongly; chosen on test images it is the paper's number and too good, chosen on training "
    "images it is the one to believe."
)


def directions_section(findings: Findings) -> Section | None:
    """Planes, lines, the table, and what the regulariser does to it.

    >>> from clearance.records import Report
    >>> directions_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    noun = class_noun(findings.dataset)
    planes = clouds(findings, over.AUDIT, "plane", "Training features")
    lines = _lines(findings)
    wide = [one for one in (_sensitivity(findings), _spectrum(findings)) if one is not None]
    rows = (
        Row(
            planes,
            "features",
            f"Training images on the two directions in which they differ most; a colour per {noun}",
            cite=cited("Fig. 4"),
        ),
        Row(
            lines,
            "features",
            f"Test images on the line that sets one {noun} (coloured) apart from the others (grey); dashed: "
            "its farthest image",
        ),
        Row(wide, "two"),
    )
    tables = [one for one in (_table(findings), _dimensions(findings)) if one is not None]
    shown = [row for row in rows if row.pictures]
    if not shown and not tables:
        return None
    pictures, last = (
        [row for row in shown if row.shape == "features"],
        [row for row in shown if row.shape == "two"],
    )
    return Section(
        "The main directions of the features",
        [WHAT],
        [*pictures, *tables, *last],
    )


def _lines(findings: Findings) -> list[Picture]:
    found = one_seed(findings, over.AUDIT, "lda")
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
    record = stored(findings, over.AUDIT, over.TABLE)
    eps = over.regulariser(findings)
    if record is None or eps is None:
        return None
    rows = rows_of(record)
    columns: dict[str | Markup, dict[str, Markup]] = {}
    for name, _, choice in over.QUANTITIES:
        for classes in (over.FIRST, over.MEAN):
            unit = "ratio" if name == "lda_eigenvalue" else "fraction"
            columns[_column(name, choice, classes)] = {
                row["method"]: number(row["mean"], unit, row["low"], row["high"])
                for row in rows
                if (row["quantity"], row["on"], row["classes"]) == (name, choice, classes)
            }
    title = Markup("{} <code>{}</code> against the rest, and the mean over classes; regulariser {}").format(
        class_noun(findings.dataset).capitalize(),
        over.first_class(findings),
        exact(eps),
    )
    foot = Markup("<cite>{}</cite> {}").format(cited("Table 1"), FOOT)
    return by_method(findings, title, columns, foot, [exhibit_file(record)])


def _column(name: str, choice: str, classes: str) -> str:
    images = "test images" if choice == "test" else "training images"
    what = f"scatter ratio, {images}" if name == "lda_eigenvalue" else f"wrong side, chosen on {images}"
    return what if classes == over.FIRST else f"{what}: mean over classes"


def _dimensions(findings: Findings) -> Compact | None:
    wanted = (
        ("share of a class's spread on its first direction", "first_axis_share", "mean"),
        ("directions that a class fills", "effective_rank", "mean"),
        ("directions that all images fill", "effective_rank", "all"),
    )
    columns = {
        title: {row.method: mean(row) for row in findings.rows("mean", over.AUDIT, name, **{"class": which})}
        for title, name, which in wanted
    }
    return by_method(findings, "In how few directions test images differ", columns)


def _sensitivity(findings: Findings) -> Picture | None:
    record = stored(findings, over.AUDIT, over.SENSITIVITY)
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
    records = findings.exhibits(over.AUDIT, "spectrum")
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
