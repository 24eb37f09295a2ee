"""Lines of several methods over one quantity, each with its interval as a shade: rows of a summary exhibit."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from clearance.report.figures import empty
from clearance.report.marks import legend_below, logarithmic
from clearance.report.names import method_name
from clearance.report.svg import GRID, INK, marker, series

Rows = Sequence[Mapping[str, Any]]
MOST_MARKED = 20  # places up to which each bears a marker


def bands(
    rows: Rows,
    x: str,
    methods: Sequence[str],
    labels: tuple[str, str],
    *,
    size: tuple[float, float],
    percent: bool = False,
    log: str = "",
    dashed: Rows = (),
) -> Figure:
    """A line per method through ``mean`` over `x`, shaded from ``low`` to ``high``; what is not finite is a gap.

    Args:
        rows: With ``method``, `x`, ``mean``, ``low``, ``high``.
        x: Name of the horizontal quantity.
        methods: In the page's order, which gives colours and markers.
        labels: Of the horizontal and the vertical axis.
        size: Width and height, inches.
        percent: Whether numbers are shares, shown as percent.
        log: Which axes are logarithmic, if every number allows it: ``"x"``, ``"y"``, ``"xy"`` or none.
        dashed: More rows, drawn dashed and without shade or name.
    """
    figure, axes = empty(size)
    scale = 100 if percent else 1
    for index, method in enumerate(methods):
        _line(axes, _of(rows, method), x, index, scale, method_name(method))
        _dashed(axes, _of(dashed, method), x, index, scale)
    axes.set_xlabel(labels[0], color=INK)
    axes.set_ylabel(labels[1], color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    _scales(axes, [*rows, *dashed], x, log, scale)
    legend_below(axes)
    return figure


def _of(rows: Rows, method: str) -> Rows:
    return [row for row in rows if row["method"] == method and _finite(row)]


def _line(axes: Axes, rows: Rows, x: str, index: int, scale: int, label: str) -> None:
    if not rows:
        return
    places = [row[x] for row in rows]
    marked = marker(index) if len(rows) <= MOST_MARKED else None
    drawn = [scale * row["mean"] for row in rows]
    axes.plot(places, drawn, color=series(index), marker=marked, markersize=4.5, linewidth=1.6, label=label)
    sided = [row for row in rows if row.get("low") is not None and row.get("high") is not None]
    if sided:
        low, high = ([scale * row[end] for row in sided] for end in ("low", "high"))
        axes.fill_between([row[x] for row in sided], low, high, color=series(index), alpha=0.13, linewidth=0)


def _dashed(axes: Axes, rows: Rows, x: str, index: int, scale: int) -> None:
    if rows:
        drawn = [scale * row["mean"] for row in rows]
        axes.plot([row[x] for row in rows], drawn, color=series(index), linewidth=1.1, dashes=(5, 3))


def _finite(row: Mapping[str, Any]) -> bool:
    return row["mean"] is not None and math.isfinite(row["mean"])


def _scales(axes: Axes, rows: Rows, x: str, log: str, scale: int) -> None:
    unit = " %" if scale == 100 else ""
    means = [scale * row["mean"] for row in rows if _finite(row)]
    if "x" in log and rows and all(row[x] > 0 for row in rows):
        axes.set_xscale("log")
        axes.set_xlabel(f"{axes.get_xlabel()} (logarithmic)")
        logarithmic(axes.xaxis)
    elif "x" in log and len(places := sorted({row[x] for row in rows})) > 2 and places[0] == 0:
        axes.set_xscale("symlog", linthresh=places[1], linscale=0.6)
        axes.set_xlabel(f"{axes.get_xlabel()} (logarithmic, and 0)")
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    else:
        whole = all(float(row[x]).is_integer() for row in rows)
        steps = None if whole else [1, 2, 2.5, 5, 10]
        axes.xaxis.set_major_locator(MaxNLocator("auto" if whole else 7, integer=whole, steps=steps))
    if "y" in log and means and min(means) > 0:
        axes.set_yscale("log", nonpositive="clip")
        axes.set_ylabel(f"{axes.get_ylabel()} (logarithmic)")
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, 0.4 * min(means)), top)  # an interval may reach down to zero
        logarithmic(axes.yaxis, unit)
    else:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))
        if means and min(means) >= 0:
            axes.set_ylim(bottom=0)
