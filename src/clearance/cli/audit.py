"""``clearance audit``: audit a saved run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


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
    root: str | None = None
    audits: str | None = None
    seed: int | None = None
    out: Path = Path("clearance-audit")

    def run(self) -> None:
        """Audit."""
        from rich.console import Console

        from clearance.cli._options import split_names
        from clearance.cli._tables import print_table
        from clearance.experiments.audit import audited
        from clearance.experiments.auditing import chosen_audits
        from clearance.experiments.catalogue import named_audits
        from clearance.experiments.saved import load_run

        console = Console()
        run = load_run(self.run_dir)
        names = named_audits(split_names(self.audits)) or run.recipe.audits
        audits = chosen_audits(names, run.recipe.audit_settings)
        seed = run.seed if self.seed is None else self.seed
        with console.status("auditing"):
            command = f"clearance audit {self.run_dir.name}"
            card = audited(run.model, run.data(self.root), audits, seed, run.method, command)
        page = card.save_folder(self.out)
        print_table(console, card)
        console.print(f"Report: {page}", highlight=False, soft_wrap=True)
