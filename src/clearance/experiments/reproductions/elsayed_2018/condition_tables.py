"""What the studies of this paper show: methods under several conditions, as tables and drawn."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearance._files import write_bytes
from clearance.experiments.recipe import Recipe
from clearance.experiments.reproduce import data_if_there
from clearance.experiments.reproductions.cells import markdown_table, mean_and_spread
from clearance.experiments.reproductions.conditions import changed_settings, run_conditions
from clearance.experiments.reproductions.elsayed_2018.condition_figure import Panel, Scale, condition_figure
from clearance.experiments.reproductions.elsayed_2018.protocol import PAPER
from clearance.experiments.reproductions.judged_study import JudgedStudy
from clearance.experiments.run import RunFindings
from clearance.experiments.study_request import StudyRequest
from clearance.records import Report, SummaryRow
from clearance.report.svg import as_svg
from clearance.vocabulary import Scalar

FIGURE = "figure.svg"
CAPTION = "Mean and standard deviation over seeds or draws; beside each other stands what has one condition."


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


Sections = Callable[[Sequence[RunFindings]], Sequence[str]]


def compared_conditions(
    name: str,
    setting: str,
    tables: Sequence[Table],
    recipes: Mapping[Any, Recipe],
    request: StudyRequest,
    more: Sections = lambda _: (),
) -> Path:
    """Run every method under every condition, and write the ledger; its path.

    Args:
        name: Of the study.
        setting: What conditions differ in.
        tables: What the ledger shows besides the verdicts.
        recipes: One for each condition.
        request: What was asked for. Without the dataset's files the ledger says "not run: no data".
        more: Further sections, made of what was found.
    """
    start = next(iter(recipes.values()))
    study = JudgedStudy(PAPER, (name,), request.dataset)
    if (data := data_if_there(start)) is None:
        return study.without_data(start, request)
    found = run_conditions(recipes, setting, data, request)
    return write_tables(study, tables, start, found, request, more(found), changed_settings(recipes))


def write_tables(
    study: JudgedStudy,
    tables: Sequence[Table],
    recipe: Recipe,
    findings: Iterable[RunFindings],
    request: StudyRequest,
    more: Sequence[str] = (),
    conditions: Mapping[str, Any] | None = None,
) -> Path:
    """Page, records, figure and ledger of what was found; the ledger's path."""
    report = request.paged(recipe, findings, study.command(request.seeds), conditions)
    text = [table_text(report, table) for table in tables]
    if drawn := [panel for table in tables if (panel := panel_of(report, table)) is not None]:
        figure = condition_figure(drawn, "right on test images")
        name = study.names[0]
        write_bytes(request.out / FIGURE, str(as_svg(figure, name, CAPTION)).encode())
        text.append(f"![{CAPTION}]({FIGURE})\n\n{CAPTION}")
    return study.write_ledger(report, [*text, *more], request.out)


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
