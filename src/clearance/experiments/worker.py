"""One run in a process of its own: ``python -m clearance.experiments.worker`` reads a plan on standard input.

Progress goes to standard output, one JSON object a line; the findings stay in the run's directory.
"""

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import torch

from clearance.experiments.build import build_data
from clearance.experiments.recipe import from_tree
from clearance.experiments.run import RunPlan, run_method
from clearance.regimes import Progress

SECONDS_BETWEEN_REPORTS = 0.3


class Reporter:
    """Writes events, steps no more often than three times a second."""

    def __init__(self) -> None:
        self._last = 0.0

    def event(self, **values: Any) -> None:
        """One line for the parent."""
        sys.stdout.write(json.dumps(values) + "\n")
        sys.stdout.flush()

    def step(self, progress: Progress) -> None:
        """Where training stands."""
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN_REPORTS or progress.step == progress.steps:
            self._last = now
            self.event(event="step", step=progress.step, steps=progress.steps)


class Notes(logging.Handler):
    """Passes warnings on, for example that another process holds the run's directory."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        """One event a warning."""
        self._reporter.event(event="note", text=record.getMessage())


def main() -> None:
    """Run the plan on standard input."""
    torch.set_num_threads(1)  # results then do not depend on how many runs share the machine
    job = json.load(sys.stdin)
    recipe = from_tree(job["recipe"], "the plan")
    reporter = Reporter()
    logging.getLogger().addHandler(Notes(reporter))
    run_method(
        RunPlan(recipe, job["method"], job["seed"]),
        build_data(recipe),
        Path(job["directory"]),
        on_step=reporter.step,
        on_audit=lambda name: reporter.event(event="audit", name=name),
        own_process=True,
    )
    reporter.event(event="done")


if __name__ == "__main__":
    main()
