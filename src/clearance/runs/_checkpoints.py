"""Checkpoints: directories renamed into place; the newest one counts."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from clearance._files import sync_directory, write_synced
from clearance.runs.tree import flatten, unflatten

_SCHEMA = 1
_TENSORS = "tensors.safetensors"
_STATE = "state.json"
_TEMPORARY = ".tmp-"
# errors from reading files that were damaged
_DAMAGE = (OSError, SafetensorError, ValueError, LookupError, TypeError, RuntimeError)


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after a step.

    Args:
        step: Steps done.
        state: The saved tree, with its tensors on the CPU.

    >>> Checkpoint(step=120, state={"lr": 0.1}).step
    120
    """

    step: int
    state: Any


def newest_step(folder: Path) -> int | None:
    """The step of the newest complete checkpoint, None if there is none; temporaries do not count."""
    return max(_steps(folder), default=None)


def write_checkpoint(folder: Path, step: int, state: Any, metrics_bytes: int) -> None:
    """Write a checkpoint, then delete older ones.

    Args:
        folder: The directory of all checkpoints; created if missing.
        step: Steps done; above that of every checkpoint in `folder`.
        state: What `clearance.runs.tree.flatten` takes.
        metrics_bytes: Length of the metrics at this step.
    """
    tree, tensors = flatten(state)
    header = {"schema": _SCHEMA, "step": step, "metrics_bytes": metrics_bytes, "state": tree}
    remove_temporaries(folder)
    temporary = folder / f"{_TEMPORARY}{step}-{os.getpid()}"
    temporary.mkdir(parents=True)
    write_synced(temporary / _TENSORS, save(tensors))
    write_synced(temporary / _STATE, (json.dumps(header) + "\n").encode())
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
        tensors = load((path / _TENSORS).read_bytes())
        return Checkpoint(step, unflatten(state["state"], tensors))
    except _DAMAGE as error:
        raise _unreadable(path, error) from error


def read_metrics_bytes(folder: Path, step: int) -> int:
    """The length of the metrics at the checkpoint of `step`.

    Raises:
        ValueError: It cannot be read.
    """
    path = folder / f"{step:08d}"
    try:
        return int(_read_state(path)["metrics_bytes"])
    except (LookupError, TypeError) as error:
        raise _unreadable(path, error) from error


def remove_temporaries(folder: Path) -> None:
    """Delete what killed or failed processes left while writing a checkpoint."""
    for left in list(folder.glob(f"{_TEMPORARY}*")):
        shutil.rmtree(left)


def _steps(folder: Path) -> list[int]:
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return [int(name) for name in names if name.isascii() and name.isdigit() and name == f"{int(name):08d}"]


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = json.loads((path / _STATE).read_bytes())
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
