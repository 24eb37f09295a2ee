"""What pictures are drawn with: axes in the page's style, lines and points with intervals, clouds, sheets of images.

Each function sees the columns of an exhibit, or rows of a summary, and returns a figure; :mod:`clearance.report.svg`
makes it part of a page. No pyplot: its figures are global state.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from clearance.report.names import method_name
from clearance.report.svg import GRID, INK, LONGEST_NAME, MUTED, PAPER, cut, marker, series
from clearance.vocabulary import Exhibit

Columns = Mapping[str, Sequence[Any]]
MOST_POINTS = 800  # per picture: more make a page heavy and show no more


def page_figure(size: tuple[float, float]) -> tuple[Figure, Axes]:
    """A figure with one pair of axes in the page's style; `size` in inches."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.set_axisbelow(True)
    style_axes(axes)
    return figure, axes


def style_axes(axes: Axes) -> None:
    """Give axes the look that all of a page's have."""
    for side, spine in axes.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=MUTED)
    axes.tick_params(colors=INK, which="both", labelsize=9.5, color=MUTED)
    axes.xaxis.label.set_fontsize(10)
    axes.yaxis.label.set_fontsize(10)


def finite(value: Any) -> bool:
    """Whether a value of an exhibit is a number that can be drawn; None and infinity are not."""
    return value is not None and bool(np.isfinite(value))


LONGEST_AT_AXIS = 22  # letters of a name
BESIDE_NAME, LETTER = 0.58, 0.066  # inches that a name in a legend takes: its sign and space, and each letter
DECADES = 2.5  # up to which 2 and 5 are written between powers of ten


def label_logarithmic(axis: Axis, unit: str = "") -> None:
    """Numbers as plain text (0.01, 2, 1e−5) on an axis that is logarithmic and has its limits.

    Args:
        axis: The axis.
        unit: Written after each number.
    """
    low, high = sorted(axis.get_view_interval())  # a turned axis begins with the larger one
    near = math.log10(high / low) <= DECADES
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if near else (1.0,), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value) + unit))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())


def plain_number(value: float) -> str:
    """A round number as text.

    >>> plain_number(0.002), plain_number(1e-8), plain_number(200.0)
    ('0.002', '1e−8', '200')
    >>> plain_number(1e6)
    '1e6'
    """
    return f"{value:g}".replace("e+0", "e").replace("e-0", "e−").replace("-", "−")


def draw_legend(axes: Axes) -> None:
    """The names of what has one."""
    if axes.get_legend_handles_labels()[0]:
        # said in words, because matplotlib warns of "best" as a default where a busy machine takes a second for it
        axes.legend(loc="best", frameon=False, fontsize=9.5, labelcolor=INK)


def legend_below(axes: Axes) -> None:
    """The names under the picture, where no line can run through them; none where there is only one."""
    named = axes.get_legend_handles_labels()
    figure = axes.get_figure()
    if len(named[0]) > 1 and isinstance(figure, Figure):
        columns = _columns_for(named[1], figure.get_figwidth())
        space: dict[str, Any] = {"ncols": columns, "columnspacing": 1.4, "handlelength": 2.2}
        figure.legend(
            *named, loc="outside lower center", frameon=False, fontsize=9.5, labelcolor=INK, **space
        )


def _columns_for(names: Sequence[str], width: float) -> int:
    """How many columns of names, which are filled from the top, fit side by side in so many inches; at most three.

    >>> _columns_for(["plain", "dropout", "L-GM"], 6.1), _columns_for(["a name of thirty-two letters, say"] * 4, 6.1)
    (3, 2)
    """
    for columns in (3, 2):
        letters = np.array([len(cut(name, LONGEST_NAME)) for name in names])
        widest = sum(int(part.max(initial=0)) for part in np.array_split(letters, columns))
        if BESIDE_NAME * columns + LETTER * widest <= width:
            return columns
    return 1


Rows = Sequence[Mapping[str, Any]]
MOST_MARKED = 20  # places up to which each bears a marker


def bands(
    rows: Rows,
    x: str,
    methods: Sequence[str],
    labels: tuple[str, str],
    *,
    size: tuple[float, float],
    percent: bool = False,
    log: str = "",
    dashed: Rows = (),
) -> Figure:
    """A line per method through ``mean`` over `x`, shaded from ``low`` to ``high``; what is not finite is a gap.

    Args:
        rows: With ``method``, `x`, ``mean``, ``low``, ``high``.
        x: Name of the horizontal quantity.
        methods: In the page's order, which gives colours and markers.
        labels: Of the horizontal and the vertical axis.
        size: Width and height, inches.
        percent: Whether numbers are shares, shown as percent.
        log: Which axes are logarithmic, if every number allows it: ``"x"``, ``"y"``, ``"xy"`` or none.
        dashed: More rows, drawn dashed and without shade or name.
    """
    figure, axes = page_figure(size)
    scale = 100 if percent else 1
    for index, method in enumerate(methods):
        _band(axes, _rows_of(rows, method), x, index, scale, method_name(method))
        _dashed_line(axes, _rows_of(dashed, method), x, index, scale)
    axes.set_xlabel(labels[0], color=INK)
    axes.set_ylabel(labels[1], color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    _scales(axes, [*rows, *dashed], x, log, scale)
    legend_below(axes)
    return figure


def _rows_of(rows: Rows, method: str) -> Rows:
    return [row for row in rows if row["method"] == method and finite(row["mean"])]


def _band(axes: Axes, rows: Rows, x: str, index: int, scale: int, label: str) -> None:
    if not rows:
        return
    places = [row[x] for row in rows]
    marked = marker(index) if len(rows) <= MOST_MARKED else None
    drawn = [scale * row["mean"] for row in rows]
    axes.plot(places, drawn, color=series(index), marker=marked, markersize=4.5, linewidth=1.6, label=label)
    sided = [row for row in rows if row.get("low") is not None and row.get("high") is not None]
    if sided:
        low, high = ([scale * row[end] for row in sided] for end in ("low", "high"))
        axes.fill_between([row[x] for row in sided], low, high, color=series(index), alpha=0.13, linewidth=0)


def _dashed_line(axes: Axes, rows: Rows, x: str, index: int, scale: int) -> None:
    if rows:
        drawn = [scale * row["mean"] for row in rows]
        axes.plot([row[x] for row in rows], drawn, color=series(index), linewidth=1.1, dashes=(5, 3))


def _scales(axes: Axes, rows: Rows, x: str, log: str, scale: int) -> None:
    unit = " %" if scale == 100 else ""
    means = [scale * row["mean"] for row in rows if finite(row["mean"])]
    if "x" in log and rows and all(row[x] > 0 for row in rows):
        axes.set_xscale("log")
        axes.set_xlabel(f"{axes.get_xlabel()} (logarithmic)")
        label_logarithmic(axes.xaxis)
    elif "x" in log and len(places := sorted({row[x] for row in rows})) > 2 and places[0] == 0:
        axes.set_xscale("symlog", linthresh=places[1], linscale=0.6)
        axes.set_xlabel(f"{axes.get_xlabel()} (logarithmic, and 0)")
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    else:
        whole = all(float(row[x]).is_integer() for row in rows)
        steps = None if whole else [1, 2, 2.5, 5, 10]
        axes.xaxis.set_major_locator(MaxNLocator("auto" if whole else 7, integer=whole, steps=steps))
    _height_scale(axes, means, unit, log="y" in log, room=0.4)


def _height_scale(axes: Axes, means: Sequence[float], unit: str, *, log: bool, room: float) -> None:
    """The vertical scale; a logarithmic one begins at `room` times the lowest mean at the lowest."""
    if log and means and min(means) > 0:
        axes.set_yscale("log", nonpositive="clip")
        axes.set_ylabel(f"{axes.get_ylabel()} (logarithmic)")
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, room * min(means)), top)  # an interval may reach down to zero
        label_logarithmic(axes.yaxis, unit)
    else:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))
        if means and min(means) >= 0:
            axes.set_ylim(bottom=0)


GROUP_WIDTH = 0.62  # of a group, where the next is 1 away


def groups(
    rows: Rows,
    key: str,
    names: Mapping[Any, str],
    methods: Sequence[str],
    label: str,
    *,
    size: tuple[float, float],
    percent: bool = False,
    level: tuple[str, float] | None = None,
) -> Figure:
    """A point for each finite number, on a logarithmic axis where all are above 0.

    Args:
        rows: With ``method``, `key`, ``mean``, ``low``, ``high``.
        key: What makes the groups.
        names: What each group is called, in their order.
        methods: In the page's order, which gives colours and markers.
        label: Of the vertical axis.
        size: Width and height, inches.
        percent: Whether numbers are shares, shown as percent.
        level: A name and a number to draw as a line across.
    """
    figure, axes = page_figure(size)
    rows = [row for row in rows if math.isfinite(row["mean"])]
    scale = 100 if percent else 1
    means = [scale * row["mean"] for row in rows if row["method"] in methods]
    if level is not None:
        means.append(scale * level[1])
        axes.axhline(scale * level[1], color=MUTED, linewidth=1.2, label=level[0])
    for index, method in enumerate(methods):
        shift = GROUP_WIDTH * ((index + 0.5) / len(methods) - 0.5)
        _group_points(axes, rows, key, list(names), (index, method, shift), scale)
    for edge in range(1, len(names)):
        axes.axvline(edge - 0.5, color=GRID, linewidth=0.7)
    axes.set_xticks(range(len(names)), [cut(name, LONGEST_AT_AXIS) for name in names.values()])
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel(label, color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    _height_scale(axes, means, " %" if percent else "", log=True, room=0.5)
    legend_below(axes)
    return figure


def _group_points(
    axes: Axes, rows: Rows, key: str, places: Sequence[Any], who: tuple[int, str, float], scale: int
) -> None:
    index, method, shift = who
    label = method_name(method)
    for row in rows:
        if row["method"] != method or row[key] not in places:
            continue
        x, y = places.index(row[key]) + shift, scale * row["mean"]
        axes.plot(
            [x], [y], color=series(index), marker=marker(index), markersize=6.5, linestyle="", label=label
        )
        label = "_"
        if row["low"] is not None and row["high"] is not None:
            ends = [scale * row["low"], scale * row["high"]]
            axes.plot([x, x], ends, color=series(index), linewidth=1.2, zorder=1)


NAME_HEIGHT, LETTER_WIDTH, EDGE = (
    0.06,
    0.02,
    0.02,
)  # height of a name, width of a letter, its frame: shares of the picture
PUSHES = 200


def labelled_cloud(columns: Columns, classes: Sequence[str]) -> Figure:
    """Features in two dimensions, a colour per class and each class's name at the point nearest its middle.

    `columns` are ``x``, ``y`` and ``label``; the order of `classes`, which are all of them, gives colours. A name that
    would cover another is written next to its class, at the end of a thin line.
    """
    figure, axes = page_figure((3.2, 3.0))
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
    _write_names(figure, classes, middles)
    return figure


def apart(places: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Boxes pushed off one another, each as little as it takes, and kept inside the unit square.

    `places` are (n, 2) centres, shares of the picture, and `sizes` (n, 2) widths and heights.

    Shapes:
        (n, 2) centres. Where there is no room for all, some still touch.

    >>> apart(np.array([[0.5, 0.5], [0.5, 0.52]]), np.full((2, 2), 0.1)).round(2).tolist()
    [[0.5, 0.46], [0.5, 0.56]]
    """
    found = places.astype(float)
    # Two at the same place are pushed in a direction fixed for each, the same in every drawing.
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


def _write_names(figure: Figure, classes: Sequence[str], middles: Mapping[int, np.ndarray]) -> None:
    """Write the names, with a line to where each belongs if it had to move."""
    if not middles:
        return
    (axes,) = figure.axes
    figure.draw_without_rendering()  # limits and aspect are only then what they will be
    inside = axes.transData + axes.transAxes.inverted()
    at = inside.transform(np.array(list(middles.values())))
    names = [cut(classes[index], 12) for index in middles]
    sizes = np.array([(LETTER_WIDTH * len(name) + EDGE, NAME_HEIGHT) for name in names])
    for name, (index, middle), place in zip(names, middles.items(), apart(at, sizes), strict=True):
        axes.annotate(
            name,
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


SHEET_GAP = 0.08  # between pictures, in pictures
WORD_SIZE = 11  # points; a page shows two sheets side by side, at about half of their size
LONGEST = 10  # letters of a name that fit above a picture


def contact_sheet(columns: Columns, ink: str = INK) -> Figure:
    """The figure of one network's sheet.

    Args:
        columns: ``image`` and ``adversarial``, each (H, W) or (C, H, W) in [0, 1]; ``label``, ``target``: names of
            classes; ``confidence``, ``target_confidence``: probabilities, of the label above, of the target in the
            middle; ``norm``: how long the change is.
        ink: Colour of the words.

    The change has its own scale, grey for none, the same for all pictures.

    >>> black, white = [[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]
    >>> columns = {"image": [black], "adversarial": [white], "label": ["night"], "target": ["day"], "confidence": [0.9],
    ...            "target_confidence": [0.95], "norm": [2.0]}
    >>> [text.get_text().split() for axes in contact_sheet(columns).axes for text in axes.texts]
    [['night', '0.90'], ['day', '0.95'], ['norm', '2.00']]
    """
    before, after = (
        np.stack([shown_pixels(one) for one in columns[name]]) for name in ("image", "adversarial")
    )
    change = after - before
    most = float(np.abs(change).max()) or 1.0
    rows = (
        (before, _with_confidence(columns["label"], columns["confidence"])),
        (after, _with_confidence(columns["target"], columns["target_confidence"])),
        (0.5 + change / (2 * most), [f"norm\n{norm:.2f}" for norm in columns["norm"]]),
    )
    figure = Figure(figsize=(1.0 * len(before), 4.9), layout="constrained")
    for axes, (images, words) in zip(figure.subplots(3, 1), rows, strict=True):
        _sheet_row(axes, images, words, ink)
    return figure


def _sheet_row(axes: Any, images: np.ndarray, words: Sequence[str], ink: str) -> None:
    """Pictures side by side in one axes, because an axes for each takes seconds."""
    tall = images.shape[1] / images.shape[2]
    for place, (image, word) in enumerate(zip(images, words, strict=True)):
        left = place * (1 + SHEET_GAP)
        axes.imshow(
            image, cmap="gray", vmin=0, vmax=1, interpolation="nearest", extent=(left, left + 1, 0, tall)
        )
        axes.text(left + 0.5, tall + 0.06, word, ha="center", va="bottom", fontsize=WORD_SIZE, color=ink)
    axes.set_xlim(0, len(images) * (1 + SHEET_GAP) - SHEET_GAP)
    axes.set_ylim(0, tall + 0.56)
    axes.set_axis_off()


def _with_confidence(names: Sequence[str], values: Sequence[float]) -> list[str]:
    return [f"{cut(str(name), LONGEST)}\n{value:.2f}" for name, value in zip(names, values, strict=True)]


def shown_pixels(image: Any) -> np.ndarray:
    """Of an image (C, H, W) or (H, W): three channels last, or else the first channel alone."""
    pixels = np.asarray(image, dtype=float)
    if pixels.ndim == 2:
        return pixels
    return np.moveaxis(pixels, 0, -1) if len(pixels) == 3 else pixels[0]


KIND_SIZE = (4.6, 3.2)
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
    figure, axes = page_figure(KIND_SIZE)
    numeric = {name: array for name, column in columns.items() if (array := _as_numbers(column)) is not None}
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
            label=_spaced(name),
        )
    axes.set_xlabel(_spaced(first), color=INK)
    if others:
        draw_legend(axes)
    return figure


def _histogram(columns: Columns) -> Figure:
    figure, axes = page_figure(KIND_SIZE)
    (first, at), (name, heights), *_ = columns.items()
    numbers = _as_numbers(at)
    places = np.arange(len(at)) if numbers is None else numbers
    apart = np.diff(np.sort(places))
    axes.bar(places, _heights(heights), width=0.9 * (apart.min() if len(apart) else 1.0), color=series(0))
    axes.set_ylabel(name, color=INK)
    if numbers is None:
        axes.set_xticks(places, [str(place)[:24] for place in at], rotation=45, ha="right")
    axes.set_xlabel(first, color=INK)
    return figure


def _scatter(columns: Columns) -> Figure:
    figure, axes = page_figure(KIND_SIZE)
    step = -(-len(columns["x"]) // MOST_POINTS) or 1
    x, y = _heights(columns["x"])[::step], _heights(columns["y"])[::step]
    labels = [str(label) for label in columns.get("label", [""] * len(columns["x"]))][::step]
    for index, name in enumerate(dict.fromkeys(labels)):
        mine = [label == name for label in labels]
        axes.scatter(x[mine], y[mine], s=12, color=series(index), marker=marker(index), label=name or "_")
    if any(labels):
        draw_legend(axes)
    axes.grid(color=GRID, linewidth=0.6)
    return figure


def _heatmap(columns: Columns) -> Figure:
    figure, axes = page_figure(KIND_SIZE)
    numeric = {name: array for name, column in columns.items() if (array := _as_numbers(column)) is not None}
    if numeric:
        cells = np.stack(list(numeric.values()), axis=1)
        mesh = axes.pcolormesh(
            cells, cmap=SHADES, rasterized=cells.size > MOST_POINTS
        )  # else a path for each cell
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
    figure = Figure(figsize=(KIND_SIZE[0], tall * -(-len(images) // 8) + 0.2), layout="constrained")
    cells = figure.subplots(-(-len(images) // 8), 8, squeeze=False).flat
    for axes, image, label in zip(cells, images, labels, strict=False):
        axes.imshow(shown_pixels(image), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(label, fontsize=7, pad=2, color=INK)
    for axes in figure.axes:
        axes.set_axis_off()
    return figure


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _as_numbers(column: Sequence[Any]) -> np.ndarray | None:
    """The column as floats, None as a gap; nothing where it holds texts."""
    if any(isinstance(value, str) for value in column):
        return None
    return _heights(column)


def _heights(column: Sequence[Any]) -> np.ndarray:
    return np.array([np.nan if value is None else float(value) for value in column], dtype=float)
