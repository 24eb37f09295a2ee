"""Many runs side by side, a process and a thread each; a run that fails is recorded, the others go on."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from clearance.experiments.build import RunData
from clearance.experiments.plan import RunPlan, sources_of
from clearance.experiments.recipe import Recipe, to_tree
from clearance.experiments.run import RunFindings, failed, kept_findings


class Piece(Protocol):
    """What a listener is told of: a run of a grid, or another piece of a study."""

    @property
    def folder(self) -> str:
        """What it is known by; no other has the same."""

    @property
    def title(self) -> str:
        """What people who wait for it are told."""


Listener = Callable[[Piece, Mapping[str, Any]], object]


def silent(piece: Piece, event: Mapping[str, Any]) -> None:
    """A listener that hears nothing."""


def plans_of(recipe: Recipe) -> list[RunPlan]:
    """Every run of a recipe, seed by seed: all methods of a seed are one comparison."""
    return [RunPlan(recipe, name, seed) for seed in range(recipe.seeds) for name in recipe.methods]


def run_grid(
    plans: Sequence[RunPlan],
    data: RunData | Sequence[RunData],
    directory: Path,
    jobs: int,
    listener: Listener,
) -> list[RunFindings]:
    """Run every plan, `jobs` at a time; what is finished in `directory` is read back.

    Networks that audits make images on (``source`` in the recipe) are trained before, without audits of their own.

    Args:
        plans: What to run.
        data: Their images, or those of each plan; only used to recognise finished runs, each process reads its own.
        directory: Where runs are kept.
        jobs: Processes at a time, at least 1.
        listener: Told of events, ``{"event": KIND, ...}`` with KIND one of start, step, audit, note, done,
            failed, kept.

    Returns:
        What each plan left behind, in their order; nothing of the sources.

    On KeyboardInterrupt every process is ended; called again, the grid goes on where they stood.
    """
    crew = _Crew(directory, listener)
    images = [data] * len(plans) if isinstance(data, RunData) else data
    needed = {
        run.folder: (run, one) for plan, one in zip(plans, images, strict=True) for run in sources_of([plan])
    }
    with ThreadPoolExecutor(jobs) as pool:
        try:
            list(pool.map(lambda source: crew.run(*source), needed.values()))
            return list(pool.map(crew.run, plans, images))
        except BaseException:
            crew.end()
            raise


class _Crew:
    """The processes at work."""

    def __init__(self, directory: Path, listener: Listener) -> None:
        self.directory, self.listener = directory, listener
        self.processes: set[subprocess.Popen[str]] = set()
        self.lock = threading.Lock()
        self.ended = False

    def run(self, plan: RunPlan, data: RunData) -> RunFindings:
        if (kept := kept_findings(plan, data, self.directory)) is not None:
            self.listener(plan, {"event": "kept"})
            return kept
        with self.lock:
            if self.ended:
                return failed(plan, "interrupted")
            process = _start(plan, self.directory)
            self.processes.add(process)
        self.listener(plan, {"event": "start"})
        complaint = self._follow(plan, process)
        with self.lock:
            self.processes.discard(process)
        found = kept_findings(plan, data, self.directory) if process.returncode == 0 else None
        if found is None:
            # reports are passed on: no folder of this machine
            reason = _reason(process.returncode, complaint).replace(f"{self.directory}{os.sep}", "")
            if complaint:
                log = self.directory / f"{plan.folder}.log"
                log.parent.mkdir(parents=True, exist_ok=True)
                log.write_text(complaint, "utf-8")
            self.listener(plan, {"event": "failed", "reason": reason})
            return failed(plan, reason)
        self.listener(plan, {"event": "done", "status": found.note.status if found.note else ""})
        return found

    def _follow(self, plan: RunPlan, process: "subprocess.Popen[str]") -> str:
        """Pass events on until the process ends; what it wrote to standard error."""
        assert process.stdout is not None
        assert process.stderr is not None
        complaints: list[str] = []
        errors = process.stderr
        reader = threading.Thread(target=lambda: complaints.append(errors.read()), daemon=True)
        reader.start()
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] in ("step", "audit", "note"):
                self.listener(plan, event)
        process.wait()
        reader.join()
        errors.close()
        process.stdout.close()
        return "".join(complaints)

    def end(self) -> None:
        with self.lock:
            self.ended = True
            for process in self.processes:
                process.terminate()


def _start(plan: RunPlan, directory: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-m", "clearance.experiments.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # PYTHONSAFEPATH: a file in the user's folder must not take the place of a library
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"},
        start_new_session=True,  # Ctrl-C reaches the parent alone, which ends its processes itself
    )
    assert process.stdin is not None
    job = {
        "recipe": to_tree(plan.recipe),
        "method": plan.method,
        "seed": plan.seed,
        "directory": str(directory),
    }
    with contextlib.suppress(BrokenPipeError):  # it died at once; its exit code and complaint tell why
        process.stdin.write(json.dumps(job))
        process.stdin.close()
    return process


def _reason(code: int, complaint: str) -> str:
    if code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    lines = [line for line in complaint.strip().splitlines() if line.strip()]
    return lines[-1] if lines else f"the process ended with code {code}"
