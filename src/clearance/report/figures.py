"""Two pictures that every page has: error over images used, and training.

Each function sees the columns of an exhibit and nothing else, and returns a figure; `svg` makes it part of a
page. No pyplot: its figures are global state.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from clearance.report.curve import LATER, OWN, USUAL
from clearance.report.marks import legend, legend_below, logarithmic
from clearance.report.names import NO_NETWORK, PIXEL_MEANS, PIXELS, method_name
from clearance.report.svg import GRID, INK, MUTED, PAPER, marker, series

Columns = Mapping[str, Sequence[Any]]
MOST_POINTS = 800  # per picture: more make a page heavy and show no more
MOST_STEPS = 250
PERCENTS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def partial_data(columns: Columns, head: str, methods: Sequence[str], size: tuple[float, float]) -> Figure:
    """Test error over the number of images that rebuilt the last layers, both on logarithmic axes.

    Args:
        columns: Of the summary's ``partial_data`` exhibit.
        head: What stands in for the last layers.
        methods: In the page's order, which gives colours and markers.
        size: Width and height, inches.

    The first method is drawn at both cuts of the network, where both were measured. An error of zero has no
    place on a logarithmic axis; then the axis is linear.
    """
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    figure, axes = empty(size)
    bare = PIXEL_MEANS if head == "class mean" else PIXELS
    pixels = _line(rows, bare, "")
    if pixels:
        x, y = [row["samples"] for row in pixels], [100 * row["error"] for row in pixels]
        axes.plot(x, y, color=MUTED, linewidth=1.2, zorder=1, label=NO_NETWORK[bare])
    for index, method in enumerate(methods):
        if points := _line(rows, head, method):
            _with_bars(axes, points, index, method_name(method))
        if index == 0 and (points := _line(rows, head, method, LATER)):
            _with_bars(axes, points, index, f"{method_name(method)}, cut one layer later", later=True)
        for row in rows:
            if row["head"] == OWN and row["method"] == method and _finite(row["error"]):
                axes.axhline(100 * row["error"], color=series(index), linewidth=1.1, dashes=(5, 3), zorder=1)
    wanted = [row for row in rows if row["head"] in (head, OWN, bare) and _finite(row["error"])]
    wanted = [row for row in wanted if row["cut"] == USUAL or row["method"] == methods[0]]
    samples = sorted({row["samples"] for row in wanted if row["samples"]})
    _partial_data_axes(axes, samples, [100 * row["error"] for row in wanted])
    return figure


def training(
    runs: Sequence[tuple[str, Columns]], name: str, methods: Sequence[str], size: tuple[float, float]
) -> Figure:
    """Loss or training-batch error over steps, a thin line per run.

    Args:
        runs: (method, columns ``step`` and `name`) per run; what is None or not finite is a gap.
        name: ``"loss"`` or ``"error"``, a fraction.
        methods: In the page's order.
        size: Width and height, inches.
    """
    figure, axes = empty(size)
    named: set[str] = set()
    for method, columns in runs:
        x, y = _thinned(columns, name)
        label = "_" if method in named else method_name(method)
        named.add(method)
        y = 100 * y if name == "error" else y
        axes.plot(x, y, color=series(methods.index(method)), linewidth=1.1, alpha=0.8, label=label)
    axes.set_xlabel("training step", color=INK)
    axes.set_ylabel(f"{name} on the training batch", color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    _logarithmic_if_it_helps(axes, " %" if name == "error" else "")
    legend(axes)
    return figure


def recorded(columns: Columns, name: str) -> bool:
    """Whether a training curve has any finite number in a column.

    >>> recorded({"step": [0, 1], "error": [None, float("nan")]}, "error")
    False
    """
    return any(_finite(value) for value in columns.get(name, ()))


def empty(size: tuple[float, float]) -> tuple[Figure, Axes]:
    """A figure with one pair of axes in the page's style; `size` in inches."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    styled(axes)
    return figure, axes


def styled(axes: Axes) -> None:
    """Give axes the look that all of a page's have."""
    for side, spine in axes.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=MUTED)
    axes.tick_params(colors=INK, which="both", labelsize=9.5, color=MUTED)
    axes.xaxis.label.set_fontsize(10)
    axes.yaxis.label.set_fontsize(10)


def _line(
    rows: Iterable[Mapping[str, Any]], head: str, method: str, cut: str = USUAL
) -> list[Mapping[str, Any]]:
    """The rows of one line in order of images; of several that stand at one place, the first."""
    found: dict[Any, Mapping[str, Any]] = {}
    for row in rows:
        if (
            (row["head"], row["method"], row["cut"]) == (head, method, cut)
            and row["samples"]
            and _finite(row["error"])
        ):
            found.setdefault(row["samples"], row)
    return [found[samples] for samples in sorted(found)]


def _with_bars(
    axes: Axes, points: Sequence[Mapping[str, Any]], index: int, label: str, later: bool = False
) -> None:
    """A line with markers, and a bar from low to high wherever both are known; the later cut's is hollow."""
    colour = series(index)
    x, y = [row["samples"] for row in points], [100 * row["error"] for row in points]
    style: dict[str, Any] = {"linestyle": (0, (1, 1.2)), "markerfacecolor": PAPER} if later else {}
    style |= {"marker": marker(index), "markersize": 5.5, "linewidth": 1.8, "zorder": 3}
    axes.plot(x, y, color=colour, label=label, **style)
    barred = [row for row in points if _finite(row["low"]) and _finite(row["high"])]
    if barred:
        at = [100 * row["error"] for row in barred]
        ends = [
            [100 * (row["error"] - row["low"]) for row in barred],
            [100 * (row["high"] - row["error"]) for row in barred],
        ]
        where = [row["samples"] for row in barred]
        axes.errorbar(
            where, at, yerr=np.abs(ends), fmt="none", ecolor=colour, elinewidth=1.1, capsize=2.5, zorder=2
        )


def _partial_data_axes(axes: Axes, samples: Sequence[float], drawn: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(readable_ticks(samples)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    if drawn and min(drawn) > 0:
        axes.set_yscale("log")
        low, high = max(0.05, 0.7 * min(drawn)), min(100.0, 1.35 * max(drawn))
        axes.set_ylim(low, high)
        axes.yaxis.set_major_locator(FixedLocator([tick for tick in PERCENTS if low <= tick <= high]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_xlabel("images used to retrain the last layers", color=INK)
    axes.set_ylabel("wrong on test images", color=INK)
    legend_below(axes)


def readable_ticks(samples: Sequence[float], apart: float = 0.12) -> list[float]:
    """Where a logarithmic axis is labelled: the ends, and between them what leaves room for its number.

    Args:
        samples: Ascending, above 0.
        apart: The least distance between two labels, as a share of the axis.

    >>> readable_ticks([10, 100, 1000, 1300])
    [10, 100, 1300]
    """
    kept = list(samples[-1:])
    least = apart * math.log(samples[-1] / samples[0]) if samples else 0.0
    for value in reversed(samples[:-1]):
        if math.log(kept[0] / value) >= least:
            kept.insert(0, value)
    return kept


def _thinned(columns: Columns, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Every k-th point of a training curve; None and what is not finite become gaps."""
    numbers = [np.nan if value is None else float(value) for value in columns.get(name, ())]
    step = -(-len(numbers) // MOST_STEPS) or 1
    y = np.array(numbers[::step], dtype=float)
    return np.array(columns["step"][::step], dtype=float)[: len(y)], np.where(np.isfinite(y), y, np.nan)


def _logarithmic_if_it_helps(axes: Axes, unit: str) -> None:
    values = np.concatenate([np.ravel(line.get_ydata()) for line in axes.lines] or [np.zeros(0)])
    values = values[np.isfinite(values)]
    if len(values) and values.min() > 0 and values.max() > 30 * values.min():
        axes.set_yscale("log")
        axes.set_ylabel(f"{axes.get_ylabel()} (logarithmic)")
        logarithmic(axes.yaxis, unit)
        return
    if len(values) and values.min() >= 0:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))


def _finite(value: Any) -> bool:
    return value is not None and bool(np.isfinite(value))
