"""Every check of an argument, in one wording: what, expected, got."""

import difflib
import math
import numbers
from collections.abc import Iterable


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless `value` is a finite number above zero."""
    if not (_is_finite(value) and value > 0):
        raise ValueError(f"`{name}` must be a finite number above 0; got {_shown(value)}.")


def check_non_negative(name: str, value: float) -> None:
    """Raise ValueError unless `value` is a finite number of at least zero."""
    if not (_is_finite(value) and value >= 0):
        raise ValueError(f"`{name}` must be a finite number of at least 0; got {_shown(value)}.")


def check_fraction(name: str, value: float, *, open_below: bool = False, open_above: bool = False) -> None:
    """Raise ValueError unless `value` is in [0, 1]; the ends can be excluded."""
    inside = (
        _is_finite(value)
        and (value > 0 if open_below else value >= 0)
        and (value < 1 if open_above else value <= 1)
    )
    if not inside:
        interval = f"{'(' if open_below else '['}0, 1{')' if open_above else ']'}"
        raise ValueError(f"`{name}` must lie in {interval}; got {_shown(value)}.")


def check_count(name: str, value: int, *, minimum: int = 1) -> None:
    """Raise ValueError unless `value` is a whole number of at least `minimum` and at most 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value < 2**63:
        foreign = (
            f"{value!r}. Write int({name})."
            if isinstance(value, numbers.Integral) and not isinstance(value, int)
            else f"{_shown(value)}."
        )
        raise ValueError(f"`{name}` must be a whole number of at least {minimum}; got {foreign}")


def check_pixel_range(low: float, high: float, remedy: str) -> None:
    """Raise ValueError unless pixels from `low` to `high` lie in [0, 1]; for rounding it says clamp."""
    if low >= 0 and high <= 1:  # not where a pixel is not a number
        return
    if low > -1e-3 and high < 1 + 1e-3:
        remedy = "that is rounding: write images.clamp(0, 1)"
    raise ValueError(f"`images` must lie in [0, 1]; got values from {low:.9g} to {high:.9g}; {remedy}.")


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise ValueError unless `value` is one of `choices`; the message suggests the closest."""
    known = list(choices)
    if value not in known:
        raise ValueError(
            f"`{name}` must be one of {', '.join(map(repr, known))}; got {value!r}.{did_you_mean(value, known)}"
        )


def did_you_mean(name: str, known: list[str]) -> str:
    """The end of a message about a misspelt name: the closest of those known, if any is close."""
    within = [one for one in known if one.endswith(f".{name}")]  # its name inside something else
    near = within[:1] or difflib.get_close_matches(str(name), known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _is_number(value: object) -> bool:
    """Whether it can be compared with numbers; True and False cannot."""
    return hasattr(value, "__float__") and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    """Whether it is a number that a float can hold."""
    try:
        return _is_number(value) and math.isfinite(value)  # type: ignore[arg-type]  # a number
    except OverflowError:
        return False


def _shown(value: object) -> str:
    """Numbers as printed, everything else as its repr, huge whole numbers by their size."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    return str(value) if _is_number(value) else repr(value)
