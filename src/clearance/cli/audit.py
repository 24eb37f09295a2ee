"""``clearance audit``: audit a saved run."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from clearance.cli._fields import OptionalCount, OptionalText


@dataclass(frozen=True)
class AuditCommand:
    """Audit the model of a saved run and write one page.

    Args:
        run_dir: The directory of a run that `clearance train` or `clearance compare` left.
        root: The folder that holds the dataset's files, if it has moved.
        audits: Names separated by commas, or all (default: those of the run).
        seed: Decides partial sets and first weights of fresh heads (default: the seed of the run).
        out: Where the page and its records are written.
    """

    run_dir: Annotated[Path, tyro.conf.Positional]
    root: OptionalText = None
    audits: OptionalText = None
    seed: OptionalCount = None
    out: Path = Path("clearance-audit")

    def run(self) -> None:
        """Audit."""
        from rich.console import Console

        from clearance.cli._options import split_names
        from clearance.cli._tables import print_table
        from clearance.experiments.audit import audited
        from clearance.experiments.audit_sources import named_sources
        from clearance.experiments.auditing import ready_audits
        from clearance.experiments.catalogue import named_audits
        from clearance.experiments.plan import RunPlan
        from clearance.experiments.saved import load_run

        console = Console()
        run = load_run(self.run_dir)
        names = named_audits(split_names(self.audits)) or run.recipe.audits
        plan = RunPlan(replace(run.recipe, audits=names), run.method, run.seed)
        audits = ready_audits(plan, self.run_dir.resolve().parent)
        seed = run.seed if self.seed is None else self.seed
        with console.status("auditing"):
            command = f"clearance audit {self.run_dir.name}"
            data, sources = run.data(self.root), named_sources(plan.recipe)
            card = audited(run.model, data, audits, seed, run.method, command, sources)
        page = card.save_folder(self.out)
        print_table(console, card)
        console.print(f"Report: {page}", highlight=False, soft_wrap=True)
