"""Images on one line, a row per class: how far that line sets one class apart from all others."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from clearance.report.figures import MOST_POINTS, empty
from clearance.report.svg import GRID, INK, MUTED, series


def strips(columns: Mapping[str, Sequence[Any]], name: str, size: tuple[float, float] = (3.2, 2.6)) -> Figure:
    """Each point is an image: its place on the line, and its class as the row.

    Args:
        columns: ``x``, ``y`` (the row) and ``label``.
        name: The label that the line was made for; it is coloured, the others are grey.
        size: Width and height, inches.
    """
    figure, axes = empty(size)
    step = -(-len(columns["x"]) // MOST_POINTS) or 1
    x, y = (np.array(columns[key][::step], dtype=float) for key in ("x", "y"))
    mine = np.array([str(label) == name for label in columns["label"][::step]], dtype=bool)
    axes.scatter(x[~mine], y[~mine], s=7, color=MUTED, alpha=0.5, linewidths=0)
    axes.scatter(x[mine], y[mine], s=14, color=series(1), linewidths=0)
    if mine.any():
        edge = float(x[mine].min())
        axes.axvline(edge, color=series(1), linewidth=0.9, dashes=(4, 3), zorder=1)
    axes.invert_yaxis()  # the first class on top
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_ylabel("one row for each class", color=INK)
    for side in axes.spines.values():
        side.set(visible=True, color=GRID)
    return figure
