"""Points in groups: a place per group, in it a point with a bar for each method."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from clearance.report.figures import empty
from clearance.report.marks import legend_below, logarithmic
from clearance.report.names import method_name
from clearance.report.svg import GRID, INK, MUTED, marker, series

Rows = Sequence[Mapping[str, Any]]
WIDTH = 0.62  # of a group, where the next is 1 away


def groups(
    rows: Rows,
    key: str,
    names: Mapping[Any, str],
    methods: Sequence[str],
    label: str,
    *,
    size: tuple[float, float],
    percent: bool = False,
    level: tuple[str, float] | None = None,
) -> Figure:
    """A point for each finite number, on a logarithmic axis where all are above 0.

    Args:
        rows: With ``method``, `key`, ``mean``, ``low``, ``high``.
        key: What makes the groups.
        names: What each group is called, in their order.
        methods: In the page's order, which gives colours and markers.
        label: Of the vertical axis.
        size: Width and height, inches.
        percent: Whether numbers are shares, shown as percent.
        level: A name and a number to draw as a line across.
    """
    figure, axes = empty(size)
    rows = [row for row in rows if math.isfinite(row["mean"])]
    scale = 100 if percent else 1
    means = [scale * row["mean"] for row in rows if row["method"] in methods]
    if level is not None:
        means.append(scale * level[1])
        axes.axhline(scale * level[1], color=MUTED, linewidth=1.2, label=level[0])
    for index, method in enumerate(methods):
        shift = WIDTH * ((index + 0.5) / len(methods) - 0.5)
        _points(axes, rows, key, list(names), (index, method, shift), scale)
    for edge in range(1, len(names)):
        axes.axvline(edge - 0.5, color=GRID, linewidth=0.7)
    axes.set_xticks(range(len(names)), list(names.values()))
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel(label, color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    _scale(axes, means, " %" if percent else "")
    legend_below(axes)
    return figure


def _points(
    axes: Axes, rows: Rows, key: str, places: Sequence[Any], who: tuple[int, str, float], scale: int
) -> None:
    index, method, shift = who
    label = method_name(method)
    for row in rows:
        if row["method"] != method or row[key] not in places:
            continue
        x, y = places.index(row[key]) + shift, scale * row["mean"]
        axes.plot(
            [x], [y], color=series(index), marker=marker(index), markersize=6.5, linestyle="", label=label
        )
        label = "_"
        if row["low"] is not None and row["high"] is not None:
            ends = [scale * row["low"], scale * row["high"]]
            axes.plot([x, x], ends, color=series(index), linewidth=1.2, zorder=1)


def _scale(axes: Axes, means: Sequence[float], unit: str) -> None:
    if means and min(means) > 0:
        axes.set_yscale("log", nonpositive="clip")
        axes.set_ylabel(f"{axes.get_ylabel()} (logarithmic)")
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, 0.5 * min(means)), top)  # an interval may reach down to zero
        logarithmic(axes.yaxis, unit)
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))
