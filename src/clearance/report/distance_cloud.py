"""Distances image by image: as a search found them, over as the first order has them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from clearance.report.figures import MOST_POINTS, empty
from clearance.report.svg import GRID, INK, MUTED, series

SIZE = (3.6, 3.3)


def distance_cloud(columns: Mapping[str, Sequence[Any]], index: int) -> Figure:
    """A point for each image, and the line on which both distances agree.

    Args:
        columns: ``x``, first order; ``y``, found.
        index: Of the method, which gives the colour.

    An image that is misclassified has a negative first-order distance, and 0 for the one found.

    >>> len(distance_cloud({"x": [0.1, 0.2], "y": [0.1, 0.1]}, 0).axes[0].collections)
    1
    """
    figure, axes = empty(SIZE)
    step = -(-len(columns["x"]) // MOST_POINTS) or 1
    x, y = (np.array(columns[name][::step], dtype=float) for name in ("x", "y"))
    end = float(max([*x, *y, 0.0]))
    axes.plot([0, end], [0, end], color=MUTED, linewidth=1.0, dashes=(4, 3), zorder=1)
    axes.scatter(x, y, s=11, color=series(index), linewidths=0, zorder=2)
    axes.set_xlabel("to first order, pixel units", color=INK)
    axes.set_ylabel("found, pixel units", color=INK)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure
