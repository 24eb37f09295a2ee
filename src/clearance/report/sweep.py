"""A comparison at several values of one setting: what was swept, its curves over seeds, and one value's report."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from clearance.records.record import ExhibitRecord
from clearance.records.store import Report
from clearance.report.findings import Findings
from clearance.report.over_seeds import bars, is_summary, summary_exhibit
from clearance.vocabulary import Scalar

SETTING = "sweep"
AUDIT, OVER = "sweep", "over_setting"


@dataclass(frozen=True, slots=True)
class Swept:
    """The setting that was swept, its values, and the one that the rest of the page is about."""

    field: str
    values: tuple[float, ...]
    shown: float


@dataclass(frozen=True, slots=True)
class Quantity:
    """A curve of the figure: what it is called, where it is measured, and how it is drawn."""

    key: str
    label: str
    audit: str
    name: str
    context: Mapping[str, Scalar]
    log: str = "x"


QUANTITIES = (
    Quantity("error", "wrong on test images", "accuracy", "error", {"split": "test"}),
    Quantity("train_error", "wrong on training images", "accuracy", "error", {"split": "train"}),
    Quantity(
        "adversarial_distance", "adversarial distance, pixel units", "boundary_distance", "adversarial_distance",
        {"norm": "2"},
    ),
    Quantity("angle", "tilting angle, radians", "boundary_distance", "tilting_angle", {"direction": "centroid"}),
    Quantity("scale", "logit scale", "weight_scale", "logit_scale", {}, log="xy"),
    Quantity("local_scale", "local scale", "boundary_distance", "local_scale", {"norm": "2"}, log="xy"),
)  # fmt: skip


def swept(report: Report) -> Swept | None:
    """What the report's settings say of a sweep.

    >>> swept(Report({"sweep": {"field": "lr", "values": [0.1, 0.2], "shown": 0.2}}, {}, "", "")).shown
    0.2
    """
    told = report.recipe.get(SETTING)
    return None if told is None else Swept(told["field"], tuple(told["values"]), told["shown"])


def at_shown(report: Report) -> Report:
    """The report of one value alone, for all that a page says beside the sweep; any other report as it is."""
    found = swept(report)
    if found is None:
        return report

    def shown(context: Mapping[str, Any]) -> bool:
        return context.get(found.field, found.shown) == found.shown

    return replace(
        report,
        records=tuple(r for r in report.records if shown(r.measurement.context)),
        exhibits=tuple(e for e in report.exhibits if is_summary(e) or shown(e.exhibit.context)),
    )


def over_setting(findings: Findings) -> ExhibitRecord | None:
    """A row for each method, quantity and value of the sweep.

    >>> over_setting(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    found = swept(findings.report)
    if found is None:
        return None
    rows = [
        {
            "method": row.method,
            "quantity": quantity.key,
            "setting": value,
            "mean": row.value,
            "low": row.low,
            "high": row.high,
            "seeds": row.seeds,
        }
        for quantity in QUANTITIES
        for value in found.values
        for row in findings.rows(
            "mean", quantity.audit, quantity.name, **{**quantity.context, found.field: value}
        )
    ]
    return summary_exhibit(findings, AUDIT, OVER, rows, bars(findings, "Shaded"))
