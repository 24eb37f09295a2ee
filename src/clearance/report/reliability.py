"""How right over how sure, bin by bin, and how features lie beside a Gaussian: both against a diagonal."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clearance.report.figures import empty
from clearance.report.svg import GRID, INK, MUTED, marker, series

Columns = Mapping[str, Sequence[Any]]
SIZE = (3.4, 3.3)
LARGEST, SMALLEST = 90.0, 8.0  # of a marker, in points squared: by how many images it stands for


def reliability(before: Columns, after: Columns | None, index: int) -> Figure:
    """Accuracy over confidence; a marker is as large as its bin is full. Hollow and dashed: after the temperature.

    Args:
        before: ``confidence``, ``accuracy``, ``images``, as trained.
        after: The same with calibrated probabilities.
        index: Of the method, which gives colour and marker.

    >>> columns = {"confidence": [0.6, 0.9], "accuracy": [0.5, 0.9], "images": [10, 90]}
    >>> len(reliability(columns, columns, 0).axes[0].collections)
    2
    """
    figure, axes = empty(SIZE)
    axes.plot([0, 100], [0, 100], color=MUTED, linewidth=1.0, dashes=(4, 3), zorder=1)
    _bins(axes, before, index, hollow=False)
    if after is not None:
        _bins(axes, after, index, hollow=True)
    axes.set_xlabel("how sure, %", color=INK)
    axes.set_ylabel("right, %", color=INK)
    axes.set_xlim(0, 102)
    axes.set_ylim(0, 102)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure


def quantiles(columns: Columns, index: int) -> Figure:
    """Quantiles of squared distances over those of chi-square; on the dashed line both are the same.

    >>> len(quantiles({"chi-square": [0.5, 1.0], "features": [0.4, 1.5]}, 0).axes[0].lines)
    2
    """
    figure, axes = empty(SIZE)
    x, y = (list(columns[name]) for name in ("chi-square", "features"))
    axes.plot([min(x), max(x)], [min(x), max(x)], color=MUTED, linewidth=1.0, dashes=(4, 3), zorder=1)
    axes.plot(x, y, color=series(index), linewidth=0, marker=marker(index), markersize=2.6)
    axes.set_xlabel("expected of a Gaussian", color=INK)
    axes.set_ylabel("found", color=INK)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure


def _bins(axes: Axes, columns: Columns, index: int, *, hollow: bool) -> None:
    x, y = ([100 * value for value in columns[name]] for name in ("confidence", "accuracy"))
    most = max(columns["images"], default=1)
    sizes = [max(SMALLEST, LARGEST * count / most) for count in columns["images"]]
    style: dict[str, Any] = {"dashes": (5, 3)} if hollow else {}
    axes.plot(x, y, color=series(index), linewidth=1.0, zorder=2, **style)
    face = "none" if hollow else series(index)
    axes.scatter(x, y, s=sizes, marker=marker(index), facecolors=face, edgecolors=series(index), zorder=3)
