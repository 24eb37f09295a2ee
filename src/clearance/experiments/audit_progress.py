"""How far an audit is: which of its parts runs, which share of it is done, and how long the rest may take."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

EVERY = 10.0  # seconds between two lines of a log
LIVE = 0.5  # seconds between two pictures of the line of a terminal


@dataclass
class AuditProgress:
    """What a line says of the audit in progress.

    Args:
        clock: Returns the time in seconds.
        on_begin: Takes the line where an audit starts.

    >>> times = iter([0.0, 0.0, 30.0, 30.0])
    >>> progress = AuditProgress(clock=lambda: next(times))
    >>> progress.begin("robustness", 7, 12)
    >>> progress.update(1, 4)
    >>> progress.line()
    'robustness (7 of 12): 25 %, 30 s, about 90 s left'
    """

    clock: Callable[[], float] = time.monotonic
    on_begin: Callable[[str], object] | None = None
    _what: str = "reading"
    _share: float = 0.0
    _began: float = field(init=False)
    _moved: float = field(init=False)  # when the share was said last

    def __post_init__(self) -> None:
        self._began = self._moved = self.clock()

    def begin(self, audit: str, number: int, of: int) -> None:
        """An audit starts, `number` of so many."""
        self._what, self._share, self._began = f"{audit} ({number} of {of})", 0.0, self.clock()
        self._moved = self._began
        if self.on_begin is not None:
            self.on_begin(self._what)

    def update(self, done: int, of: int) -> None:
        """Of the audit in progress, so many of its steps are done."""
        self._share, self._moved = done / of if of else 0.0, self.clock()

    def line(self) -> str:
        """The audit, the share that is done, its time, and an estimate of the rest, until it has passed."""
        now = self.clock()
        words = f"{self._what}: {now - self._began:.0f} s"
        if not 0 < self._share < 1:
            return words
        left = (self._moved - self._began) * (1 - self._share) / self._share - (now - self._moved)
        words = f"{self._what}: {100 * self._share:.0f} %, {now - self._began:.0f} s"
        return f"{words}, about {left:.0f} s left" if left >= 1 else words


@contextmanager
def shown(show: Callable[[str], object], *, live: bool) -> Iterator[AuditProgress]:
    """A progress whose line is shown again and again until the end, by a thread of its own.

    `live` means that `show` replaces the line, as on a terminal; else there is one every 10 seconds.
    """
    progress, ended = AuditProgress(on_begin=show if live else None), threading.Event()

    def repeat() -> None:
        while not ended.wait(LIVE if live else EVERY):
            show(progress.line())

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        ended.set()
        thread.join()
