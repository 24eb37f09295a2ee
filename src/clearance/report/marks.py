"""What stands around a drawing: numbers along a logarithmic axis, and the names of its lines."""

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from clearance.report.svg import INK

WIDE = 5.5  # inches from which on three names fit beside one another
DECADES = 2.5  # up to which 2 and 5 are written between powers of ten


def logarithmic(axis: Axis, unit: str = "") -> None:
    """Numbers as plain text (0.01, 2, 1e−5) on an axis that is logarithmic and has its limits.

    Args:
        axis: The axis.
        unit: Written after each number.
    """
    low, high = sorted(axis.get_view_interval())  # a turned axis begins with the larger one
    near = math.log10(high / low) <= DECADES
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if near else (1.0,), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value) + unit))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())


def plain(value: float) -> str:
    """A round number as text.

    >>> plain(0.002), plain(1e-8), plain(200.0)
    ('0.002', '1e−8', '200')
    """
    return f"{value:g}".replace("e-0", "e−").replace("-", "−")


def legend(axes: Axes) -> None:
    """The names of what has one; a dollar sign in a name is a dollar sign."""
    if axes.get_legend_handles_labels()[0]:
        # said in words, because matplotlib warns of "best" as a default where a busy machine takes a second for it
        _literal(axes.legend(loc="best", frameon=False, fontsize=9.5, labelcolor=INK))


def legend_below(axes: Axes) -> None:
    """The names under the picture, where no line can run through them; none where there is only one."""
    named = axes.get_legend_handles_labels()
    figure = axes.get_figure()
    if len(named[0]) > 1 and isinstance(figure, Figure):
        columns = 3 if figure.get_figwidth() > WIDE else 2
        space: dict[str, Any] = {"ncols": columns, "columnspacing": 1.4, "handlelength": 2.2}
        box = figure.legend(
            *named, loc="outside lower center", frameon=False, fontsize=9.5, labelcolor=INK, **space
        )
        _literal(box)


def _literal(box: Legend) -> None:
    for text in box.get_texts():
        text.set_parse_math(False)
