"""The full table of numbers: a line per quantity, a cell per method, grouped by audit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.report.audits import page_of, shown_unit, title
from clearance.report.findings import Findings
from clearance.report.names import NO_NETWORK, setting

DIRECTIONS = {
    "lower": "lower is better",
    "higher": "higher is better",
    "neither": "no better direction",
}
LONG = 24  # lines from which on a group is folded, a part for each quantity


@dataclass(frozen=True, slots=True)
class Cell:
    """A mean of one method, and its comparison with the first method where there is one."""

    mean: SummaryRow
    difference: SummaryRow | None


@dataclass(frozen=True, slots=True)
class QuantityRow:
    """One quantity: what it is, where measured, and a cell per method (None where not measured)."""

    title: str
    place: Markup
    samples: int | None
    unit: str
    direction: str
    n: Sequence[int]
    seeds: int
    cells: Sequence[Cell | None]

    @property
    def idle(self) -> bool:
        """Whether it counts mishaps and there were none."""
        return self.unit == "count" and all(cell is None or cell.mean.value == 0 for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks of rows that differ in the number of images alone; folded away under `title` if it has one."""

    title: str
    blocks: Sequence[Sequence[QuantityRow]]


@dataclass(frozen=True, slots=True)
class Group:
    """The quantities of one audit, in one part, or where they are many in one for each quantity.

    `reading` is a sentence on how to read them; `idle` names the counts that are zero everywhere, which would fill
    the table and say nothing.
    """

    title: str
    reading: str
    parts: Sequence[Part]
    idle: Sequence[str]


def ledger(findings: Findings) -> list[Group]:
    """Every mean of a dataset, with its comparison."""
    groups: dict[str, dict[object, dict[str, SummaryRow]]] = {}
    differences: dict[tuple[object, str], SummaryRow] = {}
    for row in findings.report.summary:
        if row.dataset != findings.dataset:
            continue
        quantity = (row.audit, row.name, tuple(sorted(row.context.items())))
        if row.kind == "mean":
            groups.setdefault(row.audit, {}).setdefault(quantity, {})[row.method] = row
        elif row.kind == "difference":
            differences[quantity, row.method] = row
    return [
        _group(audit, [_row(findings, means, differences, quantity) for quantity, means in found.items()])
        for audit, found in groups.items()
    ]


def _group(audit: str, rows: Sequence[QuantityRow]) -> Group:
    by_title: dict[str, list[QuantityRow]] = {}
    for row in rows:
        by_title.setdefault(row.title, []).append(row)
    idle = [name for name, alike in by_title.items() if all(row.idle for row in alike)]
    shown = {name: _blocks(alike) for name, alike in by_title.items() if name not in idle}
    if sum(len(by_title[name]) for name in shown) < LONG:
        parts = [Part("", [block for blocks in shown.values() for block in blocks])] if shown else []
    else:
        parts = [Part(name, blocks) for name, blocks in shown.items()]
    return Group(page_of(audit).title, page_of(audit).reading, parts, idle)


def _blocks(rows: Sequence[QuantityRow]) -> list[list[QuantityRow]]:
    blocks: dict[str, list[QuantityRow]] = {}
    for row in rows:
        blocks.setdefault(row.place, []).append(row)
    return list(blocks.values())


def _row(
    findings: Findings,
    means: Mapping[str, SummaryRow],
    differences: Mapping[tuple[object, str], SummaryRow],
    quantity: object,
) -> QuantityRow:
    first = next(iter(means.values()))
    unit = shown_unit(first.audit, first.name, first.unit)
    means = {method: replace(row, unit=unit) if unit != row.unit else row for method, row in means.items()}
    first = next(iter(means.values()))
    cells = [
        Cell(means[method], differences.get((quantity, method))) if method in means else None
        for method in findings.methods
    ]
    # the same for every method: shown once, compared with nothing
    if first.context.get("head") in NO_NETWORK:
        bare = replace(first, low=None, high=None, spread=None)
        cells = [Cell(bare, None), *(None for _ in findings.methods[1:])]
    samples = first.context.get("samples")
    return QuantityRow(
        title=title(first.audit, first.name),
        place=_place(first.context),
        samples=samples if isinstance(samples, int) else None,
        unit={"fraction": "%", "seconds": "s"}.get(first.unit, first.unit),
        direction=DIRECTIONS[first.better],
        n=sorted({row.n for row in means.values() if row.n is not None}),
        seeds=max(row.seeds for row in means.values()),
        cells=cells,
    )


def _place(context: Mapping[str, object]) -> Markup:
    """The settings of a quantity as words; the number of images has its own column."""
    return Markup(", ").join(setting(key, value) for key, value in context.items() if key != "samples")
