"""Where the fingerprints of two runs differ."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

_SHOWN = 60  # characters of a value in a message
_MISSING = object()


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
