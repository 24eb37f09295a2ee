"""``clearance check``: fail if a model is worse than an earlier one, beyond a tolerance and beyond chance."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from clearance.cli._ending import FAILED
from clearance.cli._options import OptionalPath, OptionalText

UNMEASURED = 3


@dataclass(frozen=True)
class CheckCommand:
    """Compare an audit with an earlier one, and fail if a quantity got worse by more than its tolerance.

    The 95 % interval of the change is paired: over the same images if both audits store a number for each, otherwise
    over seeds. A quantity fails if its whole interval is beyond the tolerance, or as --inconclusive says. Status:
    0 passed, 1 failed, 2 usage, 3 not measured.

    Args:
        report: The newer audit: its folder, or its report.json.
        against: The older one.
        fail_if: A tolerance, for example "accuracy drops 1pt" or "flip_distance drops 10%"; may be given several
            times. Quantities: accuracy, error, accuracy[class=cat], accuracy[slice=site=A], flip_distance,
            overconfidence, or AUDIT.NAME[key=value,...] as in report.json.
        inconclusive: fail or pass: what becomes of a tolerance if the interval lies beyond it in part.
        method: The method to check, if a report has several.
        junit: A file for the results in JUnit's format.
        markdown: A file for the results as a table.
        quiet: Print nothing but errors.
    """

    report: Annotated[Path, tyro.conf.Positional]
    against: Path
    fail_if: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    inconclusive: Literal["fail", "pass"] = "pass"
    method: OptionalText = None
    junit: OptionalPath = None
    markdown: OptionalPath = None
    quiet: bool = False

    def run(self) -> None:
        """Compare, write the files, and exit with the status."""
        from clearance._files import write_bytes
        from clearance.cli._console import Console
        from clearance.cli._options import check_file
        from clearance.gate import GateStatus, Tolerance, check, junit, markdown
        from clearance.gate.formats import overall
        from clearance.records import load_report

        if not self.fail_if:
            raise ValueError('give at least one tolerance: --fail-if "accuracy drops 1pt".')
        for option, path in (("--junit", self.junit), ("--markdown", self.markdown)):
            if path is not None:
                check_file(option, path)
        tolerances = [Tolerance.parse(text) for text in self.fail_if]
        now, last = (load_report(path, exhibits=False) for path in (self.report, self.against))
        results = check(now, last, tolerances, self.method, inconclusive=self.inconclusive)
        for path, text in ((self.junit, junit), (self.markdown, markdown)):
            if path is not None:
                write_bytes(path, text(results).encode())
        if not self.quiet:
            console = Console()
            for result in results:
                console.print(str(result), soft_wrap=True)
        sys.exit(
            {GateStatus.PASS: 0, GateStatus.FAIL: FAILED, GateStatus.UNMEASURED: UNMEASURED}[overall(results)]
        )
