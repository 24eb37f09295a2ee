"""How a number is printed: rounded for the eye, with the full number underneath.

Every measured or derived number on a page goes through `data`, which keeps it in the page unrounded; that is
what lets a test hold each printed number against ``report.json``.
"""

import math

from markupsafe import Markup

THIN = "\u202f"  # a narrow space that does not break: between a number and its unit
POINTS = "points"  # the unit in which a difference of two fractions is printed
LONG = 6  # characters of a decimal that is not a chosen setting


def printed(value: float | None, unit: str, half: float | None = None) -> str:
    r"""`value` as text with its unit.

    Args:
        value: The number; None prints as a dash.
        unit: ``"fraction"`` prints as percent, ``"factor"`` as times, ``"count"`` as a whole number where it
            is one, ``"points"`` as percentage points of a difference of fractions, ``"seconds"`` as minutes from ten
            of them on; of anything else three digits are printed.
        half: Half the width of the number's interval: digits finer than its second one are left out, so that
            no number looks more precise than it is. Percents have one decimal, two where `half` supports them, and
            none where it is above five percent.

    >>> printed(0.0333, "fraction"), printed(2.44, "factor"), printed(None, "ratio")
    ('3.3\u202f%', '2.4×', '–')
    >>> printed(57.64, "ratio"), printed(57.64, "ratio", half=25.0)
    ('57.6', '58')
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return _not_finite(value)
    if unit == "fraction":
        return f"{_percent(value * 100, 100 * (half or 0.0))}{THIN}%"
    if unit == POINTS:
        decimals = 2 if half is not None and half < 1e-3 else 1
        # a zero has no sign, whatever it was before rounding
        return f"{_minus(f'{round(100 * value, decimals) + 0.0:.{decimals}f}')}{THIN}points"
    if unit == "factor":
        return f"{_digits(value, 2)}×"
    if unit == "count":
        whole = value == round(value)
        return _minus(f"{value:,.0f}") if whole else _digits(value, max(2, _before(value) + 1), half)
    if unit == "seconds" and value >= 600:
        return f"{_digits(value / 60, 3, None if half is None else half / 60)}{THIN}min"
    return _digits(value, 3, half) + {"ratio": "", "": "", "squared error": "", "seconds": f"{THIN}s"}.get(
        unit, f"{THIN}{unit}"
    )


def data(value: float | None, unit: str, half: float | None = None) -> Markup:
    r"""`value` as `printed`, in an element that carries the full number.

    >>> data(0.0333, "fraction")
    Markup('<data value="0.0333">3.3\u202f%</data>')
    >>> data(-0.0004, POINTS, half=0.007).striptags()
    '0.0 points'
    """
    if value is None:
        return Markup("–")
    return _element(value, printed(value, unit, half))


def ratio(value: float) -> Markup:
    r"""A number between 0 and 1 with two decimals, as AUROC is written; more where these would make it 0 or 1.

    >>> ratio(0.6812), ratio(0.9951).striptags(), ratio(1.0).striptags()
    (Markup('<data value="0.6812">0.68</data>'), '0.995', '1.00')
    """
    if not math.isfinite(value):
        return _element(value, _not_finite(value))
    digits = 2
    while digits < 9 and float(text := f"{value:.{digits}f}") in (0, 1) and value != float(text):
        digits += 1
    return _element(value, f"{value:.{digits}f}")


def levels(value: float, half: float | None = None) -> Markup:
    r"""A change of a pixel, of the range from black to white, in levels of 255.

    >>> levels(0.0986, half=0.011).striptags(), levels(0.5 / 255).striptags()
    ('25.1/255', '0.500/255')
    """
    if not math.isfinite(value):
        return data(value, "")
    return _element(value, f"{_digits(255 * value, 3, None if half is None else 255 * half)}/255")


def rest(value: float, half: float | None = None) -> Markup:
    r"""What a fraction leaves of the whole (of wrong answers, the right ones), over the fraction itself.

    >>> rest(0.058, half=0.02)
    Markup('<data value="0.058">94.2\u202f%</data>')
    """
    return _element(value, printed(1 - value, "fraction", half))


def rest_interval(low: float, high: float) -> Markup:
    r"""Both ends of the interval of `rest`, the lower one first; the unit is written once.

    >>> rest_interval(0.04, 0.08).striptags()
    '92.0 to 96.0 %'
    """
    half = half_width(low, high)
    first = printed(1 - high, "fraction", half).removesuffix(f"{THIN}%")
    return Markup("{} to {}").format(_element(high, first), rest(low, half))


def half_width(low: float | None, high: float | None) -> float | None:
    """Half the width of an interval; None without a finite interval.

    >>> half_width(1.0, 4.0), half_width(1.0, math.inf), half_width(None, None)
    (1.5, None, None)
    """
    if low is None or high is None or not math.isfinite(high - low):
        return None
    return (high - low) / 2


def exact(value: float) -> Markup:
    """A chosen setting, with the digits it was chosen with; radii also in grey levels.

    >>> exact(1e-3).striptags(), exact(5).striptags(), exact(8 / 255).striptags()
    ('0.001', '5', '8/255')
    """
    text, levels = f"{value:g}", round(255 * value)
    if float(value).is_integer():
        text = f"{int(value)}"
    elif len(text) > LONG and abs(255 * value - levels) < 1e-9:
        text = f"{levels}/255"
    return _element(value, _minus(text))


def interval(low: float | None, high: float | None, unit: str) -> Markup:
    """Both ends of an interval, with as many digits as its width supports; empty without an interval.

    >>> interval(0.025, 0.05, "fraction").striptags()
    '2.5 to 5.0 %'
    """
    if low is None or high is None:
        return Markup("")
    half = half_width(low, high)
    first, last = printed(low, unit, half), printed(high, unit, half)
    shared = "×" if unit == "factor" else last[last.find(THIN) :] if THIN in last else ""
    return Markup("{} to {}").format(_element(low, first.removesuffix(shared)), _element(high, last))


def _element(value: float, text: str) -> Markup:
    full = repr(float(value)) if isinstance(value, float) else str(value)
    return Markup('<data value="{}">{}</data>').format(full, text)


def _not_finite(value: float) -> str:
    return "not a number" if math.isnan(value) else ("∞" if value > 0 else "−∞")


def _percent(value: float, half: float) -> str:
    """One decimal is a tenth of a percent: finer than a test set of a thousand images can say.

    None where the interval reaches further than five percent to each side.
    """
    if half >= 5:
        return _minus(f"{value:.0f}")
    near = min(abs(value), abs(100 - abs(value)))
    if 1e-6 < near < 0.005 and half < 0.1:  # neither 0 nor 100, and not printed so
        return _minus(f"{value:.{-math.floor(math.log10(near))}f}")
    return _minus(
        f"{value:.2f}"
        if 0 < abs(value) < 0.1 or 0 < 100 - abs(value) < 0.1 or 0 < half < 0.1
        else f"{value:.1f}"
    )


def _digits(value: float, count: int, half: float | None = None) -> str:
    """`count` significant digits, or as few as `half` supports, without an exponent where it reads well."""
    if value == 0:
        return "0"
    if not 1e-5 <= abs(value) < 1e6:
        return _minus(f"{value:.{count - 1}e}")
    decimals = count - _before(value)
    if half:
        # the second digit of the interval, but never less than the first digit of the number
        decimals = min(decimals, max(2 - _before(half), 1 - _before(value)))
    return _minus(
        f"{round(value, decimals):.{max(0, decimals)}f}" if half else f"{value:.{max(0, decimals)}f}"
    )


def _before(value: float) -> int:
    """How many digits a number has before the point; 0 for 0.1, -1 for 0.01."""
    return math.floor(math.log10(abs(value))) + 1


def _minus(text: str) -> str:
    return text.replace("-", "−")
