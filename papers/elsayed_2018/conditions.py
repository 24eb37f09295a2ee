"""What the studies of this paper show: methods under several conditions, as tables and drawn."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from clearance.research import (
    GRID,
    INK,
    Recipe,
    Report,
    RunFindings,
    Scalar,
    SummaryRow,
    as_svg,
    markdown_table,
    marker,
    plain_number,
    series,
    style_axes,
    write_bytes,
)
from papers.elsayed_2018.protocol import PAPER
from papers.engine.ledger import JudgedStudy, mean_and_spread
from papers.engine.study import StudyRequest, run_conditions

# The figures of this paper's studies: a panel for each table, methods over conditions with their spread.

COLUMNS = 3
WIDTH, HEIGHT = 3.6, 3.1  # of a panel, inches
ROOM = 0.9  # for the names below, inches
BESIDE = 0.25  # of the way to the next condition is filled by the methods' marks next to each other
APART = 0.6  # where no line joins them
Scale = Literal["linear", "log", "apart"]
Point = tuple[float, float | None]
BASELINE: Literal["solid"] = "solid"  # the first method, which the others are compared with
STYLES: tuple[Literal["dashed", "dotted", "dashdot"], ...] = ("dashed", "dotted", "dashdot")


@dataclass(frozen=True)
class Panel:
    """One drawing of the figure.

    Args:
        title: What stands above it.
        label: Of the axis along which conditions stand.
        scale: ``"linear"``, ``"log"``, or ``"apart"`` for conditions between which no line means anything.
        points: By method and condition: the mean, a fraction, and its spread over seeds.
    """

    title: str
    label: str
    scale: Scale
    points: Mapping[str, Mapping[Any, Point]]

    @property
    def conditions(self) -> list[Any]:
        """All that some method was measured under, ascending."""
        return sorted({value for points in self.points.values() for value in points})


def condition_figure(panels: Sequence[Panel], height: str) -> Figure:
    """Panels side by side, with one axis of height and one set of names.

    Args:
        panels: At least one; all have the same methods.
        height: The measured quantity.
    """
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    size = (max(WIDTH * columns, 2 * WIDTH), HEIGHT * rows + ROOM)
    figure = Figure(figsize=size, layout="constrained")
    cells = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axes, panel in zip(cells.flat, panels, strict=False):
        _draw(axes, panel)
    for axes in list(cells.flat)[len(panels) :]:
        axes.set_visible(False)
    for row in cells:
        row[0].set_ylabel(height, color=INK)
    cells[0][0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    names = cells[0][0].get_legend_handles_labels()
    figure.legend(
        *names, loc="outside lower center", ncols=4, frameon=False, fontsize=9.5, labelcolor=INK, handlelength=2.6
    )  # fmt: skip
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    style_axes(axes)
    places = _places(panel)
    for index, (method, points) in enumerate(panel.points.items()):
        there = [value for value in panel.conditions if value in points]
        x = [places[value][index] for value in there]
        axes.errorbar(
            x, [points[value][0] for value in there], yerr=[points[value][1] or 0.0 for value in there],
            color=series(index), marker=marker(index), markersize=4, linewidth=1.1, elinewidth=0.8,
            linestyle=_style(index, panel.scale), label=method,
        )  # fmt: skip
    axes.set_title(panel.title, fontsize=10, color=INK)
    axes.set_xlabel(panel.label, color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    if panel.scale == "log":
        axes.set_xscale("log")
    if panel.scale != "linear":
        middles = [float(np.median(places[value])) for value in panel.conditions]
        axes.set_xticks(middles, [plain_number(value) for value in panel.conditions])
        axes.xaxis.set_minor_locator(NullLocator())


def _style(index: int, scale: Scale) -> str:
    if scale == "apart":
        return "none"
    return STYLES[(index - 1) % len(STYLES)] if index else BASELINE


def _places(panel: Panel) -> dict[Any, list[float]]:
    """The place of every method along the axis, by condition: next to each other, so that none hides another."""
    values, count = panel.conditions, len(panel.points)
    middles = np.array([float(value) for value in values])
    if panel.scale == "log":
        middles = np.log(middles)
    elif panel.scale == "apart":
        middles = np.arange(len(values), dtype=float)
    nearest = float(np.diff(middles).min()) if len(values) > 1 else 1.0
    filled = APART if panel.scale == "apart" else BESIDE
    shifts = filled * nearest * (np.arange(count) - (count - 1) / 2) / max(count, 1)
    found = middles[:, None] + shifts
    found = np.exp(found) if panel.scale == "log" else found
    return {value: row.tolist() for value, row in zip(values, found, strict=True)}


FIGURE = "figure.svg"
CAPTION = "Mean and standard deviation over seeds or draws; panels side by side share one condition."


@dataclass(frozen=True)
class Table:
    """A table of the ledger: methods down, conditions across.

    Args:
        title: What it shows.
        audit: Name of the audit.
        name: Name of the measurement.
        setting: The setting that conditions differ in.
        context: Further settings that pick the measurement.
        as_accuracy: Whether an error is shown as what is right, as the paper does.
        panel: What stands above its drawing; nothing is drawn without.
        label: Of the axis of conditions there.
        scale: Of that axis.
    """

    title: str
    audit: str
    name: str
    setting: str
    context: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)
    as_accuracy: bool = True
    panel: str = ""
    label: str = ""
    scale: Scale = "linear"


def compared_conditions(
    name: str,
    setting: str,
    tables: Sequence[Table],
    recipes: Mapping[Any, Recipe],
    request: StudyRequest,
    also: Callable[[RunFindings], RunFindings] = lambda run: run,
) -> Path:
    """Run every method under every condition, and write the ledger; its path.

    Args:
        name: Of the study.
        setting: What conditions differ in.
        tables: The tables of the ledger in addition to the verdicts.
        recipes: One for each condition.
        request: What was asked for. Without the dataset's files the ledger says "not run: no data".
        also: Adds measurements to what a run left behind.
    """
    start = next(iter(recipes.values()))
    study = JudgedStudy(PAPER, (name,), request.dataset)
    data = study.data(start, request)
    found = [also(run) for run in run_conditions(recipes, setting, data, request)]
    return write_tables(study, tables, start, found, request, recipes)


def write_tables(
    study: JudgedStudy,
    tables: Sequence[Table],
    recipe: Recipe,
    findings: Iterable[RunFindings],
    request: StudyRequest,
    conditions: Mapping[Any, Recipe] | None = None,
) -> Path:
    """Page, records, figure and ledger of what was found; the ledger's path."""
    report = request.paged(recipe, findings, study.command(request.seeds), conditions)
    text = [table_text(report, table) for table in tables]
    if drawn := [panel for table in tables if (panel := panel_of(report, table)) is not None]:
        figure = condition_figure(drawn, "right on test images")
        name = study.names[0]
        write_bytes(request.out / FIGURE, str(as_svg(figure, name, CAPTION)).encode())
        text.append(f"![{CAPTION}]({FIGURE})\n\n{CAPTION}")
    return study.write_ledger(report, text, request.out)


def table_text(report: Report, table: Table) -> str:
    """The table as Markdown; mean ± sd over seeds."""
    rows, values = _rows(report, table)
    lines = [["", *(f"{table.setting} {_shown(value)}" for value in values)]]
    lines += [
        [method, *(_cell(rows.get((method, value)), table) for value in values)] for method in report.methods
    ]
    return f"## {table.title}\n\n{markdown_table(lines)}"


def panel_of(report: Report, table: Table) -> Panel | None:
    """The table as a drawing; None where it is not to be drawn, or nothing was measured."""
    rows, values = _rows(report, table)
    if not table.panel or not values:
        return None
    points = {
        method: {
            value: (_value(row, table), row.spread)
            for value in values
            if (row := rows.get((method, value))) is not None
        }
        for method in report.methods
    }
    return Panel(table.panel, table.label, table.scale, points)


def _rows(report: Report, table: Table) -> tuple[dict[tuple[str, Any], SummaryRow], list[Any]]:
    rows = {
        (row.method, row.context[table.setting]): row
        for row in report.summary
        if (row.kind, row.audit, row.name) == ("mean", table.audit, table.name)
        and table.setting in row.context
        and all(row.context.get(key) == value for key, value in table.context.items())
    }
    return rows, sorted({value for _, value in rows})


def _value(row: SummaryRow, table: Table) -> float:
    return 1 - row.value if table.as_accuracy else row.value


def _cell(row: SummaryRow | None, table: Table) -> str:
    return "–" if row is None else mean_and_spread(_value(row, table), row.spread, row.unit)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
