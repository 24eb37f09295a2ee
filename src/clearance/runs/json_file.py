"""Values that JSON files hold, and their text."""

import json
from collections.abc import Mapping
from typing import Any


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


def json_text(value: Any, name: str) -> bytes:
    r"""`value`, made `plain`, as indented JSON.

    Raises:
        ValueError: JSON cannot hold a part of `value`; the message says which.

    >>> json_text({"error": 0.1}, "report")
    b'{\n  "error": 0.1\n}\n'
    """
    return (json.dumps(plain(value, name), indent=2) + "\n").encode()
