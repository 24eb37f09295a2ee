"""The directory of one run: open, continue, log, save, finish."""

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import BaseFileLock
from torch import Tensor

from clearance._checks import check_count
from clearance.runs._checkpoints import (
    Checkpoint,
    newest_step,
    read_checkpoint,
    read_metrics_bytes,
    remove_temporaries,
    write_checkpoint,
)
from clearance.runs._claim import check_claim, claim
from clearance.runs._metrics import Metrics, read_metrics
from clearance.runs._plain import plain
from clearance.runs.result import is_finished, read_result, write_result

_CHECKPOINTS = "checkpoints"
_METRICS = "metrics.jsonl"

_warn = logging.getLogger(__name__).warning  # reaches stderr unless logging is configured otherwise


class RunDirectory:
    """A run's directory, locked by this process; made by `RunDirectory.open` and closed by ``with``.

    If the process is killed, the next `open` finds the newest checkpoint complete and cuts the metrics to their
    length at that checkpoint. So a caller that restores `latest` and continues deterministically gets
    the same weights and the same metrics, byte for byte, as without the interruption.

    Args:
        path: The directory, as given to `open`.
        lock: The lock on it, acquired.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder, RunDirectory.open(folder, {"seed": 0}) as run:
    ...     run.log({"step": 1, "loss": 0.25})
    ...     run.save(1, {"weight": torch.ones(2)})
    ...     found = run.latest()
    ...     run.finish({"weight": torch.ones(2)}, {"error": 0.5})
    ...     weights, result = run.result()
    >>> found, weights, result
    (Checkpoint(step=1, state={'weight': tensor([1., 1.])}), {'weight': tensor([1., 1.])}, {'error': 0.5})
    """

    def __init__(self, path: Path, lock: BaseFileLock) -> None:
        self.path = path
        self._lock = lock
        self._checkpoints = path / _CHECKPOINTS
        self._metrics: Metrics | None = None
        if self.finished:
            self._remove_checkpoints()  # again: killed between finishing and removing them
        else:
            remove_temporaries(self._checkpoints)
            step = newest_step(self._checkpoints)
            length = 0 if step is None else read_metrics_bytes(self._checkpoints, step)
            self._metrics = Metrics(path / _METRICS, length)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        fingerprint: Mapping[str, Any],
        *,
        wait: bool = True,
        on_wait: Callable[[str], object] = _warn,
    ) -> "RunDirectory":
        """Make or find the directory, lock it, and cut the metrics to the newest checkpoint.

        Args:
            path: A directory that belongs to the same fingerprint, is empty, or does not exist.
            fingerprint: Everything that affects the run's numbers, as JSON values.
            wait: Whether to wait while another process works in it.
            on_wait: Called once, with a sentence, before waiting; by default it logs a warning.

        Returns:
            The run, to be closed, preferably by ``with``. The lock is also released if the process dies.

        Raises:
            ValueError: The directory belongs to another fingerprint (the message names what differs) or is
                not a run directory; or its checkpoint or metrics are damaged.
            BlockingIOError: Another process works in it and `wait` is False.
            OSError: `path` is a file, or cannot be made or written.

        On file systems without ``flock`` (some network drives), two machines may open the same run.
        """
        where = Path(path)
        wanted = plain(fingerprint, "fingerprint")
        check_claim(where, wanted)  # first: a wrong call should fail before it waits
        lock = claim(where, wanted, wait=wait, on_wait=on_wait)
        try:
            return cls(where, lock)
        except BaseException:
            lock.release()
            raise

    @property
    def finished(self) -> bool:
        """Whether `finish` was completed, by this process or an earlier one."""
        return is_finished(self.path)

    def latest(self) -> Checkpoint | None:
        """The newest complete checkpoint; None if there is none, or the run is finished.

        Raises:
            ValueError: It was damaged after it was written; the run never starts over automatically.
        """
        step = newest_step(self._checkpoints)
        return None if step is None else read_checkpoint(self._checkpoints, step)

    def log(self, values: Mapping[str, Any]) -> None:
        """Append one line to the metrics.

        Args:
            values: Numbers and strings; no times, which would differ if a step is repeated.

        Raises:
            ValueError: JSON cannot hold one of the values.
            RuntimeError: The run is finished or closed.
        """
        self._writable().append(values)

    def metrics(self) -> list[dict[str, Any]]:
        """Every line logged so far, earlier processes included; of a finished run too."""
        return read_metrics(self.path / _METRICS)

    def save(self, step: int, state: Any) -> None:
        """Write a checkpoint, then delete the previous one.

        Args:
            step: Steps done; above that of every earlier checkpoint.
            state: What `clearance.runs.flatten` takes: dicts, lists, tuples, numbers, strings and tensors.

        Raises:
            ValueError: `step` is not above the newest one, or `state` holds something else.
            RuntimeError: The run is finished or closed.
        """
        metrics = self._writable()
        check_count("step", step, minimum=0)
        newest = newest_step(self._checkpoints)
        if newest is not None and step <= newest:
            raise ValueError(f"`step` must be above that of the newest checkpoint, {newest}; got {step}.")
        write_checkpoint(self._checkpoints, step, state, metrics.sync())

    def finish(self, weights: Mapping[str, Tensor], result: Mapping[str, Any]) -> None:
        """Write the weights, then the result, and remove the checkpoints.

        Args:
            weights: The trained tensors by name; stored contiguous, tied ones under each of their names.
            result: Everything else about the run, as JSON values.

        Raises:
            ValueError: A weight or a value cannot be stored; the run is then not finished.
            RuntimeError: The run is finished or closed.
        """
        self._writable().sync()
        write_result(self.path, weights, result)
        self._remove_checkpoints()

    def result(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The weights and the result of a finished run.

        Raises:
            ValueError: The run is not finished, or its files were damaged.
        """
        return read_result(self.path)

    def close(self) -> None:
        """Release the directory; may be called twice."""
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
        self._lock.release()

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _writable(self) -> Metrics:
        if self.finished:
            raise RuntimeError(
                f"a run can be written only until it is finished; got {self.path}, which is finished. Use result()."
            )
        if self._metrics is None:
            raise RuntimeError(
                f"a run can be written only while it is open; got {self.path}, which is closed. Open it again."
            )
        return self._metrics

    def _remove_checkpoints(self) -> None:
        if self._checkpoints.exists():
            shutil.rmtree(self._checkpoints)
