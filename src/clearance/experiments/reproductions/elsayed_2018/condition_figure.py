"""The figures of this paper's studies: a panel for each table, methods over conditions with their spread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from clearance.report.drawing import plain, styled
from clearance.report.svg import GRID, INK, marker, series

COLUMNS = 3
WIDTH, HEIGHT = 3.6, 3.1  # of a panel, inches
ROOM = 0.9  # for the names below, inches
BESIDE = 0.25  # of the way to the next condition is filled by the methods' places beside each other
APART = 0.6  # where no line joins them
Scale = Literal["linear", "log", "apart"]
Point = tuple[float, float | None]
BASELINE: Literal["solid"] = "solid"  # the first method, which all others are held against
STYLES: tuple[Literal["dashed", "dotted", "dashdot"], ...] = ("dashed", "dotted", "dashdot")


@dataclass(frozen=True)
class Panel:
    """One drawing of the figure.

    Args:
        title: What stands above it.
        label: Of the axis along which conditions stand.
        scale: ``"linear"``, ``"log"``, or ``"apart"`` for conditions between which no line means anything.
        points: By method and condition: the mean, a fraction, and its spread over seeds.
    """

    title: str
    label: str
    scale: Scale
    points: Mapping[str, Mapping[Any, Point]]

    @property
    def conditions(self) -> list[Any]:
        """All that some method was measured under, ascending."""
        return sorted({value for points in self.points.values() for value in points})


def condition_figure(panels: Sequence[Panel], height: str) -> Figure:
    """Panels side by side, with one axis of height and one set of names.

    Args:
        panels: At least one; all have the same methods.
        height: What is measured, in words.
    """
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    size = (max(WIDTH * columns, 2 * WIDTH), HEIGHT * rows + ROOM)
    figure = Figure(figsize=size, layout="constrained")
    cells = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axes, panel in zip(cells.flat, panels, strict=False):
        _draw(axes, panel)
    for axes in list(cells.flat)[len(panels) :]:
        axes.set_visible(False)
    for row in cells:
        row[0].set_ylabel(height, color=INK)
    cells[0][0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    names = cells[0][0].get_legend_handles_labels()
    figure.legend(
        *names, loc="outside lower center", ncols=4, frameon=False, fontsize=9.5, labelcolor=INK, handlelength=2.6
    )  # fmt: skip
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    styled(axes)
    places = _places(panel)
    for index, (method, points) in enumerate(panel.points.items()):
        there = [value for value in panel.conditions if value in points]
        x = [places[value][index] for value in there]
        axes.errorbar(
            x, [points[value][0] for value in there], yerr=[points[value][1] or 0.0 for value in there],
            color=series(index), marker=marker(index), markersize=4, linewidth=1.1, elinewidth=0.8,
            linestyle=_style(index, panel.scale), label=method,
        )  # fmt: skip
    axes.set_title(panel.title, fontsize=10, color=INK)
    axes.set_xlabel(panel.label, color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    if panel.scale == "log":
        axes.set_xscale("log")
    if panel.scale != "linear":
        middles = [float(np.median(places[value])) for value in panel.conditions]
        axes.set_xticks(middles, [plain(value) for value in panel.conditions])
        axes.xaxis.set_minor_locator(NullLocator())


def _style(index: int, scale: Scale) -> str:
    if scale == "apart":
        return "none"
    return STYLES[(index - 1) % len(STYLES)] if index else BASELINE


def _places(panel: Panel) -> dict[Any, list[float]]:
    """Where every method stands along the axis, by condition: beside each other, so that none hides another."""
    values, count = panel.conditions, len(panel.points)
    middles = np.array([float(value) for value in values])
    if panel.scale == "log":
        middles = np.log(middles)
    elif panel.scale == "apart":
        middles = np.arange(len(values), dtype=float)
    nearest = float(np.diff(middles).min()) if len(values) > 1 else 1.0
    filled = APART if panel.scale == "apart" else BESIDE
    beside = filled * nearest * (np.arange(count) - (count - 1) / 2) / max(count, 1)
    found = middles[:, None] + beside
    found = np.exp(found) if panel.scale == "log" else found
    return {value: row.tolist() for value, row in zip(values, found, strict=True)}
