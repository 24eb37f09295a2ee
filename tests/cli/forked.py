"""A command in a process of its own, forked from one that has imported everything: only the work takes time."""

import importlib
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

IMPORTED = [
    "torch",
    "matplotlib.figure",
    "matplotlib.backends.backend_svg",
    "clearance.cli.__main__",
    "clearance.experiments.compare",
    "clearance.experiments.diff",
    "clearance.experiments.explore",
    "clearance.experiments.outside",
    "clearance.experiments.search",
    "papers.elsayed_2018",
    "papers.engine.reproduce",
    "clearance.research",
]
MARK = "CLEARANCE_STARTED_BY"
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(IMPORTED)


class Started:
    """A command, with everything that it starts.

    Args:
        words: What a user types after ``python -m``.
        said: The file for what it prints.
        environment: Changes to the environment.
        limit: Largest size of a file, in bytes.
    """

    def __init__(
        self, words: Sequence[str], said: Path, environment: dict[str, str], limit: int | None = None
    ) -> None:
        self.said = said
        self.mark = f"{said}"
        begun, begins = _CONTEXT.Pipe(duplex=False)
        given = (list(words), said, {**environment, MARK: self.mark}, limit, begins)
        self.process = _CONTEXT.Process(target=_run, args=given)
        self.process.start()
        begins.close()
        begun.recv()
        self.began = time.monotonic()

    def end(self, seconds: float) -> tuple[int, str]:
        """Wait, and give the status and what was printed; a negative status is the signal that ended it."""
        self.process.join(seconds)
        status = self.process.exitcode
        assert status is not None, f"still running after {seconds} seconds"
        return status, self.said.read_text("utf-8")

    def send(self, number: int) -> None:
        """Send it a signal."""
        if self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, number)

    def orphans(self) -> list[int]:
        """The processes that it started, directly or not, and that still run; also itself."""
        return [int(place.name) for place in Path("/proc").iterdir() if self._is_own(place)]

    def _is_own(self, place: Path) -> bool:
        if not place.name.isdigit() or int(place.name) == os.getpid():
            return False
        try:
            state, _, _, session = (place / "stat").read_text().rpartition(")")[2].split()[:4]
            marked = self.mark.encode() in (place / "environ").read_bytes()
        except OSError:
            return False
        return state != "Z" and (marked or int(session) == self.process.pid)


def _run(
    words: list[str], said: Path, changes: dict[str, str], limit: int | None, begins: Connection
) -> None:
    os.setsid()
    os.environ.update(changes)
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    sys.argv = words
    main = importlib.import_module(f"{words[0]}.__main__").main
    begins.send(None)
    main()
