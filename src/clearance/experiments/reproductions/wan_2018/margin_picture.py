"""Fig. 2 redrawn: for four margins, where a sample of each of two classes counts as right in training."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Polygon

from clearance.experiments.reproductions.wan_2018.margin_regions import ALPHAS, boundary, gap, region
from clearance.report.svg import INK, MUTED, PAPER, marker, series

HALF_WIDTH, HALF_HEIGHT = 1.15, 0.95  # of a panel, in units of the means' distance
SHOWN_GAP = 0.05  # below it an arrow has no room
ARROW: dict[str, Any] = {"arrowstyle": "<->", "shrinkA": 0, "shrinkB": 0}
NAMES = ("1", "2")
HATCHES = ("////", "\\\\\\\\")  # so that the two are told apart without colour


def margin_picture() -> Figure:
    """A panel for each alpha: the two regions, the means, the boundaries between them and the gap.

    >>> len(margin_picture().axes)
    4
    """
    figure = Figure(figsize=(11, 2.9), layout="constrained")
    for axes, alpha in zip(figure.subplots(1, len(ALPHAS)), ALPHAS, strict=True):
        _panel(axes, alpha)
    return figure


def _panel(axes: Axes, alpha: float) -> None:
    for index, side in enumerate((-1, 1)):
        _region(axes, alpha, side, index)
        axes.plot(
            [side / 2], [0], color=series(index), marker=marker(index), markersize=8, markeredgecolor=PAPER
        )
        axes.text(side / 2, -0.24, f"mean {NAMES[index]}", color=INK, fontsize=9, ha="center", va="center",
                  bbox={"boxstyle": "round,pad=0.1", "facecolor": PAPER, "edgecolor": "none"})  # fmt: skip
    if gap(alpha) >= SHOWN_GAP:
        edge = 0.5 - boundary(alpha)
        axes.annotate("", (-edge, 0), (edge, 0), arrowprops={**ARROW, "color": INK})
    shown = f", gap {gap(alpha):.3g}" if alpha > 0 else ", no gap"
    axes.set_title(f"alpha {alpha:g}{shown}", fontsize=11, color=INK)
    axes.set(
        xlim=(-HALF_WIDTH, HALF_WIDTH), ylim=(-HALF_HEIGHT, HALF_HEIGHT), aspect="equal", xticks=[], yticks=[]
    )
    for spine in axes.spines.values():
        spine.set_color(MUTED)


def _region(axes: Axes, alpha: float, side: int, index: int) -> None:
    """The ball, or the half-plane, of the class whose mean is at side / 2."""
    looks = {"facecolor": series(index), "alpha": 0.18, "linewidth": 0}
    lines = {"facecolor": "none", "edgecolor": series(index), "linewidth": 1.4, "hatch": HATCHES[index]}
    for look in (looks, lines):
        axes.add_patch(_outline(alpha, side, look))


def _outline(alpha: float, side: int, look: Mapping[str, Any]) -> Circle | Polygon:
    ball = region(alpha)
    if math.isinf(ball.radius):
        far = side * 3.0
        corners = np.array([[0, -3], [far, -3], [far, 3], [0, 3]])
        return Polygon(corners, closed=True, **look)
    return Circle((side * (0.5 + ball.beyond), 0), ball.radius, **look)
