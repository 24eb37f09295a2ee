"""What is printed while runs are at work and no one looks at a terminal."""

from types import SimpleNamespace
from typing import Any

import pytest

from clearance.cli import _progress
from clearance.cli._console import Console


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now.seconds)
    return now


def printed(clock, runs, events):
    """The lines for events, each with its second and its run."""
    clock.seconds = 0.0
    console = Console(force_terminal=False, width=200)
    with console.capture() as shown, _progress.listening(console, runs) as listen:
        for seconds, run, event in events:
            clock.seconds = seconds
            piece: Any = SimpleNamespace(folder=run, title=run)
            listen(piece, event)
    return shown.get().splitlines()


def done():
    return {"event": "done", "status": "finished"}


def test_runs_at_work_count_for_what_they_have_done(clock):
    """Two at a time, 100 s each: of ten, nine are to come when the first ends, but the second is nearly done."""
    events = [
        (0, "a", {"event": "start"}),
        (0, "b", {"event": "start"}),
        (85, "b", {"event": "step", "step": 100, "steps": 100}),
        (90, "b", {"event": "audit", "name": "accuracy"}),
        (100, "a", done()),
    ]
    (line,) = printed(clock, 10, events)
    assert line == f"1/10  a: finished, about {100 / 1.85 * 8.15:.0f} s left"


def test_runs_that_were_there_say_nothing_of_the_time(clock):
    kept = [(0, name, {"event": "kept"}) for name in "abc"]
    lines = printed(clock, 5, [*kept, (100, "d", done()), (200, "e", done())])
    assert lines == [
        "1/5  a: already there",
        "2/5  b: already there",
        "3/5  c: already there",
        "4/5  d: finished, about 100 s left",
        "5/5  e: finished",
    ]


def test_a_failed_run_is_one_that_ended(clock):
    (line, _) = printed(clock, 2, [(10, "a", {"event": "failed", "reason": "no memory"}), (20, "b", done())])
    assert line == "1/2  a: failed: no memory, about 10 s left"
