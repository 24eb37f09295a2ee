"""What is asked of a study of a paper: where its results go, how many seeds, on what, and who is told."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearance.experiments.build import RunData
from clearance.experiments.grid import Listener, run_grid, silent
from clearance.experiments.papers import DEFAULT_DATASET
from clearance.experiments.provenance import report_of
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunFindings, RunPlan
from clearance.records import Report
from clearance.report import Card


@dataclass(frozen=True)
class StudyRequest:
    """What is asked of a study of a paper, and what most studies do with it.

    A study reads what concerns it: one with a dataset of its own looks at neither `dataset` nor `root`, and one that
    draws nothing not at `seeds`. `clearance.experiments.papers.paper_study` refuses what a study does not take.

    Args:
        out: Where ledger, report, pictures and runs are kept; asked again with the same, it goes on where it stood.
        seeds: How many seeds; None is what the study itself has. A verdict needs five.
        jobs: Processes at a time, each with one thread.
        listener: Told of events, as in :func:`clearance.experiments.grid.run_grid`.
        dataset: What the study is on.
        root: The folder that holds the dataset's files; nothing is ever downloaded.

    >>> StudyRequest(Path("out")).seeds_or(5), StudyRequest(Path("out"), seeds=3).seeds_or(5)
    (5, 3)
    """

    out: Path
    seeds: int | None = None
    jobs: int = 1
    listener: Listener = silent
    dataset: str = DEFAULT_DATASET
    root: str | None = None

    def seeds_or(self, own: int) -> int:
        """How many seeds: as many as were asked for, else the study's own number."""
        return own if self.seeds is None else self.seeds

    def command(self, start: str) -> str:
        """The command line that makes the ledger again.

        Args:
            start: The same without a number of seeds.

        >>> StudyRequest(Path("out"), seeds=3).command("clearance reproduce sato-2019 --only weakness")
        'clearance reproduce sato-2019 --only weakness --seeds 3'
        """
        return start if self.seeds is None else f"{start} --seeds {self.seeds}"

    def grid(self, plans: Sequence[RunPlan], data: RunData | Sequence[RunData]) -> list[RunFindings]:
        """Run these plans on their images, or each on its own, or read back what is finished."""
        return run_grid(plans, data, self.runs, self.jobs, self.listener)

    @property
    def runs(self) -> Path:
        """Where runs are kept."""
        return self.out / "runs"

    def paged(
        self,
        recipe: Recipe,
        findings: Iterable[RunFindings],
        command: str,
        conditions: Mapping[str, Any] | None = None,
    ) -> Report:
        """The report of what was found, kept as a page and as records.

        Args:
            recipe: What was run.
            findings: What was found.
            command: What the report says made it.
            conditions: What conditions of a study have otherwise than `recipe`, plain values by their names.
        """
        report = report_of(recipe, findings, command)
        if conditions is not None:
            report = dataclasses.replace(report, recipe={**report.recipe, "conditions": conditions})
        Card(report).save_folder(self.out)
        return report
