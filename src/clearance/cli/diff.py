"""``clearance diff``: what changed between two audits of the same images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class DiffCommand:
    """Compare two audits of the same test images on one page: what changed, by how much, and which images flipped.

    Changes have 95 % intervals, paired over images. To fail a build, use `clearance check`.

    Args:
        last: The older audit: its folder, or its report.json.
        candidate: The newer one.
        out: The folder for index.html, with images of the data, and share.html, without.
        quiet: Print nothing but errors.
    """

    last: Annotated[Path, tyro.conf.Positional]
    candidate: Annotated[Path, tyro.conf.Positional]
    out: Path = Path("clearance-diff")
    quiet: bool = False

    def run(self) -> None:
        """Compare, write the pages, and print the findings."""
        from clearance._files import check_report_folder
        from clearance.cli._console import Console
        from clearance.experiments.diff import diff
        from clearance.records.store import shown
        from clearance.report.page import SHARED

        check_report_folder("out", self.out)
        console = Console(quiet=self.quiet)
        with shown(f"{self.last} or {self.candidate}"):
            found = diff(self.last, self.candidate)
            page, text = found.save_folder(self.out), found.text(console.width)
        console.print(f"\n{text}\n", soft_wrap=True)
        console.print(f"Report: {page}", soft_wrap=True)
        console.print(f"To share: {page.with_name(SHARED)} (without images of the data)", soft_wrap=True)
