"""Progress of a comparison: on a terminal live bars, elsewhere one line per run."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from clearance.cli._console import Console
from clearance.experiments.grid import Listener, Piece

TRAINING_SHARE = 0.85  # of a run's time; the rest is its audits


@contextmanager
def listening(console: Console, runs: int | None = None) -> Iterator[Listener]:
    """A listener for a grid's events; `runs` is the number of runs, None if unknown."""
    if not console.is_terminal:
        yield _Lines(console, runs).listen
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield _Picture(progress, runs).listen


class _Lines:
    """One line at the end of each run.

    The remaining time follows from what is done, with the parts of runs that are at work, and without runs that were
    already there.
    """

    def __init__(self, console: Console, runs: int | None) -> None:
        self.console, self.runs, self.ended, self.kept = console, runs, 0, 0
        self.shares: dict[str, float] = {}  # of each run that was at work here, by folder
        self.began = time.monotonic()

    def listen(self, piece: Piece, event: Mapping[str, Any]) -> None:
        """Print the run that ended and an estimate of the remaining time."""
        kind = event["event"]
        if kind == "note":
            self.console.print(f"{piece.title}: {event['text']}", soft_wrap=True)
        if kind == "step":
            self.shares[piece.folder] = TRAINING_SHARE * event["step"] / event["steps"]
        elif kind == "audit":
            self.shares[piece.folder] = TRAINING_SHARE
        if kind not in ("done", "failed", "kept"):
            return
        self.ended += 1
        if kind == "kept":
            self.kept += 1
        else:
            self.shares[piece.folder] = 1.0
        how = {"done": event.get("status"), "failed": f"failed: {event.get('reason')}"}
        outcome = how.get(kind, "already there")
        count, rest = str(self.ended), ""
        if self.runs is not None:
            count = f"{self.ended}/{self.runs}"
            done = sum(self.shares.values())
            if done and self.ended < self.runs:
                left = (time.monotonic() - self.began) / done * (self.runs - self.kept - done)
                rest = f", about {left:.0f} s left"
        self.console.print(f"{count}  {piece.title}: {outcome}{rest}", soft_wrap=True)


class _Picture:
    """A bar for the whole comparison, and one for every active run."""

    def __init__(self, progress: Progress, runs: int | None) -> None:
        self.progress = progress
        self.of = "" if runs is None else f"/{runs}"
        self.whole = progress.add_task("all runs", total=runs, detail=f"0{self.of} runs")
        self.ended = 0
        self.tasks: dict[str, TaskID] = {}  # by folder: a sweep has a method and seed several times
        self.shares: dict[str, float] = {}

    def listen(self, piece: Piece, event: Mapping[str, Any]) -> None:
        """Move the bars."""
        key, kind = piece.folder, event["event"]
        if kind == "start":
            if key not in self.tasks:  # it is there if the run was lost and is submitted again
                self.tasks[key] = self.progress.add_task(piece.title, total=1.0, detail="starting")
        elif kind == "step":
            share = TRAINING_SHARE * event["step"] / event["steps"]
            self._move(key, share, f"step {event['step']}/{event['steps']}")
        elif kind == "note":
            self.progress.console.print(f"{piece.title}: {event['text']}")
        elif kind == "audit":
            self._move(key, TRAINING_SHARE, f"audit: {event['name']}")
        else:
            self._end(key, piece, event)

    def _move(self, key: str, share: float, detail: str) -> None:
        self.shares[key] = share
        self.progress.update(self.tasks[key], completed=share, detail=detail)
        self.progress.update(self.whole, completed=sum(self.shares.values()))

    def _end(self, key: str, piece: Piece, event: Mapping[str, Any]) -> None:
        self.ended += 1
        self.shares[key] = 1.0
        if key in self.tasks:
            self.progress.remove_task(self.tasks.pop(key))
        if event["event"] == "failed":
            self.progress.console.print(f"{piece.title} failed: {event['reason']}")
        done = sum(self.shares.values())
        self.progress.update(self.whole, completed=done, detail=f"{self.ended}{self.of} runs")
