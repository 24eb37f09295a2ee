"""Many runs, one after the other or in parallel; a failed run is recorded, and the others continue.

A grid and its runs on other machines speak through the folder for runs. While it works, the grid has a folder of its
own there, ``.grid-...``, in which each run keeps one small file that says how far it is. If that folder is gone, the
grid was interrupted, and its runs stop.
"""

import dataclasses
import json
import logging
import os
import queue
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock

from clearance.experiments.build import RunData, build_data
from clearance.experiments.engines import (
    ONE_TASK,
    SUBMISSIONS,
    LostError,
    Processes,
    Task,
    TaskError,
    check_engine,
    is_local_process,
    on_processes,
    one_thread,
    report,
)
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunFindings, RunPlan, failed, kept_findings, run_method, sources_of
from clearance.records.shelf import Shelf, ShelvedColumns, ShelvedRecords
from clearance.runs.remote import Attempt, LeaseLostError, RemoteRuns
from clearance.training.fit import Progress

BOARD = ".grid-"
SECONDS_BETWEEN_REPORTS = 0.3  # to a parent on the same machine
SECONDS_BETWEEN_FILES = 1.0  # through a folder, which may be on a network


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
"""Findings by the place of their plan, in the order in which they came."""


def silent(*told: object) -> None:
    """A listener that ignores all it is told."""


def plans_of(recipe: Recipe) -> list[RunPlan]:
    """Every run of a recipe, seed by seed: all methods of a seed are one comparison."""
    return [RunPlan(recipe, name, seed) for seed in range(recipe.seeds) for name in recipe.methods]


def run_grid(
    plans: Sequence[RunPlan],
    data: RunData | Sequence[RunData],
    directory: Path | RemoteRuns | None,
    engine: Engine,
    listener: Listener = silent,
    *,
    send_data: bool = False,
    on_result: Callable[[Results], object] = silent,
) -> list[RunFindings]:
    """Run every plan; runs that are finished in `directory` are read back.

    Networks that audits make images on (``source`` in the recipe) are trained first, without audits.

    Args:
        plans: The runs.
        data: The images of all plans, or of each plan.
        directory: The folder for runs, or their address; None stores no runs.
        engine: Where they run. An exception is recorded as a failure; in this process a ValueError is raised, and so is
            any exception of a method without a finished run. The workers of an Executor on other machines must see
            `directory` and the images' files under the same paths.
        listener: Called with events, ``{"event": KIND, ...}`` with KIND one of start, step, audit, note, done,
            failed, kept.
        send_data: Whether an engine gets the images with each plan; otherwise each process loads them from the recipe.
        on_result: Called after each run that ends, in the caller's thread, with the findings so far.

    Returns:
        The findings of each plan, in order, without those of the sources.

    Raises:
        ValueError: If the workers of an Executor cannot do the runs, before the first is submitted.

    A run whose process or machine is lost is submitted again, at most :data:`SUBMISSIONS` times in all, and resumes.
    On KeyboardInterrupt every local process is ended; runs elsewhere stop at their next report. Called again, the grid
    resumes.
    """
    if isinstance(directory, RemoteRuns):
        directory.check()
    images = [data] * len(plans) if isinstance(data, RunData) else data
    needed = {
        run.folder: (run, one) for plan, one in zip(plans, images, strict=True) for run in sources_of([plan])
    }
    pairs = (list(needed.values()), list(zip(plans, images, strict=True)))
    if engine is None:
        for plan, one in pairs[0]:
            _here(plan, one, directory, listener)
        results, shelf = dict[int, RunFindings](), Shelf()
        finished: set[str] = set()
        for place, (plan, one) in enumerate(pairs[1]):
            try:
                results[place] = _shelved(_here(plan, one, directory, listener), shelf)
                finished.add(plan.method)
            except Exception as error:
                if isinstance(error, ValueError) or plan.method not in finished:  # bad input, or never worked
                    raise
                logging.getLogger(__name__).exception("%s, seed %d, failed", plan.method, plan.seed)
                reason = f"{type(error).__name__}: {error}"
                listener(plan, {"event": "failed", "reason": reason})
                results[place] = failed(plan, reason)
            on_result(results)
        return list(results.values())
    if isinstance(directory, Path):
        directory = directory.absolute()  # workers may have another working directory
    with (
        on_processes(engine) as executor,
        _board(directory, executor) as board,
    ):
        elsewhere = _Elsewhere(executor, directory, board, listener, send_data=send_data)
        elsewhere.run(pairs[0], silent)
        return elsewhere.run(pairs[1], on_result)


def _shelved(found: RunFindings, shelf: Shelf) -> RunFindings:
    """The same findings, in little memory: of thousands of runs they would take gigabytes."""
    replace = dataclasses.replace
    with suppress(OSError):  # the disk is full: they stay in memory
        exhibits = tuple(
            replace(one, exhibit=replace(one.exhibit, columns=ShelvedColumns(shelf, one.exhibit.columns)))
            for one in found.exhibits
        )
        return replace(found, records=ShelvedRecords.put(shelf, found.records), exhibits=exhibits)
    return found


def _here(
    plan: RunPlan, data: RunData, directory: Path | RemoteRuns | None, listener: Listener
) -> RunFindings:
    listener(plan, {"event": "start"})
    with one_thread():  # as everywhere: sums of several threads have other last bits
        found = _run(
            plan,
            data,
            directory,
            _Steps(lambda **event: listener(plan, event)),
            lambda name: listener(plan, {"event": "audit", "name": name}),
            own_process=False,
        )
    listener(plan, {"event": "done", "status": found.note.status if found.note else ""})
    return found


def _run(
    plan: RunPlan,
    data: RunData,
    directory: Path | RemoteRuns | None,
    on_step: Callable[[Progress], object],
    on_audit: Callable[[str], object],
    *,
    own_process: bool,
) -> RunFindings:
    """Do a run in its folder, or in a local one while it holds the lease of the run at an address."""
    if not isinstance(directory, RemoteRuns):
        return run_method(plan, data, directory, on_step, on_audit, own_process)
    with tempfile.TemporaryDirectory(prefix="clearance-") as name:
        scratch = Path(name)
        for source in plan.sources.values():
            directory.fetch(source.folder, scratch / source.folder)
        while True:
            with (
                suppress(LeaseLostError),  # its successor is waited for
                directory.attempt(
                    plan.folder, scratch / plan.folder, logging.getLogger(__name__).warning
                ) as attempt,
            ):
                if attempt.over:
                    directory.fetch(plan.folder, scratch / plan.folder)
                step = partial(_held_step, attempt, on_step)
                found = run_method(plan, data, scratch, step, on_audit, own_process)
                attempt.check()
                if attempt.over or attempt.publish():
                    return found


def _held_step(attempt: Attempt, on_step: Callable[[Progress], object], progress: Progress) -> object:
    """Tell of a step, if the lease is still held."""
    attempt.check()
    return on_step(progress)


def _kept_at(plan: RunPlan, data: RunData, directory: Path | RemoteRuns | None) -> RunFindings | None:
    """The findings of a finished run."""
    if directory is None or isinstance(directory, Path):
        return None if directory is None else kept_findings(plan, data, directory)
    with tempfile.TemporaryDirectory(prefix="clearance-") as scratch:
        if not directory.fetch(plan.folder, Path(scratch, plan.folder)):
            return None
        return kept_findings(plan, data, Path(scratch))


@contextmanager
def _board(directory: Path | RemoteRuns | None, engine: Executor) -> Iterator[Path | None]:
    """The folder of a grid while it works; None for local processes, which have pipes, and without a folder."""
    if not isinstance(directory, Path) or isinstance(engine, Processes):
        yield None
        return
    for left in directory.glob(f"{BOARD}*"):
        with (
            suppress(OSError),
            FileLock(left / "lock", timeout=0),
        ):  # its grid was killed; its runs shall stop
            shutil.rmtree(left)
    board = directory / f"{BOARD}{secrets.token_hex(4)}"
    board.mkdir(parents=True)
    with FileLock(board / "lock"):
        try:
            yield board
        finally:
            shutil.rmtree(board, ignore_errors=True)


@dataclass(frozen=True)
class _Submitted:
    place: int
    plan: RunPlan
    data: RunData
    number: int  # of this submission, from 1


def _start_order(one: _Submitted) -> tuple[int, bool]:
    """By seed; within a seed FOCA's run first: it takes longest, and would otherwise leave cores idle at the end."""
    return one.plan.seed, one.plan.settings.way != "foca"


class _Elsewhere:
    """Submits plans to an engine, passes on what they report, and collects their findings as they come."""

    def __init__(
        self,
        engine: Executor,
        directory: Path | RemoteRuns | None,
        board: Path | None,
        listener: Listener,
        *,
        send_data: bool,
    ) -> None:
        self.engine, self.directory, self.board, self.listener = engine, directory, board, listener
        self.send_data = send_data
        self.checked = isinstance(engine, Processes) and not send_data  # what is the caller's own must arrive
        self.ended: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        self.shelf = Shelf()
        self.waiting: dict[Future[Any], _Submitted] = {}
        self.heard: dict[str, Any] = {}

    def run(
        self, planned: Sequence[tuple[RunPlan, RunData]], on_result: Callable[[Results], object]
    ) -> list[RunFindings]:
        """The findings of these plans, in order."""
        results: dict[int, RunFindings] = {}
        for place, (plan, data) in enumerate(planned):
            try:
                kept = _kept_at(plan, data, self.directory)
            except ValueError as error:  # its files are damaged
                results[place] = self._failed(plan, str(error))
                continue
            if kept is not None:
                self.listener(plan, {"event": "kept"})
                results[place] = _shelved(kept, self.shelf)
        missing = [_Submitted(i, *pair, number=1) for i, pair in enumerate(planned) if i not in results]
        if missing and not self.checked:
            check_engine(
                self.engine,
                (missing[0].plan, missing[0].data if self.send_data else None),
                self.directory if isinstance(self.directory, RemoteRuns) else self.board,
            )
            self.checked = True
        try:
            for one in sorted(missing, key=_start_order):
                self._submit(one)
            while self.waiting:
                task = self._next()
                one = self.waiting.pop(task)
                if self._again(task, one):
                    continue
                results[one.place] = _shelved(self._result(task, one.plan, one.data), self.shelf)
                on_result(results)
        except BaseException:
            for task in self.waiting:
                task.cancel()
            raise
        return [results[place] for place in range(len(planned))]

    def _submit(self, one: _Submitted) -> None:
        data = one.data if self.send_data else None
        task = self.engine.submit(run_task, one.plan, data, self.directory, self.board)
        if isinstance(task, Task):
            task.listen(lambda event: self.listener(one.plan, event))
        self.waiting[task] = one
        task.add_done_callback(self.ended.put)

    def _next(self) -> Future[Any]:
        """The next task that ends; meanwhile what runs report is passed on."""
        while True:
            try:
                return self.ended.get(timeout=None if self.board is None else SECONDS_BETWEEN_FILES)
            except queue.Empty:
                self._hear()

    def _hear(self) -> None:
        """Pass on what is new in the files of the runs at work."""
        assert self.board is not None
        plans = {one.plan.folder: one.plan for one in self.waiting.values()}
        for file in self.board.glob("*.json"):
            try:
                said = json.loads(file.read_bytes())
            except (OSError, ValueError):  # replaced or removed at this moment
                continue
            plan = plans.get(file.stem)
            if plan is None:
                continue
            before = self.heard.get(file.stem)
            if before is None:
                self.listener(plan, {"event": "start"})
            notes = 0 if before is None or before["run"] != said["run"] else len(before["notes"])
            for note in said["notes"][notes:]:
                self.listener(plan, note)
            if said["now"] is not None and (before is None or said["now"] != before["now"]):
                self.listener(plan, said["now"])
            self.heard[file.stem] = said

    def _again(self, task: Future[Any], one: _Submitted) -> bool:
        """Whether the task was lost, and was submitted once more."""
        error = None if task.cancelled() else task.exception()
        if not isinstance(error, LostError) or one.number >= SUBMISSIONS:
            return False
        text = f"lost ({error}); submitted again, {one.number + 1} of at most {SUBMISSIONS} times"
        self.listener(one.plan, {"event": "note", "text": text})
        self._submit(dataclasses.replace(one, number=one.number + 1))
        return True

    def _result(self, task: Future[Any], plan: RunPlan, data: RunData) -> RunFindings:
        """A task's findings, as stored in its directory; a failure if it raised."""
        error = CancelledError("cancelled") if task.cancelled() else task.exception()
        if error is None:
            found: RunFindings = task.result()
            if isinstance(self.directory, Path):
                with suppress(ValueError):  # what the task returned is as good
                    # the same, unless an audit failed
                    found = kept_findings(plan, data, self.directory) or found
            self.listener(plan, {"event": "done", "status": found.note.status if found.note else ""})
            return found
        if not isinstance(error, TaskError):
            return self._failed(plan, f"{type(error).__name__}: {error}")
        if self.directory is not None and error.complaint:
            with suppress(OSError):  # a full disk must not end the healthy runs
                if isinstance(self.directory, RemoteRuns):
                    self.directory.write(f"{plan.folder}.log", error.complaint.encode())
                else:
                    self.directory.mkdir(parents=True, exist_ok=True)
                    (self.directory / f"{plan.folder}.log").write_text(error.complaint, "utf-8")
        return self._failed(plan, str(error))

    def _failed(self, plan: RunPlan, reason: str) -> RunFindings:
        if isinstance(self.directory, Path):  # reports are passed on, without folders of this machine
            reason = reason.replace(f"{self.directory}{os.sep}", "")
        self.listener(plan, {"event": "failed", "reason": reason})
        return failed(plan, reason)


def run_task(
    plan: RunPlan,
    data: RunData | None,
    directory: Path | RemoteRuns | None,
    board: Path | None = None,
) -> RunFindings:
    """Run a plan with one thread, in a process of an engine.

    Without `data`, the recipe's are loaded; `directory` is the folder for runs, or their address. The run reports
    through `board`, the folder of the grid; None reports to the parent process, if it is one of `Processes`.
    """
    with ONE_TASK:
        say = report if board is None else _File(board, plan.folder)
        pause = SECONDS_BETWEEN_REPORTS if board is None else SECONDS_BETWEEN_FILES
        say(event="start")
        notes = _Notes(say)
        logging.getLogger().addHandler(notes)
        try:
            with one_thread():
                return _run(
                    plan,
                    build_data(plan.recipe) if data is None else data,
                    directory,
                    _Steps(say, pause),
                    lambda name: say(event="audit", name=name),
                    own_process=is_local_process(),
                )
        finally:
            logging.getLogger().removeHandler(notes)
            if isinstance(say, _File):
                say.remove()


class _File:
    """What a run says, in one small file in the folder of its grid.

    Raises:
        CancelledError: If the folder is gone: the grid was interrupted.
    """

    def __init__(self, board: Path, name: str) -> None:
        self._path = board / f"{name}.json"
        self._said: dict[str, Any] = {"run": secrets.token_hex(4), "notes": [], "now": None}

    def __call__(self, **event: Any) -> None:
        if event["event"] == "note":
            self._said["notes"].append(event)
        elif event["event"] != "start":
            self._said["now"] = event
        temporary = self._path.with_suffix(".tmp")
        try:
            temporary.write_text(json.dumps(self._said), "utf-8")
            temporary.replace(self._path)
        except FileNotFoundError as error:
            raise CancelledError("the grid was interrupted") from error
        except OSError:  # a full disk: progress is no reason to end a run
            pass

    def remove(self) -> None:
        """The run has ended."""
        with suppress(OSError):
            self._path.unlink()


class _Steps:
    """Reports the progress of training, `pause` seconds apart."""

    def __init__(self, send: Callable[..., object], pause: float = SECONDS_BETWEEN_REPORTS) -> None:
        self._send, self._last, self._pause = send, 0.0, pause

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last >= self._pause or progress.step == progress.steps:
            self._last = now
            self._send(event="step", step=progress.step, steps=progress.steps)


class _Notes(logging.Handler):
    """Passes warnings on, for example that another process holds the run's directory."""

    def __init__(self, send: Callable[..., object]) -> None:
        super().__init__(logging.WARNING)
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        """One event for each warning."""
        self._send(event="note", text=record.getMessage())
