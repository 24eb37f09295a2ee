"""Any exhibit, drawn by its kind alone: what a page does with a picture that it has never heard of."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from clearance.report.figures import MOST_POINTS, empty
from clearance.report.marks import legend
from clearance.report.svg import GRID, INK, marker, series
from clearance.vocabulary import Exhibit

Columns = Mapping[str, Sequence[Any]]
SIZE = (4.6, 3.2)
# From light to dark in one direction, so that it reads in grey too.
SHADES = LinearSegmentedColormap.from_list("shades", ["#f3f0e6", "#7fb2c9", "#0b3c5d"])


def draw(exhibit: Exhibit) -> Figure:
    """An exhibit as a figure.

    A curve's first column of numbers is its x, every other a line. A histogram's first column is where bars
    stand and its second how high they are. A scatter has ``x``, ``y`` and perhaps ``label``. A heat map is a
    matrix, a column of the exhibit per column of the picture. An image sheet has ``image``, nested lists in
    [0, 1], and perhaps ``label``, which is written above each.

    >>> draw(Exhibit("a", "b", "curve", {"x": [0, 1], "y": [1, 0]}, "A line.")).axes[0].get_xlabel()
    'x'
    """
    kinds: Mapping[str, Callable[[Columns], Figure]] = {
        "curve": _curve,
        "histogram": _histogram,
        "scatter": _scatter,
        "heatmap": _heatmap,
        "images": _images,
    }
    return kinds[exhibit.kind](exhibit.columns)


def _curve(columns: Columns) -> Figure:
    figure, axes = empty(SIZE)
    numeric = {name: array for name, column in columns.items() if (array := _numbers(column)) is not None}
    if not numeric:
        return figure
    first, *others = numeric
    for index, name in enumerate(others):
        axes.plot(
            numeric[first],
            numeric[name],
            color=series(index),
            marker=marker(index),
            markersize=3,
            label=_words(name),
        )
    axes.set_xlabel(_words(first), color=INK, parse_math=False)
    if others:
        legend(axes)
    return figure


def _histogram(columns: Columns) -> Figure:
    figure, axes = empty(SIZE)
    (first, at), *rest = columns.items()
    if rest:
        numbers = _numbers(at)
        places = np.arange(len(at)) if numbers is None else numbers
        apart = np.diff(np.sort(places))
        axes.bar(
            places, _heights(rest[0][1]), width=0.9 * (apart.min() if len(apart) else 1.0), color=series(0)
        )
        axes.set_ylabel(rest[0][0], color=INK, parse_math=False)
        if numbers is None:
            axes.set_xticks(
                places, [str(name)[:24] for name in at], rotation=45, ha="right", parse_math=False
            )
    else:
        values = np.sort(_heights(at))
        axes.step(values, np.arange(1, len(values) + 1), color=series(0))
        axes.set_ylabel("how many are no larger", color=INK)
    axes.set_xlabel(first, color=INK, parse_math=False)
    return figure


def _scatter(columns: Columns) -> Figure:
    figure, axes = empty(SIZE)
    step = -(-len(columns["x"]) // MOST_POINTS) or 1
    x, y = _heights(columns["x"])[::step], _heights(columns["y"])[::step]
    labels = [str(label) for label in columns.get("label", [""] * len(columns["x"]))][::step]
    for index, name in enumerate(dict.fromkeys(labels)):
        mine = [label == name for label in labels]
        axes.scatter(x[mine], y[mine], s=12, color=series(index), marker=marker(index), label=name or "_")
    if any(labels):
        legend(axes)
    axes.grid(color=GRID, linewidth=0.6)
    return figure


def _heatmap(columns: Columns) -> Figure:
    figure, axes = empty(SIZE)
    numeric = {name: array for name, column in columns.items() if (array := _numbers(column)) is not None}
    if numeric:
        mesh = axes.pcolormesh(np.stack(list(numeric.values()), axis=1), cmap=SHADES)
        bar = figure.colorbar(mesh, ax=axes)
        bar.ax.tick_params(colors=INK, labelsize=9)
        axes.set_xticks(
            np.arange(len(numeric)) + 0.5, [name[:12] for name in numeric], rotation=45, ha="right"
        )
        axes.invert_yaxis()
    return figure


def _images(columns: Columns) -> Figure:
    images = list(columns["image"])[:40]
    labels = [str(label)[:14] for label in columns.get("label", [""] * len(images))]
    tall = 0.95 if any(labels) else 0.8
    figure = Figure(figsize=(SIZE[0], tall * -(-len(images) // 8) + 0.2), layout="constrained")
    cells = figure.subplots(-(-len(images) // 8), 8, squeeze=False).flat
    for axes, image, label in zip(cells, images, labels, strict=False):
        pixels = np.asarray(image, dtype=float)
        channels_first = pixels.ndim == 3 and pixels.shape[0] in (1, 3)
        pixels = np.moveaxis(pixels, 0, -1) if channels_first else pixels
        axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(label, fontsize=7, pad=2, color=INK, parse_math=False)
    for axes in figure.axes:
        axes.set_axis_off()
    return figure


def _words(name: str) -> str:
    return name.replace("_", " ")


def _numbers(column: Sequence[Any]) -> np.ndarray | None:
    """The column as floats, None as a gap; nothing where it holds texts."""
    if any(isinstance(value, str) for value in column):
        return None
    return _heights(column)


def _heights(column: Sequence[Any]) -> np.ndarray:
    return np.array([np.nan if value is None else float(value) for value in column], dtype=float)
