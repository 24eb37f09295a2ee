"""``clearance check``: fail if a model is worse than an earlier one, beyond a tolerance and beyond chance."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from clearance.cli._options import OptionalPath, OptionalText

FAILED, UNMEASURED = 1, 3


@dataclass(frozen=True)
class CheckCommand:
    """Compare an audit with an earlier one, and fail if a quantity got worse by more than its tolerance.

    The 95 % interval of the change is paired: over the same images if both audits store a number for each, otherwise
    over seeds. A quantity fails only if its whole interval is beyond the tolerance. Status: 0 pass, 1 fail,
    2 usage, 3 could not measure.

    Args:
        report: The newer audit: its folder, or its report.json.
        against: The older one.
        fail_if: A tolerance, for example "accuracy drops 1pt" or "flip_distance drops 10%"; may be given several
            times. Quantities: accuracy, error, flip_distance, overconfidence, or AUDIT.NAME[key=value,...] as in
            report.json.
        method: The method to check, if a report has several.
        junit: A file for the results in JUnit's format.
        markdown: A file for the results as a table.
        quiet: Print nothing but errors.
    """

    report: Annotated[Path, tyro.conf.Positional]
    against: Path
    fail_if: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    method: OptionalText = None
    junit: OptionalPath = None
    markdown: OptionalPath = None
    quiet: bool = False

    def run(self) -> None:
        """Compare, write the files, and exit with the status."""
        from clearance._files import write_bytes
        from clearance.cli._console import Console
        from clearance.cli._options import check_file
        from clearance.gate import Outcome, Tolerance, junit, markdown, rule
        from clearance.gate.formats import verdict
        from clearance.records import load_report

        if not self.fail_if:
            raise ValueError('give at least one tolerance: --fail-if "accuracy drops 1pt".')
        for option, path in (("--junit", self.junit), ("--markdown", self.markdown)):
            if path is not None:
                check_file(option, path)
        tolerances = [Tolerance.parse(text) for text in self.fail_if]
        now, last = (load_report(path, exhibits=False) for path in (self.report, self.against))
        rulings = rule(now, last, tolerances, self.method)
        for path, text in ((self.junit, junit), (self.markdown, markdown)):
            if path is not None:
                write_bytes(path, text(rulings).encode())
        if not self.quiet:
            console = Console()
            for ruling in rulings:
                console.print(str(ruling), soft_wrap=True)
        sys.exit({Outcome.PASS: 0, Outcome.FAIL: FAILED, Outcome.UNMEASURED: UNMEASURED}[verdict(rulings)])
