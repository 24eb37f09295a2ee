"""Many runs, one after the other or in parallel; a failed run is recorded, and the others continue."""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol

from clearance.experiments.build import RunData, build_data
from clearance.experiments.engines import Processes, Task, TaskError, report
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunFindings, RunPlan, failed, kept_findings, run_method, sources_of
from clearance.training.fit import Progress

SECONDS_BETWEEN_REPORTS = 0.3


class Piece(Protocol):
    """The subject of an event: a run of a grid, or another part of a study."""

    @property
    def folder(self) -> str:
        """Its unique name."""

    @property
    def title(self) -> str:
        """Its name in progress output."""


Listener = Callable[[Piece, Mapping[str, Any]], object]
Engine = Executor | int | None
"""An Executor, a number of local processes, or None for this process."""


Results = Mapping[int, RunFindings]
"""Findings by the place of their plan."""


def silent(piece: Piece, event: Mapping[str, Any]) -> None:
    """A listener that ignores all events."""


def ignore_results(results: Results) -> None:
    """Ignores all results."""


def plans_of(recipe: Recipe) -> list[RunPlan]:
    """Every run of a recipe, seed by seed: all methods of a seed are one comparison."""
    return [RunPlan(recipe, name, seed) for seed in range(recipe.seeds) for name in recipe.methods]


def run_grid(
    plans: Sequence[RunPlan],
    data: RunData | Sequence[RunData],
    directory: Path | None,
    engine: Engine,
    listener: Listener = silent,
    *,
    send_data: bool = False,
    on_result: Callable[[Results], object] = ignore_results,
) -> list[RunFindings]:
    """Run every plan; runs that are finished in `directory` are read back.

    Networks that audits make images on (``source`` in the recipe) are trained first, without audits.

    Args:
        plans: The runs.
        data: The images of all plans, or of each plan.
        directory: The folder for runs; None stores no runs.
        engine: Where they run. In this process an exception ends the grid, elsewhere it is recorded as a failure.
        listener: Called with events, ``{"event": KIND, ...}`` with KIND one of start, step, audit, note, done,
            failed, kept.
        send_data: Whether an engine gets the images with each plan; otherwise each process loads them from the recipe.
        on_result: Called after each run that ends, in the caller's thread, with the findings so far.

    Returns:
        The findings of each plan, in order, without those of the sources.

    On KeyboardInterrupt every local process is ended; called again, the grid resumes.
    """
    images = [data] * len(plans) if isinstance(data, RunData) else data
    needed = {
        run.folder: (run, one) for plan, one in zip(plans, images, strict=True) for run in sources_of([plan])
    }
    pairs = (list(needed.values()), list(zip(plans, images, strict=True)))
    if engine is None:
        for plan, one in pairs[0]:
            _here(plan, one, directory, listener)
        results: dict[int, RunFindings] = {}
        for place, (plan, one) in enumerate(pairs[1]):
            results[place] = _here(plan, one, directory, listener)
            on_result(results)
        return list(results.values())
    with Processes(engine) if isinstance(engine, int) else nullcontext(engine) as processes:
        _elsewhere(pairs[0], directory, processes, listener, ignore_results, send_data=send_data)
        return _elsewhere(pairs[1], directory, processes, listener, on_result, send_data=send_data)


def _here(plan: RunPlan, data: RunData, directory: Path | None, listener: Listener) -> RunFindings:
    listener(plan, {"event": "start"})
    found = run_method(
        plan,
        data,
        directory,
        on_step=_Steps(lambda **event: listener(plan, event)),
        on_audit=lambda name: listener(plan, {"event": "audit", "name": name}),
    )
    listener(plan, {"event": "done", "status": found.note.status if found.note else ""})
    return found


def _elsewhere(
    planned: Sequence[tuple[RunPlan, RunData]],
    directory: Path | None,
    engine: Executor,
    listener: Listener,
    on_result: Callable[[Results], object],
    *,
    send_data: bool,
) -> list[RunFindings]:
    tasks: dict[Future[Any], int] = {}
    results: dict[int, RunFindings] = {}
    for place, (plan, data) in enumerate(planned):
        try:
            kept = None if directory is None else kept_findings(plan, data, directory)
        except ValueError as error:  # its files are damaged
            results[place] = _failed(plan, str(error), directory, listener)
            continue
        if kept is not None:
            listener(plan, {"event": "kept"})
            results[place] = kept
            continue
        task = engine.submit(run_task, plan, data if send_data else None, directory)
        if isinstance(task, Task):
            task.listen(lambda event, plan=plan: listener(plan, event))  # type: ignore[misc]
        tasks[task] = place
    for task in as_completed(tasks):
        plan, data = planned[tasks[task]]
        results[tasks[task]] = _result(task, plan, data, directory, listener)
        on_result(results)
    return [results[place] for place in range(len(planned))]


def _result(
    task: Future[Any], plan: RunPlan, data: RunData, directory: Path | None, listener: Listener
) -> RunFindings:
    """A task's findings, as stored in its directory; a failure if it raised."""
    error = task.exception()
    if error is None:
        found: RunFindings = task.result()
        if directory is not None:
            with suppress(ValueError):  # what the task returned is as good
                found = kept_findings(plan, data, directory) or found  # the same, unless an audit failed
        listener(plan, {"event": "done", "status": found.note.status if found.note else ""})
        return found
    reason = str(error) if isinstance(error, TaskError) else f"{type(error).__name__}: {error}"
    if directory is not None and isinstance(error, TaskError) and error.complaint:
        log = directory / f"{plan.folder}.log"
        with suppress(OSError):  # a full disk must not end the healthy runs
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(error.complaint, "utf-8")
    return _failed(plan, reason, directory, listener)


def _failed(plan: RunPlan, reason: str, directory: Path | None, listener: Listener) -> RunFindings:
    if directory is not None:  # reports are passed on, without folders of this machine
        reason = reason.replace(f"{directory}{os.sep}", "")
    listener(plan, {"event": "failed", "reason": reason})
    return failed(plan, reason)


def run_task(plan: RunPlan, data: RunData | None, directory: Path | None) -> RunFindings:
    """Run a plan in a process that does nothing else.

    Args:
        plan: The run.
        data: Its images; None loads them from the recipe.
        directory: The folder for runs.
    """
    report(event="start")
    notes = _Notes()
    logging.getLogger().addHandler(notes)
    try:
        return run_method(
            plan,
            build_data(plan.recipe) if data is None else data,
            directory,
            on_step=_Steps(report),
            on_audit=lambda name: report(event="audit", name=name),
            own_process=True,
        )
    finally:
        logging.getLogger().removeHandler(notes)


class _Steps:
    """Reports the progress of training, at most about three times a second."""

    def __init__(self, send: Callable[..., object]) -> None:
        self._send, self._last = send, 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN_REPORTS or progress.step == progress.steps:
            self._last = now
            self._send(event="step", step=progress.step, steps=progress.steps)


class _Notes(logging.Handler):
    """Passes warnings on, for example that another process holds the run's directory."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """One event for each warning."""
        report(event="note", text=record.getMessage())
