"""How a number is printed: rounded for the eye, with the full number underneath.

Every measured or derived number on a page goes through `data`, which keeps it in the page unrounded; that is
what lets a test hold each printed number against ``report.json``.
"""

import math

from markupsafe import Markup

THIN = "\u202f"  # a narrow space that does not break: between a number and its unit


def printed(value: float | None, unit: str) -> str:
    r"""`value` as text with its unit.

    Args:
        value: The number; None prints as a dash.
        unit: ``"fraction"`` prints as percent, ``"factor"`` as times, ``"count"`` as a whole number where it
            is one, ``"seconds"`` as minutes from ten of them on; of anything else three digits are printed.

    >>> printed(0.0333, "fraction"), printed(2.44, "factor"), printed(None, "ratio")
    ('3.3\u202f%', '2.4×', '–')
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if unit == "fraction":
        return f"{_percent(value * 100)}{THIN}%"
    if unit == "factor":
        return f"{_digits(value, 2)}×"
    if unit == "count":
        return _minus(f"{value:.0f}" if value == round(value) else f"{value:.1f}")
    if unit == "seconds":
        return f"{_digits(value, 3)}{THIN}s" if value < 600 else f"{_digits(value / 60, 3)}{THIN}min"
    return _digits(value, 3) + ("" if unit in ("ratio", "") else f"{THIN}{unit}")


def data(value: float | None, unit: str) -> Markup:
    r"""`value` as `printed`, in an element that carries the full number.

    >>> data(0.0333, "fraction")
    Markup('<data value="0.0333">3.3\u202f%</data>')
    """
    if value is None:
        return Markup("–")
    return _element(value, printed(value, unit))


def exact(value: float) -> Markup:
    """A setting that somebody chose, with the digits that it was chosen with.

    >>> exact(1e-3).striptags(), exact(5).striptags()
    ('0.001', '5')
    """
    return _element(value, _minus(f"{value:g}"))


def interval(low: float | None, high: float | None, unit: str) -> Markup:
    """Both ends of an interval; nothing where there is none.

    >>> interval(0.025, 0.05, "fraction").striptags()
    '2.5 to 5.0 %'
    """
    if low is None or high is None:
        return Markup("")
    bare = printed(low, unit).removesuffix(f"{THIN}%").removesuffix("×").removesuffix(f"{THIN}s")
    bare = bare.removesuffix(f"{THIN}{unit}")
    return Markup("{} to {}").format(_element(low, bare), data(high, unit))


def _element(value: float, text: str) -> Markup:
    full = repr(float(value)) if isinstance(value, float) else str(value)
    return Markup('<data value="{}">{}</data>').format(full, text)


def _percent(value: float) -> str:
    """One decimal is a tenth of a percent: finer than a test set of a thousand images can say."""
    return _minus(f"{value:.2f}" if 0 < abs(value) < 0.1 else f"{value:.1f}")


def _digits(value: float, count: int) -> str:
    """`count` significant digits, without an exponent for what still reads well without."""
    if value == 0:
        return "0"
    if not 1e-5 <= abs(value) < 1e6:
        return _minus(f"{value:.{count - 1}e}")
    before = math.floor(math.log10(abs(value))) + 1
    return _minus(f"{value:.{max(0, count - before)}f}")


def _minus(text: str) -> str:
    return text.replace("-", "−")
