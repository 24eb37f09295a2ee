"""The files of a finished run: its weights, and a result whose presence marks it as finished."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from clearance._files import write_bytes
from clearance.runs._plain import plain
from clearance.runs.json_file import write_json
from clearance.runs.tree import snapshot

MODEL = "model.safetensors"
RESULT = "result.json"


def is_finished(path: Path) -> bool:
    """Whether the run in `path` has written its result."""
    return (path / RESULT).exists()


def write_result(path: Path, weights: Mapping[str, Tensor], result: Mapping[str, Any]) -> None:
    """Write the weights, then the result; writes nothing if either cannot be stored.

    Raises:
        ValueError: A weight is not a dense tensor of a real dtype, or JSON cannot hold a value of `result`.
    """
    stored = {name: snapshot(tensor, f"weights[{name!r}]").contiguous() for name, tensor in weights.items()}
    content = plain(result, "result")
    write_bytes(path / MODEL, save(stored))
    write_json(path / RESULT, content)


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
    if not is_finished(folder):
        raise ValueError(
            f"`path` must be the directory of a finished run; got {folder}, which has no {RESULT}. "
            f"Finish the run first."
        )
    try:
        result = json.loads((folder / RESULT).read_bytes())
        weights = load((folder / MODEL).read_bytes())
    except (OSError, ValueError, SafetensorError) as error:
        raise ValueError(
            f"{folder} must hold a readable {MODEL} and {RESULT}; got {type(error).__name__}: {error}. They "
            f"were changed after they were written. Restore them, or delete {folder} to start over."
        ) from error
    # cloned into memory aligned by torch, as in a run that was not read from a file
    return {name: tensor.clone() for name, tensor in weights.items()}, result
