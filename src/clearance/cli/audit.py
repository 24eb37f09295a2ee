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
        audits: Names separated by commas (default: all).
        seed: Decides partial sets and first weights of fresh heads.
        out: Where the page and its records are written.
    """

    run_dir: Annotated[Path, tyro.conf.Positional]
    root: str | None = None
    audits: str | None = None
    seed: int = 0
    out: Path = Path("clearance-audit")

    def run(self) -> None:
        """Audit."""
        from rich.console import Console

        from clearance.cli._options import split_names
        from clearance.cli._tables import print_table
        from clearance.experiments.audit import audit
        from clearance.experiments.saved import load_run

        console = Console()
        run = load_run(self.run_dir)
        data = run.data(self.root)
        with console.status("auditing"):
            card = audit(
                run.model,
                train=data.train,
                test=data.test,
                audits=split_names(self.audits) or None,
                seed=self.seed,
                name=run.method,
            )
        page = card.save_folder(self.out)
        print_table(console, card)
        console.print(f"Report: {page}", highlight=False, soft_wrap=True)
