"""The metrics of a run: a file of JSON lines that can be cut to an earlier length."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearance.runs._plain import plain


class Metrics:
    """The open end of a metrics file.

    Args:
        path: The file; created if missing.
        length: How many bytes of it to keep. The rest was written after the checkpoint from which the run
            continues, and will be written again.

    Raises:
        ValueError: The file is shorter than `length`.
    """

    def __init__(self, path: Path, length: int) -> None:
        size = path.stat().st_size if path.exists() else 0
        if size < length:
            raise ValueError(
                f"{path} must hold the {length} bytes that it had when the newest checkpoint was taken; got "
                f"{size}. Restore the file, or delete {path.parent} to start over."
            )
        self._file = path.open("ab")
        self._file.truncate(length)

    def append(self, values: Mapping[str, Any]) -> None:
        """Write one line, keys sorted, floats with all their digits."""
        line = json.dumps(plain(values, "values"), sort_keys=True)
        self._file.write(line.encode() + b"\n")
        self._file.flush()  # so that the file can be watched

    def sync(self) -> int:
        """Wait until the disk has every line; returns the length in bytes."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        """Close the file; nothing more can be appended."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Every line of a metrics file, in order; none if there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
