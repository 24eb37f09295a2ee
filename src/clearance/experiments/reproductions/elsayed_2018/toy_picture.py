"""Fig. 1b redrawn: the boundaries of both losses on the same training points, a panel for every seed."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from clearance.records import Report
from clearance.report.paper_figure import INK, style_plane
from clearance.report.svg import MARKERS, SERIES

BOUNDARY = "boundary"
STYLES: tuple[Literal["solid", "dashed"], ...] = ("solid", "dashed")  # told apart without colour, too
WIDTH = 1.8
COLUMNS_OF_PANELS = 3
POINT = "#8a8a8a"
Columns = Mapping[str, Sequence[Any]]


def picture(report: Report, losses: Sequence[str], classes: Sequence[str]) -> Figure:
    """A panel for every seed, so that none is picked by its looks.

    Args:
        report: Of all runs; each has a ``boundary`` exhibit, the curve's points in their order along the curve.
        losses: Their names; a line each.
        classes: Their names; a marker each.
    """
    panels = {
        (record.seed, record.method): record.exhibit.columns
        for record in report.exhibits
        if record.exhibit.name == BOUNDARY and record.seed is not None
    }
    seeds = sorted({seed for seed, _ in panels})
    rows = -(-len(seeds) // COLUMNS_OF_PANELS)
    figure = Figure(figsize=(9.6, 3.4 * rows + 0.5), layout="constrained")
    cells = figure.subplots(rows, COLUMNS_OF_PANELS, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, seed in zip(cells, seeds, strict=False):
        _points(axes, panels[seed, losses[0]], classes)
        for index, loss in enumerate(losses):
            _boundary(axes, panels[seed, loss], index)
        axes.set_title(f"seed {seed}", fontsize=10, color=INK)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        style_plane(axes)
    for axes in cells[len(seeds) :]:
        axes.set_visible(False)
    figure.legend(
        handles=_legend(losses, classes), loc="outside lower center", ncols=4, frameon=False, labelcolor=INK
    )
    return figure


def along_curve(x: Sequence[float], y: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Points of a curve in the order in which one walks it: from an end always to the nearest that is left.

    A gap of more than four times the median step is kept open by a NaN, since a boundary may have several parts.

    >>> [float(v) for v in along_curve([0.0, 2.0, 1.0], [0.0, 0.0, 0.0])[0]]
    [0.0, 1.0, 2.0]
    """
    left = np.column_stack([np.asarray(x, float), np.asarray(y, float)])
    at = int(np.argmax(((left - left.mean(axis=0)) ** 2).sum(axis=1)))  # the outermost point is an end
    walked = [left[at]]
    left = np.delete(left, at, axis=0)
    steps = []
    while len(left):
        distances = np.linalg.norm(left - walked[-1], axis=1)
        nearest = int(distances.argmin())
        steps.append(distances[nearest])
        walked.append(left[nearest])
        left = np.delete(left, nearest, axis=0)
    path = np.asarray(walked)
    if steps:
        path = np.insert(path, 1 + np.flatnonzero(np.asarray(steps) > 4 * np.median(steps)), np.nan, axis=0)
    return path[:, 0], path[:, 1]


def _boundary(axes: Axes, columns: Columns, index: int) -> None:
    shown = [k for k, label in enumerate(columns["label"]) if label == BOUNDARY]
    if not shown:
        return
    x, y = along_curve([columns["x"][k] for k in shown], [columns["y"][k] for k in shown])
    axes.plot(x, y, color=SERIES[index], linestyle=STYLES[index], linewidth=WIDTH)


def _points(axes: Axes, columns: Columns, classes: Sequence[str]) -> None:
    places, labels = np.array([columns["x"], columns["y"]], float), np.array(columns["label"])
    for index, name in enumerate(classes):
        mine = places[:, labels == name]
        axes.scatter(mine[0], mine[1], s=22, marker=MARKERS[2 * index], **_look(index))


def _look(index: int) -> dict[str, Any]:
    return {"facecolor": "white" if index else POINT, "edgecolor": POINT, "linewidth": 1.0, "zorder": 3}


def _legend(losses: Sequence[str], classes: Sequence[str]) -> list[Line2D]:
    lines = [
        Line2D([], [], color=SERIES[k], linestyle=STYLES[k], linewidth=WIDTH, label=f"boundary, {loss}")
        for k, loss in enumerate(losses)
    ]
    dots = [
        Line2D([], [], color=POINT, marker=MARKERS[2 * k], linestyle="none", label=f"training points, {name}",
               markerfacecolor="white" if k else POINT)
        for k, name in enumerate(classes)
    ]  # fmt: skip
    return [*lines, *dots]
