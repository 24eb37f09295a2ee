"""The tables of a page: the first screen's, and small ones with a line per method, each gain with its cost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.records.record import SWEEP, ExhibitRecord
from clearance.records.store import table_file
from clearance.report.findings import FEW, Findings
from clearance.report.names import NO_NETWORK, PIXELS, head_name, method_name
from clearance.report.numbers import data, half_width, interval


@dataclass(frozen=True, slots=True)
class Overview:
    """One method in the first screen's table; what was not measured is None.

    `time` and `memory` are means (seconds, MiB) for the first method, and ratios to it for the others. `endings` counts
    the runs that did not finish: "1 diverged, 2 stopped".
    """

    method: str
    name: str
    own: SummaryRow | None
    few: SummaryRow | None
    time: SummaryRow | None
    memory: SummaryRow | None
    endings: str


def overview(findings: Findings) -> list[Overview]:
    """A line per method, in the report's order."""
    return [
        Overview(
            method=method,
            name=method_name(method),
            own=findings.own_error(method),
            few=findings.few_error(method) if findings.head else None,
            time=_cost(findings, method, "seconds"),
            memory=_cost(findings, method, "memory"),
            endings=_endings(findings, method),
        )
        for method in findings.methods
    ]


def stand_ins(findings: Findings, method: str) -> list[tuple[str, SummaryRow]]:
    """What the last layers were replaced with, in plain words, and the error from the fewest images.

    The nearest image comes last: it uses no network, and is what a network has to beat.
    """
    heads = [*findings.heads, PIXELS]
    found = [(head, findings.few_error(method, head)) for head in heads]
    return [(head_name(head), row) for head, row in found if row is not None]


def pixels_error(findings: Findings) -> SummaryRow | None:
    """Error of the nearest image, pixel by pixel, among the fewest images."""
    return findings.row("mean", FEW, "error", head=PIXELS, samples=findings.fewest)


def _endings(findings: Findings, method: str) -> str:
    swept = findings.report.recipe.get(SWEEP)
    end = "" if swept is None else f" {swept['shown']:g})"  # of a note on a run at the value that is shown
    mine = [note for note in findings.failures if note.method == method and note.status.endswith(end)]
    counts = Counter(note.outcome.value for note in mine)
    return ", ".join(f"{count} {ending}" for ending, count in counts.items())


def _cost(findings: Findings, method: str, name: str) -> SummaryRow | None:
    if method == findings.baseline:
        return findings.row("mean", "training", name, method=method)
    return findings.row("ratio", "training", name, method=method, against=findings.baseline)


NONE = Markup('<span class="none">–</span>')


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its name, which method's sign it bears (None for no method), and its cells."""

    name: str
    sign: int | None
    cells: Sequence[Markup]


@dataclass(frozen=True, slots=True)
class Compact:
    """A table: text above it, column names, lines, text below it, files of other numbers, what a line is.

    `fixed` says that its lines are not to be sorted.
    """

    title: str | Markup
    columns: Sequence[str | Markup]
    lines: Sequence[Line]
    foot: str | Markup = ""
    files: Sequence[str] = ()
    head: str = "Method"
    fixed: bool = False

    @property
    def plain(self) -> bool:
        """Whether no line is of a method, so that none needs a sign."""
        return all(line.sign is None for line in self.lines)


def number(value: float | None, unit: str, low: float | None = None, high: float | None = None) -> Markup:
    """A number with its interval below it; a dash without one.

    >>> number(0.5, "fraction").striptags().replace("\u202f", " ")
    '50.0 %'
    """
    if value is None:
        return NONE
    ends = interval(low, high, unit)
    shown = data(value, unit, half_width(low, high))
    return shown + (Markup("<small>{}</small>").format(ends) if ends else Markup(""))


def mean(row: SummaryRow | None, unit: str | None = None) -> Markup:
    """A mean over seeds as `number`, in its own unit or the given one.

    >>> str(mean(None)) == str(NONE)
    True
    """
    return NONE if row is None else number(row.value, row.unit if unit is None else unit, row.low, row.high)


def means(
    findings: Findings, audit: str, name: str, unit: str | None = None, **wanted: Any
) -> dict[str, Markup]:
    """The mean of each method as `mean`: a column of `by_method`."""
    return {row.method: mean(row, unit) for row in findings.rows("mean", audit, name, **wanted)}


def small_print(found: Mapping[str, SummaryRow | None]) -> Markup:
    """Further numbers below the one of a cell, each after its words."""
    return Markup("").join(
        Markup("<small>{} {}</small>").format(words, data(row.value, row.unit))
        for words, row in found.items()
        if row is not None
    )


def with_pixels(table: Compact, cells: Sequence[Markup]) -> Compact:
    """The table with a last line for the nearest image, which no network has touched."""
    blank = [Markup("")] * (len(table.columns) - len(cells))
    return replace(table, lines=[*table.lines, Line(NO_NETWORK[PIXELS], None, [*cells, *blank])])


def by_method(
    findings: Findings,
    title: str | Markup,
    columns: Mapping[str | Markup, Mapping[str, Markup]],
    foot: str | Markup = "",
    files: Sequence[str] = (),
) -> Compact | None:
    """A table with a line for each method that has a cell, and what its training cost; None without a line.

    `title` stands above the table, `foot` below it; `columns` have the cells by method, `files` have the numbers that
    are not means in ``report.json``.
    """
    filled = {name: cells for name, cells in columns.items() if any(cell != NONE for cell in cells.values())}
    costs = _costs(findings)
    lines = [
        Line(
            method_name(method),
            index,
            [*(cells.get(method, NONE) for cells in filled.values()), *([costs[method]] if costs else [])],
        )
        for index, method in enumerate(findings.methods)
        if any(cells.get(method, NONE) != NONE for cells in filled.values())
    ]
    names = [*filled, *([cost_title(overview(findings))] if costs else [])]
    return Compact(title, names, lines, foot, files, findings.thing.capitalize()) if lines else None


def of_exhibit(record: ExhibitRecord, title: str, head: str, most: int, foot: str = "") -> Compact:
    """The first `most` lines of a table that is kept as an exhibit, each named by its first column."""
    _, *names = record.exhibit.columns
    rows = list(zip(*record.exhibit.columns.values(), strict=True))
    lines = [Line(str(name), None, [_cell(cell) for cell in cells]) for name, *cells in rows[:most]]
    cut = f"The first {most} of {len(rows)}." if len(rows) > most else ""
    return Compact(title, names, lines, f"{foot} {cut}".strip(), [table_file(record)], head)


def _cell(value: object) -> Markup:
    if isinstance(value, float):
        return data(value, "fraction")
    return data(value, "count") if isinstance(value, int) else Markup("{}").format(value)


def cost_title(lines: Sequence[Overview]) -> str:
    """The head of the column of `cost`; memory is named where any was measured.

    >>> cost_title([])
    'Training time'
    """
    return "Training time" + (" and memory" if any(line.memory for line in lines) else "")


def cost(line: Overview) -> Markup:
    """Training time, and below it the memory that training adds; of all but the first method as factors.

    >>> str(cost(Overview("a", "a", None, None, None, None, 0))) == str(NONE)
    True
    """
    time = NONE
    if line.time is not None:
        time = data(line.time.value, line.time.unit, half_width(line.time.low, line.time.high))
    if line.memory is None:
        return time
    return time + Markup("<small>memory {}</small>").format(
        data(line.memory.value, line.memory.unit, half_width(line.memory.low, line.memory.high))
    )


def _costs(findings: Findings) -> dict[str, Markup]:
    """`cost` by method; empty for a single method, which cannot be compared."""
    lines = overview(findings)
    if len(lines) < 2 or all(line.time is None for line in lines):
        return {}
    return {line.method: cost(line) for line in lines}
