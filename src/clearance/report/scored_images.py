"""Scores before and after an attack as two histograms, and a sheet of images that were caught or missed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clearance.report.figures import empty
from clearance.report.svg import GRID, INK, MUTED, series

Columns = Mapping[str, Sequence[Any]]
SIZE = (3.6, 2.9)
ACROSS = 8  # images in a row of the sheet


def two_histograms(columns: Columns, index: int, label: str) -> Figure:
    """Shares of images in bars: grey before the attack, in the method's colour after it.

    Args:
        columns: ``from``, where bars begin; ``before`` and ``after``, their heights.
        index: Of the method.
        label: Of the horizontal axis.

    >>> shown = {"from": [0.0, 0.5], "before": [0.25, 0.75], "after": [1.0, 0.0]}
    >>> len(two_histograms(shown, 0, "probability").axes[0].patches)      # an area and an edge for each
    4
    """
    figure, axes = empty(SIZE)
    begin = [float(value) for value in columns["from"]]
    width = begin[1] - begin[0] if len(begin) > 1 else 1.0
    edges = [*begin, begin[-1] + width]
    for name, colour in (("before", MUTED), ("after", series(index))):
        heights = [100 * float(value) for value in columns[name]]
        axes.stairs(heights, edges, color=colour, fill=True, alpha=0.3)
        axes.stairs(heights, edges, color=colour, linewidth=1.3)
    axes.set_xlabel(label, color=INK)
    axes.set_ylabel("images, %", color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure


def sheet(columns: Columns, caught: bool) -> Figure | None:
    """The images that were caught, or those that were missed: what they are and what they were taken for.

    Args:
        columns: ``image``, ``caught``, ``class``, ``taken for`` and ``p``, the share of normal images as unlikely.
        caught: Which of the two.

    >>> shown = {"image": [[[[0.0, 1.0]]]], "caught": [True], "class": ["7"], "taken for": ["3"], "p": [0.01]}
    >>> sheet(shown, caught=False) is None, len(sheet(shown, caught=True).axes)
    (True, 8)
    """
    rows = [row for row in zip(*(columns[name] for name in _NAMES), strict=True) if bool(row[1]) is caught]
    if not rows:
        return None
    down = -(-len(rows) // ACROSS)
    figure = Figure(figsize=(5.9, 1.15 * down), layout="constrained")
    grid = figure.subplots(down, ACROSS, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, row in zip(grid.flat, rows, strict=False):
        _shown(axes, row)
    return figure


_NAMES = ("image", "caught", "class", "taken for", "p")


def _shown(axes: Axes, row: tuple[Any, ...]) -> None:
    pixels, _, own, taken, p = row
    image = np.moveaxis(np.asarray(pixels, dtype=float), 0, -1)
    axes.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    title = axes.set_title(f"{_short(own)} → {_short(taken)}\np {p:.2g}", fontsize=8.5, color=INK, pad=2)
    title.set_parse_math(False)


def _short(name: str) -> str:
    return name if len(name) <= 9 else f"{name[:8]}…"
