"""Settings from plain values, as YAML and JSON files hold them."""

import dataclasses
import difflib
import typing
from collections.abc import Mapping
from typing import Any

USUAL = {
    "learning_rate": ("lr",),
    "wd": ("weight_decay",),
    "decay": ("weight_decay",),
    "loss": ("objective",),
}
"""What others call settings."""


def filled(kind: Any, values: Mapping[str, Any], source: str) -> Any:
    """A frozen dataclass from plain values, each as its field wants it.

    Args:
        kind: The dataclass.
        values: By field.
        source: Where they come from, for the message.

    Raises:
        ValueError: If there is no such field, or a value is of another type.
    """
    fields = {f.name: f for f in dataclasses.fields(kind)}
    for key in values:
        if key not in fields:
            near = [*USUAL.get(key, ()), *difflib.get_close_matches(key, fields, n=1, cutoff=0.5)]
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{source}: no setting {key!r}; known are {', '.join(fields)}.{hint}")
    try:
        return kind(**{k: _typed(v, fields[k], k) for k, v in values.items()})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{source}: {error}") from error


_KINDS = {
    bool: "true or false",
    int: "a whole number",
    str: "a word",
    tuple: "a list, as in [a, b]",
    dict: "a mapping",
}


def _example(setting: "dataclasses.Field[Any]") -> Any:
    """A value of the setting's type: its default, or for `float | None` and the like an empty one."""
    if setting.default is None:
        return next(kind for kind in typing.get_args(setting.type) if kind is not type(None))()
    made = setting.default_factory
    return setting.default if made is dataclasses.MISSING else made()


def _typed(value: Any, setting: "dataclasses.Field[Any]", name: str) -> Any:
    """A YAML value as the field wants it: lists become tuples, whole numbers floats where one is meant."""
    if value is None and setting.default is None:
        return None
    if isinstance(value, list):
        value = tuple(value)
    default = _example(setting)
    for kind, meant in _KINDS.items():
        if type(default) is kind and not isinstance(value, kind):
            raise ValueError(f"`{name}` must be {meant}; got {value!r}.")
    if isinstance(default, float):
        try:
            return float("true is no number" if isinstance(value, bool) else value)  # YAML reads 5e-4 as text
        except (TypeError, ValueError):
            raise ValueError(f"`{name}` must be a number; got {value!r}.") from None
    return value
