"""``clearance report``: build the page again from stored records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class ReportCommand:
    """Build the page again from a folder's report.json and exhibits, without training or measuring.

    Args:
        folder: A folder that `clearance compare` or `clearance audit` wrote.
    """

    folder: Annotated[Path, tyro.conf.Positional] = Path("clearance-report")

    def run(self) -> None:
        """Rebuild."""
        from clearance.cli._console import Console
        from clearance.records import load_report
        from clearance.records.store import shown
        from clearance.report import Card
        from clearance.report.terminal import first_text

        console = Console()
        card = Card(load_report(self.folder))
        with shown(str(self.folder)):
            page, text = card.save_folder(self.folder), first_text(card.report, console.width)
        console.print(f"\n{text}\n", soft_wrap=True)
        console.print(f"Report: {page}", soft_wrap=True)
