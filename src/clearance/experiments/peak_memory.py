"""The memory that a piece of work adds to its process."""

import resource
import sys
from pathlib import Path

import torch

MIB = 2**20
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # written to clear_refs, makes Linux reset the highest resident size


class PeakMemory:
    """The peak memory of a process since this object was made, minus its memory at that time, in MiB.

    GPU memory if there is a GPU, otherwise the process's resident set. Memory that the process had freed and its
    allocator kept is reused without being counted, so make this object early, in a new process. Only Linux can reset
    an earlier peak; on other systems work that stays below that peak is not counted.

    >>> memory = PeakMemory()
    >>> block = torch.ones(64 * 2**20)  # 256 MiB; the system may take other pages back meanwhile
    >>> memory.added() > 64
    True
    """

    def __init__(self) -> None:
        self._on_gpu = torch.cuda.is_available()  # then that is where fit trains
        if self._on_gpu:
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated() / MIB
        else:
            _forget_peak()
            self._before = _resident()

    def added(self) -> float:
        """The highest addition so far, at least 0."""
        peak = torch.cuda.max_memory_allocated() / MIB if self._on_gpu else _peak()
        return max(0.0, peak - self._before)


def _forget_peak() -> None:
    try:
        CLEAR.write_text(RESET_PEAK)
    except OSError:
        return  # not Linux, or not allowed: an earlier peak stays


def _status(field: str) -> float | None:
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:")), None)


def _resident() -> float:
    held = _status("VmRSS")
    return _peak() if held is None else held


def _peak() -> float:
    peak = _status("VmHWM")
    if peak is not None:
        return peak
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MIB
