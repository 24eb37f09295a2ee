"""``clearance reproduce``: try every claim of a paper and write the ledger."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from clearance.cli._options import OptionalCount, OptionalPath, OptionalText

if TYPE_CHECKING:
    from rich.console import Console

    from clearance.experiments.recipe import Recipe
    from clearance.experiments.reproduce import Reproduction

FAILED = 1


@dataclass(frozen=True)
class ReproduceCommand:
    """Run a paper's recipe, judge each of its claims (holds, refuted, cannot tell, not run), write the ledger.

    Interrupted, the same command goes on where it stood. Without the dataset's files the ledger says
    "not run: no data" and the status is 0.

    Args:
        paper: A name from `clearance list`, for example sato-2019.
        dataset: One that the paper has a recipe for: digits, mnist, fashion-mnist, cifar10 or cifar100
            (default: digits).
        root: The folder that holds the dataset's files; nothing is ever downloaded.
        seeds: How many seeds (default: those of the recipe; a verdict needs 5).
        jobs: Runs at a time, each a process with one thread (default: one per core).
        out: Where ledger, report and runs are kept
            (default: clearance-PAPER/DATASET, or STUDY or STUDY-DATASET in it).
        only: A study of the paper to run instead, from `clearance list`; some take --dataset and --root.
        full_protocol: Print the recipe in full size, for a GPU, and stop: elsayed-2018 on mnist, wan-2018 on mnist and
            cifar100. `clearance compare --recipe FILE` runs it.
        dry_run: Print the plan and stop.
    """

    paper: Annotated[str, tyro.conf.Positional]
    dataset: OptionalText = None
    root: OptionalText = None
    seeds: OptionalCount = None
    jobs: OptionalCount = None
    out: OptionalPath = None
    only: OptionalText = None
    full_protocol: bool = False
    dry_run: bool = False

    def run(self) -> None:
        """Reproduce."""
        from rich.console import Console

        from clearance._checks import check_count
        from clearance._files import check_folder
        from clearance.experiments.engines import default_jobs

        console = Console()
        if self.full_protocol:
            self._print_full_protocol()
            return
        runs, name = self._runs_and_name()
        jobs = default_jobs() if self.jobs is None else self.jobs
        check_count("jobs", jobs)
        out = self.out or Path(f"clearance-{self.paper}") / name
        check_folder("out", out)
        if self.dry_run:
            self._print_plan(console, jobs, out)
            return
        from clearance.cli._progress import listening
        from clearance.experiments.reproduce import reproduce

        with listening(console, runs) as listener:
            found = reproduce(
                self.paper,
                self.dataset,
                root=self.root,
                seeds=self.seeds,
                jobs=jobs,
                out=out,
                only=self.only,
                listener=listener,
            )
        _print_result(console, found)
        if found.card is not None and not found.card.records:
            sys.exit(FAILED)

    def _runs_and_name(self) -> tuple[int | None, str]:
        """How many runs there will be, where that is known, and what of; wrong names are found here."""
        from clearance._checks import check_count
        from clearance.experiments.papers import DEFAULT_DATASET, paper_study

        if self.seeds is not None:
            check_count("seeds", self.seeds)
        if self.only is not None:
            study = paper_study(self.paper, self.only, self.dataset, self.root)
            return None, f"{self.only}-{self.dataset or DEFAULT_DATASET}" if study.datasets else self.only
        recipe = self._recipe()
        return len(recipe.methods) * recipe.seeds, recipe.dataset

    def _recipe(self) -> "Recipe":
        from clearance.experiments.papers import DEFAULT_DATASET, whole_recipe

        return whole_recipe(self.paper, self.dataset or DEFAULT_DATASET, self.root, self.seeds)

    def _print_full_protocol(self) -> None:
        import yaml

        from clearance.experiments.papers import full_recipe
        from clearance.experiments.recipe import to_tree

        if self.only is not None:
            raise ValueError(
                f"--full-protocol is of a paper, not of one study; got --only {self.only}. Drop it."
            )
        recipe = full_recipe(self.paper, self.dataset or "mnist", self.root, self.seeds)
        sys.stdout.write(yaml.safe_dump(to_tree(recipe), sort_keys=False))

    def _print_plan(self, console: "Console", jobs: int, out: Path) -> None:
        if self.only is not None:
            from clearance.experiments.studies import STUDIES

            summary = STUDIES[self.paper][self.only].summary
            console.print(f"{self.only}: {summary}; {jobs} at a time, into {out}", highlight=False)
            return
        from clearance.cli.compare import _print_plan
        from clearance.experiments.papers import paper_claims

        count = len(paper_claims(self.paper).claims)
        console.print(f"{count} claims of {self.paper}", highlight=False)
        _print_plan(console, self._recipe(), jobs, out)


def _print_result(console: "Console", found: "Reproduction") -> None:
    from rich.table import Table

    if found.judgements:
        table = Table("claim", "verdict", "", box=None, pad_edge=False)
        for judgement in found.judgements:
            said = ", ".join(part for part in (judgement.remark, judgement.reason) if part)
            table.add_row(judgement.claim.id, judgement.verdict, said)
        console.print(table, highlight=False)
    if not found.has_data:
        why = f" ({found.missing.rstrip('.')})" if found.missing else ""
        console.print(
            f"Nothing was run: no data{why}. The ledger says which command runs it.",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    console.print(f"Ledger: {found.ledger}", highlight=False, soft_wrap=True)
