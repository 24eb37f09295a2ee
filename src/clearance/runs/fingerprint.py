"""Whether two runs are the same run: differences between fingerprints, and a digest of weights."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from clearance.runs.tree import snapshot

_SHOWN = 60  # characters of a value in a message
_MISSING = object()


def digest(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 over names, dtypes, shapes and values of `tensors`: equal for equal weights only.

    Args:
        tensors: Pairs such as ``module.state_dict().items()``; their order, device and layout in memory
            make no difference.

    Returns:
        64 hexadecimal digits, the same on every machine with the usual (little-endian) byte order.

    Raises:
        ValueError: A name occurs twice, or a tensor is sparse, quantised or complex.

    Values are compared as bits: 0.0 and -0.0 differ, and weights computed on another machine are
    rarely equal.

    >>> first = digest([("weight", torch.ones(2)), ("bias", torch.zeros(1))])
    >>> first == digest([("bias", torch.zeros(1)), ("weight", torch.ones(2))])
    True
    >>> first == digest([("weight", torch.ones(1, 2)), ("bias", torch.zeros(1))])
    False
    """
    pairs = list(tensors)
    by_name = dict(pairs)
    if len(by_name) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"the names in `tensors` must differ; got {', '.join(twice)} more than once.")
    found = hashlib.sha256()
    for name in sorted(by_name):
        tensor = snapshot(by_name[name], name)
        # the header fixes how many bytes follow, so that no two lists of tensors give the same bytes
        found.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


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
