"""1 and 1.0 are one setting: runs are kept under names that would tell them apart."""

from functools import cache
from typing import Any, get_args, get_type_hints


def whole_as_floats(settings: Any) -> None:
    """Make floats of whole numbers, in place, in those fields of a frozen dataclass that hold floats.

    >>> from clearance.experiments.method import Method
    >>> Method(lr=1).lr
    1.0
    """
    kind: type = type(settings)
    for name in _floating(kind):
        value = getattr(settings, name)
        if type(value) is int:
            object.__setattr__(settings, name, float(value))


@cache
def _floating(kind: type) -> tuple[str, ...]:
    hints = get_type_hints(kind)
    return tuple(name for name, hint in hints.items() if hint is float or float in get_args(hint))
