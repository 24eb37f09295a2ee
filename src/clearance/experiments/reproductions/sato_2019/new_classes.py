"""Whether FOCA's features help with classes that were left out of training: measured, claimed by nobody.

Several draws of three classes; per draw every method is trained on the other classes alone, and fresh heads
learn the three from 1, 5 and 20 images of each. A draw takes the place of a seed: methods are paired by it.
"""

import dataclasses
from pathlib import Path
from typing import Any

from clearance._files import write_bytes
from clearance.data import draw_classes
from clearance.experiments.build import build_data
from clearance.experiments.compare import report_of
from clearance.experiments.grid import Listener, run_grid
from clearance.experiments.papers import paper_recipe
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunFindings, RunPlan
from clearance.records import Report, SummaryRow
from clearance.report import Card
from clearance.report.numbers import THIN, printed

LEFT_OUT = 3
DRAWS = 5
METHODS = ("plain", "dropout", "batchnorm", "foca")
COMMAND = "clearance reproduce sato-2019 --only new-classes"
HEADS = ("retrained", "linear", "class mean, unit length", "nearest pixel")


def new_classes_recipe(draw: int) -> Recipe:
    """The digits recipe without the classes of a draw.

    >>> new_classes_recipe(0).left_out != new_classes_recipe(1).left_out
    True
    """
    start = paper_recipe("sato-2019", "digits")
    settings: dict[str, Any] = {"new_classes": {"per_class": [1, 5, 20], "repetitions": [50, 20, 10]}}
    return dataclasses.replace(
        start,
        left_out=draw_classes(10, LEFT_OUT, draw),
        audits=("accuracy", "new_classes"),
        audit_settings=settings,
        methods={name: start.methods[name] for name in METHODS},
    )


def run(out: Path, *, seeds: int | None, jobs: int, listener: Listener) -> Path:
    """Run the study and write its ledger; interrupted, it goes on where it stood.

    Args:
        out: Where ledger, report and runs are kept.
        seeds: Draws of classes, each with a seed of its own; 5 by default.
        jobs: Processes at a time.
        listener: Told of events, as in :func:`clearance.experiments.grid.run_grid`.
    """
    draws = DRAWS if seeds is None else seeds
    found: list[RunFindings] = []
    for draw in range(draws):
        recipe = new_classes_recipe(draw)
        plans = [RunPlan(recipe, name, draw) for name in recipe.methods]
        found += run_grid(plans, build_data(recipe), out / "runs", jobs, listener)
    report = report_of(dataclasses.replace(new_classes_recipe(0), seeds=draws), found, COMMAND)
    Card(report).save_folder(out)
    write_bytes(out / "ledger.md", ledger(report, draws).encode())
    return out / "ledger.md"


def ledger(report: Report, draws: int) -> str:
    """The table of errors, and the verdict of every method against plain training."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    left_out = "; ".join(", ".join(map(str, new_classes_recipe(draw).left_out)) for draw in range(draws))
    lines = [
        "# sato-2019: classes that the network has never seen",
        f"Made by `{report.command}`, {report.created}. Versions: {versions}.",
        f"Digits; left out of training: {left_out}. Test error on the left-out classes alone, mean over draws "
        "with the 95 % t interval; in brackets the paired verdict against plain training.",
        "\n".join(_table(report)),
    ]
    return "\n\n".join(lines) + "\n"


def _table(report: Report) -> list[str]:
    methods = report.methods
    rows = ["| head | images of a class | " + " | ".join(methods) + " |", "|---" * (2 + len(methods)) + "|"]
    sizes = sorted({row.context["per_class"] for row in report.summary if row.audit == "new_classes"})
    for head in HEADS:
        for size in sizes:
            cells = [_cell(report, method, head, size) for method in methods]
            if any(cells):
                rows.append(f"| {head} | {size} | " + " | ".join(cells) + " |")
    return rows


def _cell(report: Report, method: str, head: str, size: Any) -> str:
    found = {row.kind: row for row in report.summary if _fits(row, method, head, size)}
    if "mean" not in found:
        return ""
    mean = found["mean"]
    text = printed(mean.value, "fraction")
    if mean.low is not None and mean.high is not None:
        text += f" ({printed(mean.low, 'fraction')} to {printed(mean.high, 'fraction')})"
    if "difference" in found and head != "nearest pixel":
        text += f" [{found['difference'].verdict}]"
    return text.replace(THIN, " ")


def _fits(row: SummaryRow, method: str, head: str, size: Any) -> bool:
    return (row.audit, row.name, row.method) == ("new_classes", "error", method) and (
        row.context.get("head"),
        row.context.get("per_class"),
    ) == (head, size)
