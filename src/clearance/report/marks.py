"""What stands around a drawing: numbers along a logarithmic axis, and the names of its lines beside it."""

import math

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from clearance.report.figures import legend

DECADES = 2.5  # up to which 2 and 5 are written between powers of ten


def logarithmic(axis: Axis, unit: str = "") -> None:
    """Numbers as plain text (0.01, 2, 1e−5) on an axis that is logarithmic and has its limits.

    Args:
        axis: The axis.
        unit: Written after each number.
    """
    low, high = axis.get_view_interval()
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


def legend_beside(axes: Axes) -> None:
    """The names to the right of the axes, where they lie on nothing; none where there is only one."""
    if len(axes.get_legend_handles_labels()[0]) < 2:
        return
    legend(axes)
    box = axes.get_legend()
    assert box is not None  # there are names
    box.set_loc("center left")
    box.set_bbox_to_anchor((1.0, 0.5))
