"""A small table, a line per method, each gain with its cost in the last column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from clearance.records.row import SummaryRow
from clearance.report.findings import Findings
from clearance.report.names import method_name
from clearance.report.numbers import data, interval
from clearance.report.overview import overview

NONE = Markup('<span class="none">–</span>')
SIGNED = frozenset({"gap", "path_error_rise"})  # what may fall below zero; of other shares no interval does


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its name, which method's sign it bears (None for no method), and its cells."""

    name: str
    sign: int | None
    cells: Sequence[Markup]


@dataclass(frozen=True, slots=True)
class Compact:
    """A table: words above it, columns' names, lines, words below it, and the files of what is not a mean."""

    title: str | Markup
    columns: Sequence[str | Markup]
    lines: Sequence[Line]
    foot: str | Markup = ""
    files: Sequence[str] = ()


def number(value: float | None, unit: str, low: float | None = None, high: float | None = None) -> Markup:
    """A number with its interval below it; a dash where there is none.

    >>> number(0.5, "fraction").striptags().replace("\u202f", " ")
    '50.0 %'
    """
    if value is None:
        return NONE
    ends = interval(low, high, unit)
    return data(value, unit) + (Markup("<small>{}</small>").format(ends) if ends else Markup(""))


def mean(row: SummaryRow | None) -> Markup:
    """A mean over seeds as `number`.

    >>> str(mean(None)) == str(NONE)
    True
    """
    if row is None:
        return NONE
    low, high = row.low, row.high
    if row.unit == "fraction" and row.name not in SIGNED and low is not None and high is not None:
        low, high = max(0.0, low), min(1.0, high)
    return number(row.value, row.unit, low, high)


def by_method(
    findings: Findings,
    title: str | Markup,
    columns: Mapping[str | Markup, Mapping[str, Markup]],
    foot: str | Markup = "",
    files: Sequence[str] = (),
) -> Compact | None:
    """A table with a line for each method that has a cell, and what its training cost; None without a line.

    Args:
        findings: Gives the methods, and what they cost.
        title: Words above the table.
        columns: For each column, the cells by method.
        foot: Words below it.
        files: Where the numbers are that are no means of ``report.json``.
    """
    filled = {name: cells for name, cells in columns.items() if any(cell != NONE for cell in cells.values())}
    cost = _cost(findings)
    lines = [
        Line(
            method_name(method),
            index,
            [*(cells.get(method, NONE) for cells in filled.values()), *([cost[method]] if cost else [])],
        )
        for index, method in enumerate(findings.methods)
        if any(cells.get(method, NONE) != NONE for cells in filled.values())
    ]
    names = [*filled, *(["Training time"] if cost else [])]
    return Compact(title, names, lines, foot, files) if lines else None


def _cost(findings: Findings) -> dict[str, Markup]:
    """Training time by method: seconds of the first, a factor for the others; nothing for one alone."""
    lines = overview(findings)
    if len(lines) < 2 or all(line.time is None for line in lines):
        return {}
    return {line.method: data(line.time.value, line.time.unit) if line.time else NONE for line in lines}
