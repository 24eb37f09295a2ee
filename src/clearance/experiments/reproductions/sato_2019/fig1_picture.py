"""Fig. 1 redrawn: four panels of features in the plane, on the mean output of 256 weak heads."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from clearance.experiments.reproductions.sato_2019.fig1_measures import HEADS
from clearance.experiments.reproductions.sato_2019.fig1_toy import CLASSES
from clearance.report.paper_figure import FRAME, INK, style_plane
from clearance.report.svg import MARKERS, SERIES

COLOURS = dict(zip(CLASSES, SERIES, strict=False))  # blue and vermilion: told apart with every kind of eye
TINTS = LinearSegmentedColormap.from_list("tints", ["#7fb4d6", "#ffffff", "#eba27c"])
LEVELS = np.linspace(-1.0, 1.0, 21)
Columns = Mapping[str, Sequence[Any]]


def picture(panels: Mapping[str, tuple[str, Columns, Columns]], title: str) -> Figure:
    """The figure.

    Args:
        panels: For each variant a line about it, its points (``x``, ``y``, ``label``) and the grid (``x``, ``y``,
            ``mean``, ``own``); the own output is drawn for joint training alone.
        title: What to see.
    """
    figure = Figure(figsize=(9.6, 9.8), layout="constrained")
    cells = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
    filled = None
    for axes, (name, (line, points, grid)) in zip(cells, panels.items(), strict=False):
        filled = _background(axes, grid, boundary=name.startswith("joint"))
        _points(axes, points)
        axes.set_title(f"{name}\n{line}", fontsize=11, color=INK)
        style_plane(axes)
    for axes in cells[2:]:
        axes.set_xlabel("along the line between the class means", color=INK)
    for axes in cells[::2]:
        axes.set_ylabel("across that line", color=INK)
    for axes in cells[len(panels) :]:
        axes.set_visible(False)
    if filled is not None:
        bar = figure.colorbar(filled, ax=cells.tolist(), shrink=0.45, pad=0.02, ticks=[-1, 0, 1])
        bar.set_label(f"mean output of {HEADS} weak heads", color=INK)
        bar.outline.set_edgecolor(FRAME)
    figure.suptitle(title, fontsize=12.5, color=INK)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=4, frameon=False, labelcolor=INK)
    return figure


def _background(axes: Axes, grid: Columns, *, boundary: bool) -> QuadContourSet:
    side = round(len(grid["x"]) ** 0.5)
    x, y, mean, own = (
        np.reshape(np.array(grid[key], float), (side, side)) for key in ("x", "y", "mean", "own")
    )
    filled = axes.contourf(x, y, mean, LEVELS, cmap=TINTS, extend="both")
    if mean.min() < 0 < mean.max():
        axes.contour(x, y, mean, [0.0], colors=INK, linewidths=1.0, linestyles="dotted")
    if boundary and own.min() < 0 < own.max():
        axes.contour(x, y, own, [0.0], colors=INK, linewidths=1.6, linestyles="solid")
    return filled


def _points(axes: Axes, points: Columns) -> None:
    places, labels = np.array([points["x"], points["y"]], float), np.array(points["label"])
    for index, (name, colour) in enumerate(COLOURS.items()):
        mine = places[:, labels == name]
        axes.scatter(
            mine[0],
            mine[1],
            s=20,
            color=colour,
            marker=MARKERS[2 * index],
            edgecolor="white",
            linewidth=0.4,
            zorder=3,
        )


def _legend() -> list[Line2D]:
    dots = [
        Line2D(
            [],
            [],
            color=colour,
            marker=MARKERS[2 * index],
            linestyle="none",
            markeredgecolor="white",
            label=name,
        )
        for index, (name, colour) in enumerate(COLOURS.items())
    ]
    return [
        *dots,
        Line2D([], [], color=INK, linewidth=1.6, label="boundary of the jointly trained head"),
        Line2D([], [], color=INK, linewidth=1.0, linestyle="dotted", label="mean output 0"),
    ]
