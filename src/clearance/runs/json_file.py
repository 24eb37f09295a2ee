"""JSON files that are complete or absent."""

import json
from pathlib import Path
from typing import Any

from clearance._files import write_bytes
from clearance.runs._plain import plain


def write_json(path: Path, value: Any) -> None:
    """Put `value` at `path` as indented JSON, atomically, by `write_bytes`.

    Args:
        path: The file; its directory must exist.
        value: None, bool, int, float, str, and lists, tuples (written as lists) and mappings of them.

    Raises:
        ValueError: JSON cannot hold a part of `value`; the message says which.
        OSError: As in `write_bytes`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(Path(folder, "a.json"), {"error": 0.1})
    ...     print(Path(folder, "a.json").read_text())
    {
      "error": 0.1
    }
    """
    write_bytes(path, (json.dumps(plain(value, path.stem), indent=2) + "\n").encode())
