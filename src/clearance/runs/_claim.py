"""Who may use a run directory: one fingerprint always, one process at a time."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from clearance.runs.fingerprint import differences
from clearance.runs.json_file import write_json

RUN = "run.json"
LOCK = "lock"
_SCHEMA = 1
_NAMED = 5  # differences in a message
_POLL_SECONDS = 0.2


def check_claim(path: Path, fingerprint: Mapping[str, Any]) -> None:
    """Raise unless `path` is free, or already belongs to `fingerprint` (plain JSON values).

    Raises:
        NotADirectoryError: `path` is a file.
        ValueError: It belongs to another fingerprint, or is not a run directory.
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


def claim(
    path: Path, fingerprint: Mapping[str, Any], *, wait: bool, on_wait: Callable[[str], object]
) -> BaseFileLock:
    """Make `path` the directory of `fingerprint`, and lock it for this process.

    Raises:
        BlockingIOError: Another process works in it and `wait` is False.
        OSError: It cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = _acquire(path, wait=wait, on_wait=on_wait)
    except BlockingIOError:
        raise
    except OSError as error:
        # OSError chooses the subclass for the number, for example PermissionError
        reason = error.strerror or str(error)
        raise OSError(
            error.errno, f"`path` must be a directory that can be made and written; got {path}: {reason}"
        ) from error
    try:
        check_claim(path, fingerprint)  # again: another process may have come first
        for left in list(path.glob(".*.tmp")):
            left.unlink()
        if not (path / RUN).exists():
            write_json(path / RUN, {"schema": _SCHEMA, "fingerprint": fingerprint})
    except BaseException:
        lock.release()
        raise
    return lock


def read_fingerprint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fingerprint of the run in `path`, finished or not; takes no lock.

    Args:
        path: A run's directory.

    Raises:
        ValueError: There is no readable fingerprint.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     claim(Path(folder), {"seed": 0}, wait=True, on_wait=print).release()
    ...     read_fingerprint(folder)
    {'seed': 0}
    """
    file = Path(path) / RUN
    try:
        content = json.loads(file.read_bytes())
        schema, fingerprint = content["schema"], content["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{file} must hold the fingerprint of a run; got {type(error).__name__}: {error}. "
            f"Restore it, or use another directory."
        ) from error
    if schema != _SCHEMA:
        raise ValueError(
            f"{file} must be of schema {_SCHEMA}; got {schema!r}. Use the version of torch-clearance that "
            f"wrote it, or another directory."
        )
    return fingerprint


def _check_same(path: Path, fingerprint: Mapping[str, Any]) -> None:
    found = differences(read_fingerprint(path), fingerprint)
    if found:
        more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise ValueError(
            f"`path` must be the directory of the same run; got {path}, which differs in "
            f"{'; '.join(found[:_NAMED])}{more}. Use another directory, or delete this one to start over."
        )


def _acquire(path: Path, *, wait: bool, on_wait: Callable[[str], object]) -> BaseFileLock:
    lock = FileLock(path / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise BlockingIOError(
                f"`path` must be free to work in; got {path}, in which another process is working. "
                f"Wait for it, or use another directory."
            ) from None
        on_wait(f"another process is working in {path}; waiting for it ...")
        lock.acquire(poll_interval=_POLL_SECONDS)
    return lock


def _entries(path: Path) -> list[Path]:
    return list(path.iterdir()) if path.is_dir() else []


def _is_ours(entry: Path) -> bool:
    """Whether `entry` was left by a process that was killed before it had written the fingerprint."""
    return entry.name == LOCK or (entry.name.startswith(f".{RUN}.") and entry.name.endswith(".tmp"))
