"""NaN and infinities in strict JSON.

JSON has neither, and ``null`` means "not measured". A number that is not finite is therefore written as an object with
one key::

    {"float": "NaN"}    {"float": "Infinity"}    {"float": "-Infinity"}

The text "NaN" stays a text (a class may have that name). Python's ``float`` and JavaScript's ``Number`` both read the
text inside.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def encode(value: Any) -> Any:
    """`value` converted to values that strict JSON can hold.

    Args:
        value: None, text, numbers (NumPy's too), and sequences, arrays or mappings of these.

    Raises:
        TypeError: A part of it is of another type.

    >>> encode({"accuracy": [1.0, float("nan")], "norm": float("inf")})
    {'accuracy': [1.0, {'float': 'NaN'}], 'norm': {'float': 'Infinity'}}
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": json.dumps(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [encode(entry) for entry in value]
    raise TypeError(
        f"A report holds text, numbers, None, lists and mappings; got {type(value).__name__}. "
        "Convert it before it is recorded."
    )


def decode(value: Any) -> Any:
    """The inverse of `encode`, with lists for sequences.

    Raises:
        ValueError: An integer has more than 64 bits.

    >>> decode([{"float": "-Infinity"}, "NaN", None])
    [-inf, 'NaN', None]
    """
    if isinstance(value, dict):
        if set(value) == {"float"} and value["float"] in NON_FINITE:
            return NON_FINITE[value["float"]]
        return {key: decode(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [decode(entry) for entry in value]
    if isinstance(value, int) and value.bit_length() > 63:
        raise ValueError(f"whole numbers must have at most 64 bits; got one of {value.bit_length()}")
    return value
