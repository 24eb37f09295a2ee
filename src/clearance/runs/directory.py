"""The directory of one run: open, continue, log, save, finish."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from clearance._checks import check_count
from clearance._files import named, sync_directory, write_bytes, write_synced
from clearance.runs.manifest import MANIFEST, check_files, manifest_of, read_file, write_files
from clearance.runs.tree import flatten, snapshot, unflatten

RUN = "run.json"
LOCK = "lock"
_METRICS = "metrics.jsonl"
_RUN_SCHEMA = 1
_NAMED = 5  # differences in a message
_SHOWN = 60  # characters of a value in a message
_MISSING = object()
_POLL_SECONDS = 0.2
_warn = logging.getLogger(__name__).warning  # reaches stderr unless logging is configured otherwise


def check_claim(path: Path, fingerprint: Mapping[str, Any]) -> None:
    """Raise unless `path` is free, or already belongs to `fingerprint` (plain JSON values).

    Raises:
        NotADirectoryError: `path` is a file.
        ValueError: It belongs to another fingerprint, or is not a run's directory.
    """
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(
            f"`path` must be a directory, or free; got the file {path}. Choose another path."
        )
    if (path / RUN).exists():
        _check_same(path, fingerprint)
    elif strange := sorted(entry.name for entry in _entries(path) if not _is_ours(entry)):
        raise ValueError(
            f"`path` must be a run's directory, an empty one, or free; got {path}, which holds no {RUN} "
            f"but {', '.join(strange[:3])}{' ...' if len(strange) > 3 else ''}. Choose another path."
        )


def claim(path: Path, fingerprint: Mapping[str, Any]) -> BaseFileLock:
    """Make `path` the directory of `fingerprint`, and this process the one that works in it.

    Raises:
        OSError: It cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = _acquire(path)
    except OSError as error:
        # OSError picks the subclass that belongs to the number, PermissionError for example
        reason = error.strerror or str(error)
        raise OSError(
            error.errno, f"`path` must be a directory that can be made and written; got {path}: {reason}"
        ) from error
    try:
        check_claim(path, fingerprint)  # again: another process may have come first
        for left in list(path.glob(".*.tmp")):
            left.unlink()
        if not (path / RUN).exists():
            write_bytes(path / RUN, _json_text({"schema": _RUN_SCHEMA, "fingerprint": fingerprint}))
    except BaseException:
        lock.release()
        raise
    return lock


def read_fingerprint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fingerprint of the run in `path`, finished or not; takes no lock.

    Args:
        path: A run's directory.

    Raises:
        ValueError: The fingerprint is missing or cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     claim(Path(folder), {"seed": 0}).release()
    ...     read_fingerprint(folder)
    {'seed': 0}
    """
    file = Path(path) / RUN
    try:
        content = json.loads(read_file(file.parent, RUN))
        schema, fingerprint = content["schema"], content["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{file} must hold the fingerprint of a run; got {type(error).__name__}: {error}. "
            f"Restore it, or use another directory."
        ) from error
    if schema != _RUN_SCHEMA:
        raise ValueError(
            f"{file} must be of schema {_RUN_SCHEMA}; got {schema!r}. Use the version of torch-clearance that "
            f"wrote it, or another directory."
        )
    return fingerprint


def _json_text(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Where two trees of plain JSON values differ: one line for each dotted path, with both values.

    Args:
        there: The stored one.
        here: The expected one.

    Lists are compared as a whole, and 1 differs from 1.0.

    >>> differences({"fit": {"seed": 0, "epochs": 3}}, {"fit": {"seed": 1, "epochs": 3}, "device": "cpu"})
    ['device: absent there, "cpu" here', 'fit.seed: 0 there, 1 here']
    """
    return list(_differences(there, here, ()))


def _differences(there: Any, here: Any, path: tuple[str, ...]) -> Iterable[str]:
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in sorted({*there, *here}):
            yield from _differences(there.get(key, _MISSING), here.get(key, _MISSING), (*path, key))
    elif _text(there) != _text(here):
        yield f"{'.'.join(path)}: {_short(there)} there, {_short(here)} here"


def _text(value: Any) -> str:
    # as text, because NaN equals itself there and True is not 1
    return "absent" if value is _MISSING else json.dumps(value, sort_keys=True)


def _short(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _check_same(path: Path, fingerprint: Mapping[str, Any]) -> None:
    found = differences(read_fingerprint(path), fingerprint)
    if found:
        more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        starts = all(one.startswith(("first_weights:", "first_loss:")) for one in found)
        remedy = (
            "Build model and loss as in the first call, after torch.manual_seed with the same seed; those that were "
            "trained already do not continue their run"
            if starts
            else "Use another directory, or delete this one to start over"
        )
        raise ValueError(
            f"`path` must be the directory of the same run; got {path}, which differs in "
            f"{'; '.join(found[:_NAMED])}{more}. {remedy}."
        )


def _acquire(path: Path) -> BaseFileLock:
    lock = FileLock(path / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        _warn(f"another process is working in {path}; waiting for it ...")
        lock.acquire(poll_interval=_POLL_SECONDS)
    return lock


def _entries(path: Path) -> list[Path]:
    return list(path.iterdir()) if path.is_dir() else []


def _is_ours(entry: Path) -> bool:
    """Whether `entry` is what a process leaves that was killed before it had written the fingerprint."""
    return entry.name == LOCK or (entry.name.startswith(f".{RUN}.") and entry.name.endswith(".tmp"))


_SCHEMA = 1
_TENSORS = "tensors.safetensors"
_STATE = "state.json"
_TEMPORARY = ".tmp-"
# errors from reading files that were changed from outside
_DAMAGE = (OSError, SafetensorError, ValueError, LookupError, TypeError, AttributeError, RuntimeError)


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after a step.

    Args:
        step: Steps done.
        state: The tree that was saved, with its tensors on the CPU.

    >>> Checkpoint(step=120, state={"lr": 0.1}).step
    120
    """

    step: int
    state: Any


def newest_step(folder: Path) -> int | None:
    """The step of the newest complete checkpoint, None if there is none; temporaries do not count."""
    return max(_steps(folder), default=None)


def write_checkpoint(folder: Path, step: int, state: Any, metrics: tuple[int, str]) -> None:
    """Put a checkpoint in place, then delete what is older.

    `folder`, of all checkpoints, is made if it is missing; `step` is above that of every checkpoint in it. `state` is
    what `clearance.runs.tree.flatten` takes, `metrics` length and SHA-256 of the metrics at this step.
    """
    tree, tensors = flatten(state)
    length, digest = metrics
    header = {
        "schema": _SCHEMA, "step": step, "metrics_bytes": length, "metrics_sha256": digest, "state": tree
    }  # fmt: skip
    files = {_TENSORS: save(tensors), _STATE: (json.dumps(header) + "\n").encode()}
    remove_temporaries(folder)
    temporary = folder / f"{_TEMPORARY}{step}-{os.getpid()}"
    temporary.mkdir(parents=True)
    for name, data in {
        **files,
        MANIFEST: manifest_of({name: [data] for name, data in files.items()}),
    }.items():
        write_synced(temporary / name, [data])
    sync_directory(temporary)
    temporary.rename(folder / f"{step:08d}")
    sync_directory(folder)
    for older in set(_steps(folder)) - {step}:
        shutil.rmtree(folder / f"{older:08d}")


def read_checkpoint(folder: Path, step: int) -> Checkpoint:
    """Read the checkpoint of `step` back to the same bits.

    Raises:
        ValueError: It cannot be read.
    """
    path = folder / f"{step:08d}"
    state = _read_state(path)
    try:
        tensors = load(read_file(path, _TENSORS))
        return Checkpoint(step, unflatten(state["state"], tensors))
    except _DAMAGE as error:
        raise _unreadable(path, error) from error


def read_metrics_end(folder: Path, step: int) -> tuple[int, str]:
    """Length and SHA-256 of the metrics at the checkpoint of `step`.

    Raises:
        ValueError: It cannot be read.
    """
    path = folder / f"{step:08d}"
    try:
        state = _read_state(path)
        return int(state["metrics_bytes"]), str(state["metrics_sha256"])
    except (LookupError, TypeError) as error:
        raise _unreadable(path, error) from error


def remove_temporaries(folder: Path) -> None:
    """Delete what processes left that were killed, or failed, while they wrote a checkpoint."""
    for left in list(folder.glob(f"{_TEMPORARY}*")):
        shutil.rmtree(left)


def _steps(folder: Path) -> list[int]:
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return [int(name) for name in names if name.isascii() and name.isdigit() and name == f"{int(name):08d}"]


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(read_file(path, _STATE))
        schema = state["schema"]
    except _DAMAGE as error:
        raise _unreadable(path, error) from error
    if schema != _SCHEMA:
        raise ValueError(
            f"the checkpoint {path} must be of schema {_SCHEMA}; got {schema!r}. Use the version of "
            f"torch-clearance that wrote it, or delete {path.parent.parent} to start over."
        )
    return state


def _unreadable(path: Path, error: Exception) -> ValueError:
    run = path.parent.parent
    return ValueError(
        f"the checkpoint {path} must hold a readable {_TENSORS} and {_STATE}; got {type(error).__name__}: "
        f"{error}. It was changed after it was written. Restore it, or delete {run} to start over."
    )


class Metrics:
    """The open end of a metrics file.

    Args:
        path: The file; made if it is missing.
        length: How many bytes of it to keep. What lies behind was written after the checkpoint that the run
            continues from, and will be written again.
        digest: SHA-256 of these bytes, where it is known.

    Raises:
        ValueError: The file is shorter than `length`, or these bytes are others.
    """

    def __init__(self, path: Path, length: int, digest: str | None = None) -> None:
        size = path.stat().st_size if path.exists() else 0
        if size < length:
            raise ValueError(
                f"{path} must hold the {length} bytes that it had when the newest checkpoint was taken; got "
                f"{size}. Restore the file, or delete {path.parent} to start over."
            )
        self._digest = hashlib.sha256(path.read_bytes()[:length] if length else b"")
        if digest not in (None, self._digest.hexdigest()):
            raise ValueError(
                f"{path} must begin with what it held when the newest checkpoint was taken; it was changed since. "
                f"Restore the file, or delete {path.parent} to start over."
            )
        self._folder = path.parent
        self._file = path.open("ab", buffering=0)  # nothing is left to write where a disk is full
        self._file.truncate(length)

    def append(self, values: Mapping[str, Any]) -> None:
        """Write one line, keys sorted, floats with all their digits."""
        line = json.dumps(values, sort_keys=True).encode() + b"\n"
        self._digest.update(line)
        try:
            while line:  # a disk that is nearly full takes a part
                line = line[self._file.write(line) :]
        except OSError as error:
            raise named(error, self._folder) from error

    def sync(self) -> tuple[int, str]:
        """Wait until the disk has every line; returns the length in bytes and the SHA-256."""
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size, self._digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


MODEL = "model.safetensors"
RESULT = "result.json"


def write_result(path: Path, weights: Mapping[str, Tensor], result: Mapping[str, Any]) -> None:
    """Write the weights, then the result; nothing if one of the two cannot be stored.

    Raises:
        ValueError: A weight is not a dense tensor of a real dtype.
        TypeError: JSON cannot hold a value of `result`.
    """
    stored = {name: snapshot(tensor, f"weights[{name!r}]").contiguous() for name, tensor in weights.items()}
    files = {
        MODEL: save(stored),
        RESULT: _json_text(result),
    }  # the result last: it says that the run is finished
    write_files(path, files, others=(RUN, _METRICS))


def check_finished(path: Path) -> None:
    """Raise ValueError if a file that the finished run in `path` wrote is missing or damaged."""
    check_files(path, (RUN, _METRICS, MODEL, RESULT))


def read_result(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights, on the CPU, and the result of the finished run in `path`; takes no lock.

    Args:
        path: A run's directory.

    Raises:
        ValueError: The run is not finished, or its files were damaged.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_result(Path(folder), {"bias": torch.zeros(1)}, {"status": "finished"})
    ...     read_result(folder)
    ({'bias': tensor([0.])}, {'status': 'finished'})
    """
    folder = Path(path)
    if not (folder / RESULT).exists():
        raise ValueError(
            f"`path` must be the directory of a finished run; got {folder}, which has no {RESULT}. "
            f"Finish the run first."
        )
    check_files(folder, ())  # that there is a manifest
    try:
        result = json.loads(read_file(folder, RESULT))
        weights = load(read_file(folder, MODEL))
    except (OSError, ValueError, SafetensorError, RecursionError) as error:
        raise ValueError(
            f"{folder} must hold a readable {MODEL} and {RESULT}; got {type(error).__name__}: {error}. They "
            f"were changed after they were written. Restore them, or delete {folder} to start over."
        ) from error
    # cloned into memory that torch aligned, as in a run that did not come from a file
    return {name: tensor.clone() for name, tensor in weights.items()}, result


_CHECKPOINTS = "checkpoints"


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
            end = (0, None) if step is None else read_metrics_end(self._checkpoints, step)
            self._metrics = Metrics(path / _METRICS, *end)

    @classmethod
    def open(cls, path: str | os.PathLike[str], fingerprint: Mapping[str, Any]) -> "RunDirectory":
        """Make or find the directory, lock it, and cut the metrics to the newest checkpoint.

        While another process works in it, it waits, and says so once, as a warning of the log.

        Args:
            path: A directory that belongs to the same fingerprint, is empty, or does not exist.
            fingerprint: Everything that affects the run's numbers, as JSON values.

        Returns:
            The run, to be closed, preferably by ``with``. The lock is also released if the process dies.

        Raises:
            ValueError: The directory belongs to another fingerprint (the message names what differs) or is
                not a run directory; or its checkpoint or metrics are damaged.
            OSError: `path` is a file, or cannot be made or written.

        On file systems without ``flock`` (some network drives), two machines may open the same run.
        """
        where = Path(path)
        check_claim(where, fingerprint)  # first: a wrong call should fail before it waits
        lock = claim(where, fingerprint)
        try:
            return cls(where, lock)
        except BaseException:
            lock.release()
            raise

    @property
    def finished(self) -> bool:
        """Whether `finish` was completed, by this process or an earlier one."""
        return (self.path / RESULT).exists()

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
            TypeError: JSON cannot hold one of the values.
            RuntimeError: The run is finished or closed.
        """
        self._writable().append(values)

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
