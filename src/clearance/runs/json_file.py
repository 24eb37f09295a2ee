"""JSON files that are there entirely or not at all."""

import json
from pathlib import Path
from typing import Any

from clearance._files import write_bytes
from clearance.runs._plain import plain


def write_json(path: Path, value: Any) -> None:
    """Put `value` at `path` as indented JSON, in the way of `write_bytes`.

    Args:
        path: Where to; its directory must exist.
        value: None, bool, int, float, str, and lists, tuples (written as lists) and mappings of them.

    Raises:
        ValueError: Something in `value` has no place in JSON; the message says where it stands.
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
