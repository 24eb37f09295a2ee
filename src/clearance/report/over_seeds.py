"""Numbers and curves of single runs, put together over seeds, for exhibits that a page draws."""

from collections.abc import Mapping, Sequence
from typing import Any

from clearance.records.derived import SummaryRow
from clearance.records.record import ExhibitRecord
from clearance.records.summary import summarise
from clearance.report.findings import Findings
from clearance.vocabulary import Exhibit

SUMMARY = "summary"  # the method of an exhibit that is about all methods


def values(findings: Findings, audit: str, name: str, **context: Any) -> dict[str, dict[int, list[float]]]:
    """Every number of a quantity by method and seed; what `context` leaves open gives several a seed."""
    found: dict[str, dict[int, list[float]]] = {}
    for record in findings.report.records:
        one = record.measurement
        if (record.dataset, one.audit, one.name) == (findings.dataset, audit, name) and all(
            one.context.get(key) == value for key, value in context.items()
        ):
            found.setdefault(record.method, {}).setdefault(record.seed, []).append(one.value)
    return found


def middle(numbers: Sequence[float], most: float | None = None) -> dict[str, Any]:
    """Mean, 95 % t interval (from 0 to `most`) and count of one number per seed.

    >>> middle([1.0, 2.0, 3.0])["low"]
    0.0
    """
    over = summarise(dict(enumerate(numbers)))
    low, high = over.low, over.high
    if low is not None:
        low = max(0.0, low)
    if high is not None and most is not None:
        high = min(most, high)
    return {"mean": over.mean, "low": low, "high": high, "seeds": over.seeds}


def with_interval(row: SummaryRow, **columns: Any) -> dict[str, Any]:
    """A row of an exhibit: the method, what else names it, and a mean with its interval and its seeds."""
    named = {"method": row.method, **columns}
    return {**named, "mean": row.value, "low": row.low, "high": row.high, "seeds": row.seeds}


def curves(
    records: Sequence[ExhibitRecord], x: str, y: str, methods: Sequence[str], most: float | None = None
) -> list[dict[str, Any]]:
    """Curves of single runs as one row per method and place: mean and interval over seeds.

    There is one exhibit per method and seed, with places in column `x` and numbers in `y`, where None is a gap.
    Methods keep their order; numbers lie between 0 and `most`.
    """
    at: dict[tuple[str, Any], list[float]] = {}
    for record in records:
        shown = record.exhibit.columns
        for place, value in zip(shown.get(x, ()), shown.get(y, ()), strict=False):
            if value is not None:
                at.setdefault((record.method, place), []).append(float(value))
    return [
        {"method": method, x: place, **middle(numbers, most)}
        for wanted in methods
        for (method, place), numbers in at.items()
        if method == wanted
    ]


def summary_exhibit(
    findings: Findings,
    audit: str,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    caption: str,
) -> ExhibitRecord | None:
    """Rows as a curve about all methods; None without rows."""
    if not rows:
        return None
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    return ExhibitRecord(findings.dataset, SUMMARY, None, Exhibit(audit, name, "curve", columns, caption))


def bars(findings: Findings, drawn: str = "Bars") -> str:
    """What the bars of a picture are; empty with one seed, without bars."""
    return f"{drawn}: 95 % interval over seeds." if findings.seeds > 1 else ""


def rows_of(record: ExhibitRecord) -> list[dict[str, Any]]:
    """An exhibit as rows.

    >>> shown = Exhibit("a", "b", "curve", {"x": [0, 1], "y": [2, 3]}, "")
    >>> rows_of(ExhibitRecord("digits", SUMMARY, None, shown))
    [{'x': 0, 'y': 2}, {'x': 1, 'y': 3}]
    """
    columns = record.exhibit.columns
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def stored(findings: Findings, audit: str, name: str) -> ExhibitRecord | None:
    """The summary exhibit of that name, if the report has it."""
    found = (record for record in findings.exhibits(audit, name) if is_summary(record))
    return next(found, None)


def is_summary(record: ExhibitRecord) -> bool:
    """Whether an exhibit is about all methods, put together over seeds."""
    return (record.method, record.seed) == (SUMMARY, None)
