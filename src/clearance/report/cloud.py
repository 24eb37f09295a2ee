"""Features in two dimensions: a colour per class, and each class's name beside its points."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from clearance.report.figures import MOST_POINTS, empty
from clearance.report.svg import GRID, INK, PAPER, marker, series

Columns = Mapping[str, Sequence[Any]]
LINE, LETTER, EDGE = 0.06, 0.02, 0.02  # height of a name, width of a letter, its frame: shares of the picture
PUSHES = 200


def features(columns: Columns, classes: Sequence[str], size: tuple[float, float] = (3.2, 3.0)) -> Figure:
    """Features in two dimensions, a colour per class and each class's name at the point nearest its middle.

    Args:
        columns: ``x``, ``y`` and ``label``.
        classes: Every class, in the order that gives colours.
        size: Width and height, inches.

    A name that would cover another stands beside its class, at the end of a thin line.
    """
    figure, axes = empty(size)
    step = -(-len(columns["x"]) // MOST_POINTS) or 1
    points = np.array([columns["x"][::step], columns["y"][::step]], dtype=float).T.reshape(-1, 2)
    labels = [str(label) for label in columns["label"][::step]]
    middles: dict[int, np.ndarray] = {}
    for index, name in enumerate(classes):
        mine = points[[label == name for label in labels]]
        if len(mine):
            axes.scatter(mine[:, 0], mine[:, 1], s=9, color=series(index), marker=marker(index), linewidths=0)
            middles[index] = mine[np.argmin(((mine - np.median(mine, axis=0)) ** 2).sum(axis=1))]
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal", adjustable="datalim")
    for side in axes.spines.values():
        side.set(visible=True, color=GRID)
    _name(figure, classes, middles)
    return figure


def apart(places: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Boxes pushed off one another, each as little as it takes, and kept inside the unit square.

    Args:
        places: (n, 2) centres, shares of the picture.
        sizes: (n, 2) widths and heights.

    Shapes:
        (n, 2) centres. Where there is no room for all, some still touch.

    >>> apart(np.array([[0.5, 0.5], [0.5, 0.52]]), np.full((2, 2), 0.1)).round(2).tolist()
    [[0.5, 0.46], [0.5, 0.56]]
    """
    found = places.astype(float)
    # Two at the same place are pushed in a direction of their own, the same in every drawing.
    turn = 2.4 * np.arange(len(found))
    found += 1e-6 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    for _ in range(PUSHES):
        between = found[:, None] - found[None]
        lack = (sizes[:, None] + sizes[None]) / 2 - np.abs(between)
        lack[np.arange(len(found)), np.arange(len(found))] = 0
        over = (lack > 1e-9).all(axis=2)
        if not over.any():
            break
        push = np.where(lack == lack.min(axis=2, keepdims=True), lack, 0) * np.sign(between) * over[..., None]
        found += push.sum(axis=1) / 2
        found = np.clip(found, sizes / 2, 1 - sizes / 2)
    return found


def _name(figure: Figure, classes: Sequence[str], middles: Mapping[int, np.ndarray]) -> None:
    """Write the names, with a line to where each belongs if it had to move."""
    if not middles:
        return
    (axes,) = figure.axes
    figure.draw_without_rendering()  # limits and aspect are only then what they will be
    inside = axes.transData + axes.transAxes.inverted()
    at = inside.transform(np.array(list(middles.values())))
    sizes = np.array([(LETTER * len(_short(classes[index])) + EDGE, LINE) for index in middles])
    for (index, middle), place in zip(middles.items(), apart(at, sizes), strict=True):
        text = axes.annotate(
            _short(classes[index]),
            (float(middle[0]), float(middle[1])),
            (float(place[0]), float(place[1])),
            textcoords="axes fraction",
            fontsize=8.5,
            color=INK,
            ha="center",
            va="center",
            bbox={
                "boxstyle": "round,pad=0.15",
                "facecolor": PAPER,
                "edgecolor": series(index),
                "linewidth": 0.8,
            },
            arrowprops={
                "arrowstyle": "-",
                "color": series(index),
                "linewidth": 0.8,
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )
        text.set_parse_math(False)


def _short(name: str) -> str:
    return name if len(name) <= 12 else name[:11] + "…"
