"""A comparison at several values of one setting: its curves over seeds, one value's report, and the section."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from clearance.records.record import SWEEP, ExhibitRecord
from clearance.records.store import Report
from clearance.report.audit_page import Row, Section
from clearance.report.drawing import bands
from clearance.report.findings import Findings
from clearance.report.numbers import data, exact
from clearance.report.over_seeds import bars, is_summary, rows_of, stored, summary_exhibit, with_interval
from clearance.report.pictures import Picture, picture
from clearance.vocabulary import Scalar

AUDIT, OVER = "sweep", "over_setting"


@dataclass(frozen=True, slots=True)
class Swept:
    """The setting that was swept, its values, and the one that the rest of the page is about."""

    field: str
    values: tuple[float, ...]
    shown: float


@dataclass(frozen=True, slots=True)
class SweptCurve:
    """A curve of the figure: what it is called, where it is measured, and how it is drawn."""

    key: str
    label: str
    audit: str
    name: str
    context: Mapping[str, Scalar]
    log: str = "x"


QUANTITIES = (
    SweptCurve("error", "wrong on test images", "accuracy", "error", {"split": "test"}),
    SweptCurve("train_error", "wrong on training images", "accuracy", "error", {"split": "train"}),
    SweptCurve(
        "adversarial_distance", "adversarial distance, pixel units", "boundary_distance", "adversarial_distance",
        {"norm": "2"},
    ),
    SweptCurve("angle", "tilting angle, radians", "boundary_distance", "tilting_angle", {"direction": "centroid"}),
    SweptCurve("scale", "logit scale", "weight_scale", "logit_scale", {}, log="xy"),
    SweptCurve("local_scale", "local scale", "boundary_distance", "local_scale", {"norm": "2"}, log="xy"),
)  # fmt: skip


def swept(report: Report) -> Swept | None:
    """What the report's settings say of a sweep.

    >>> swept(Report({"sweep": {"field": "lr", "values": [0.1, 0.2], "shown": 0.2}}, {}, "", "")).shown
    0.2
    """
    stored = report.recipe.get(SWEEP)
    return None if stored is None else Swept(stored["field"], tuple(stored["values"]), stored["shown"])


def at_value(report: Report) -> Markup:
    """That a page is about one value of a sweep, in a sentence; empty for any other report.

    >>> str(at_value(Report({"sweep": {"field": "lr", "values": [0.1, 0.2], "shown": 0.2}}, {}, "", "")).striptags())
    'All of this is at lr 0.2, one of 2 values.'
    """
    found = swept(report)
    if found is None:
        return Markup("")
    count = data(len(found.values), "count")
    return Markup("All of this is at {} {}, one of {} values.").format(found.field, exact(found.shown), count)


def at_shown(report: Report) -> Report:
    """The report of one value, for everything on a page besides the sweep; any other report unchanged."""
    found = swept(report)
    if found is None:
        return report

    def shown(context: Mapping[str, Any]) -> bool:
        return bool(context.get(found.field, found.shown) == found.shown)

    return replace(
        report,
        records=tuple(r for r in report.records if shown(r.measurement.context)),
        exhibits=tuple(e for e in report.exhibits if is_summary(e) or shown(e.exhibit.context)),
    )


def over_setting(findings: Findings) -> ExhibitRecord | None:
    """A row for each method, quantity and value of the sweep."""
    found = swept(findings.report)
    if found is None:
        return None
    rows = [
        with_interval(row, quantity=quantity.key, setting=value)
        for quantity in QUANTITIES
        for value in found.values
        for row in findings.rows(
            "mean", quantity.audit, quantity.name, **{**quantity.context, found.field: value}
        )
    ]
    return summary_exhibit(findings, AUDIT, OVER, rows, bars(findings, "Shaded"))


SIZE = (5.9, 3.9)
DASHED = {"error": "train_error"}  # drawn in the same picture
WHAT = Markup(
    "The same comparison at {} values of <code>{}</code>, everything else equal. Do not choose any of them by a "
    "test error."
)
REST = Markup(
    "The sentence at the top, the tables and the pictures are at {} {}; the full table has every value."
)


def sweep_section(findings: Findings) -> Section | None:
    """A picture for each quantity over the setting; None where nothing was swept."""
    found, record = swept(findings.report), stored(findings, AUDIT, OVER)
    if found is None or record is None:
        return None
    rows = rows_of(record)
    drawn = [
        _picture(findings, one, found.field)
        for one in QUANTITIES
        if one.key not in DASHED.values() and any(row["quantity"] == one.key for row in rows)
    ]
    name = found.field.replace("_", " ")
    text = [
        WHAT.format(exact(len(found.values)), found.field),
        REST.format(name, exact(found.shown)),
    ]
    return Section(f"Over {name}", text, [Row(drawn)])


def _picture(findings: Findings, quantity: SweptCurve, field: str) -> Picture:
    record = stored(findings, AUDIT, OVER)
    assert record is not None
    rows = rows_of(record)
    drawn = bands(
        [row for row in rows if row["quantity"] == quantity.key],
        "setting",
        findings.methods,
        (field.replace("_", " "), quantity.label),
        size=SIZE,
        percent=quantity.key in DASHED,
        log=quantity.log,
        dashed=[row for row in rows if row["quantity"] == DASHED.get(quantity.key)],
    )
    dashed = " Dashed: on training images." if quantity.key in DASHED else ""
    caption = (
        f"{quantity.label.capitalize()} over {field.replace('_', ' ')}.{dashed} {record.exhibit.caption}"
    )
    return picture(findings, drawn, caption.strip(), [record])
