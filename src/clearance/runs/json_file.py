"""JSON files that are there entirely or not at all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearance._files import write_bytes


def plain(value: Any, name: str) -> Any:
    """`value` in dicts and lists: tuples become lists, mappings become dicts.

    Raises:
        ValueError: Something else stands in `value`, or a key that is no str.

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
