"""JSON files that are complete or absent."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearance._files import write_bytes


def plain(value: Any, name: str) -> Any:
    """`value` in dicts and lists: tuples become lists, mappings become dicts.

    Raises:
        ValueError: `value` contains another type, or a key that is not a str.

    >>> plain({"widths": (64, 32)}, "fingerprint")
    {'widths': [64, 32]}
    """
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, list | tuple):
        return [plain(item, f"{name}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        _check_keys(value, name)
        return {key: plain(item, f"{name}[{key!r}]") for key, item in value.items()}
    raise ValueError(
        f"`{name}` must be something that JSON can hold (None, bool, int, float, str, or a list or mapping "
        f"of these); got {type(value).__name__}. Convert it first, for example with `str()` or `.item()`."
    )


def _check_keys(value: Mapping, name: str) -> None:
    others = [key for key in value if not isinstance(key, str)]
    if others:
        raise ValueError(f"the keys of `{name}` must be str; got {others[0]!r}. Convert it with `str()`.")


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
    write_bytes(path, json_text(plain(value, path.stem)))


def json_text(value: Any) -> bytes:
    """Plain values as indented JSON."""
    return (json.dumps(value, indent=2) + "\n").encode()
