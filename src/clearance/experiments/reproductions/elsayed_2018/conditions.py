"""The same comparison under several conditions: run, told apart by a setting, judged, written as one ledger."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearance._files import write_bytes
from clearance.experiments.build import RunData
from clearance.experiments.compare import report_of
from clearance.experiments.grid import Listener, run_grid
from clearance.experiments.papers import paper_claims
from clearance.experiments.recipe import Recipe
from clearance.experiments.reproduce import without_data
from clearance.experiments.reproduction_ledger import Ledger, reproduce_command
from clearance.experiments.reproductions.elsayed_2018.protocol import PAPER
from clearance.experiments.run import RunFindings, RunPlan
from clearance.experiments.sweep import under
from clearance.records import Report, SummaryRow
from clearance.records.judgement import Judgement
from clearance.records.judging import judge
from clearance.report import Card
from clearance.report.kinds import draw
from clearance.report.numbers import THIN, printed
from clearance.report.svg import as_svg
from clearance.vocabulary import Exhibit, Scalar

FIGURE = "figure.svg"


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
    """

    title: str
    audit: str
    name: str
    setting: str
    context: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)
    as_accuracy: bool = True


@dataclass(frozen=True)
class StudyOf:
    """A study of the paper on one dataset.

    Args:
        name: Of the study.
        dataset: What it is run on.
        tables: What its ledger shows besides the verdicts; the first is also drawn.
    """

    name: str
    dataset: str
    tables: tuple[Table, ...]

    def command(self, seeds: int | None) -> str:
        """What makes it again."""
        return reproduce_command(PAPER, self.dataset, seeds, only=self.name)

    def without_data(self, recipe: Recipe, seeds: int | None, out: Path) -> Path:
        """The ledger that says that nothing was run."""
        return without_data(paper_claims(PAPER), recipe, self.command(seeds), out).ledger

    def written(self, recipe: Recipe, findings: Iterable[RunFindings], seeds: int | None, out: Path) -> Path:
        """Page, records, figure and ledger of what was found; the ledger's path."""
        report = report_of(recipe, findings, self.command(seeds))
        Card(report).save_folder(out)
        ledger = Ledger(paper_claims(PAPER), self.dataset, judged(report, self.name, self.dataset), report)
        path = ledger.save(out)
        text = [ledger.to_markdown(), *(table_text(report, table) for table in self.tables)]
        if (picture := figure(report, self.tables[0])) is not None:
            drawn = draw(picture)
            drawn.axes[0].set_ylabel("right on test images")
            write_bytes(out / FIGURE, str(as_svg(drawn, self.name, picture.caption)).encode())
            text.append(f"![{picture.caption}]({FIGURE})\n")
        write_bytes(path, "\n".join(text).encode())
        return path


def run_conditions(
    recipes: Mapping[Any, Recipe], setting: str, data: RunData, out: Path, jobs: int, listener: Listener
) -> list[RunFindings]:
    """Every method and seed under every condition, seed by seed, so that an interrupted study has whole seeds.

    Args:
        recipes: One for each value of the setting, of one dataset and equally many seeds.
        setting: What the value is called in the context of every number.
        data: The images, before what is drawn for each seed.
        out: Where runs are kept.
        jobs: Processes at a time.
        listener: Told of events.
    """
    seeds = next(iter(recipes.values())).seeds
    planned = [
        (value, RunPlan(recipe, method, seed))
        for seed in range(seeds)
        for value, recipe in recipes.items()
        for method in recipe.methods
    ]
    found = run_grid([plan for _, plan in planned], data, out / "runs", jobs, listener)
    return [under(one, {setting: value}) for (value, _), one in zip(planned, found, strict=True)]


def judged(report: Report, study: str, dataset: str, paper: str = PAPER) -> tuple[Judgement, ...]:
    """The claims of this study judged on its records, every other one "not run"."""
    claims = paper_claims(paper)
    mine = dataclasses.replace(claims, claims=tuple(c for c in claims.claims if c.study == study))
    found = {j.claim.id: j for j in judge(mine, report.records, dataset)}
    # on no records every other claim says by itself whether it is about another dataset, or not measured
    rest = {j.claim.id: j for j in judge(claims, [], dataset)}
    return tuple(found.get(claim.id, rest[claim.id]) for claim in claims.claims)


def table_text(report: Report, table: Table) -> str:
    """The table as Markdown; mean ± sd over seeds."""
    rows, values = _rows(report, table)
    head = ["", *(f"{table.setting} {_shown(value)}" for value in values)]
    lines = [head, ["---"] * len(head)]
    lines += [
        [method, *(_cell(rows.get((method, value)), table) for value in values)] for method in report.methods
    ]
    return f"## {table.title}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def figure(report: Report, table: Table) -> Exhibit | None:
    """The table as curves, a line for each method; None where nothing was measured."""
    rows, values = _rows(report, table)
    if not values:
        return None
    columns: dict[str, Sequence[Any]] = {table.setting: values}
    for method in report.methods:
        found = [rows.get((method, value)) for value in values]
        columns[method] = [None if row is None else _value(row, table) for row in found]
    return Exhibit(table.audit, table.name, "curve", columns, f"{table.title}, mean over seeds.")


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
    if row is None:
        return "–"
    spread = "" if row.spread is None else f" ± {printed(row.spread, row.unit)}"
    return f"{printed(_value(row, table), row.unit)}{spread}".replace(THIN, " ")


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
