"""Fig. 1 redrawn: a panel of features for each loss, and the learned likelihood with attacked images over it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from clearance.report.svg import GRID, INK, PAPER, marker, series
from clearance.vocabulary import Exhibit

Columns = Mapping[str, Sequence[Any]]
TITLES = {
    "softmax": "softmax", "center": "softmax + center loss", "l-softmax": "L-Softmax", "gm": "GM, alpha 0",
    "lgm": "L-GM, alpha 1",
}  # fmt: skip
LEVELS = np.linspace(0.0, 1.0, 21)
HEAT = "cividis"  # brighter is likelier, and the same to every kind of eye
BRIGHT, DARK = "#ffffff", "#000000"
CROSS: dict[str, Any] = {
    "s": 34,
    "color": BRIGHT,
    "edgecolor": DARK,
    "marker": "X",
    "linewidth": 0.7,
    "zorder": 4,
}
COLUMNS = 3


def embedding_picture(
    panels: Mapping[str, Mapping[str, Exhibit]],
    methods: Sequence[str],
    with_likelihood: str,
    errors: Mapping[str, float],
) -> Figure:
    """The figure.

    Args:
        panels: For each method the exhibits ``features``, ``means`` and perhaps ``learned means``, ``likelihood`` and
            ``attacked``; a method without any has a panel that says so.
        methods: In the order of panels.
        with_likelihood: The method whose likelihood is the last panel.
        errors: Test error by method.
    """
    count = len(methods) + 1
    figure = Figure(figsize=(11, 3.75 * -(-count // COLUMNS) + 0.3), layout="constrained")
    cells = figure.subplots(-(-count // COLUMNS), COLUMNS, squeeze=False).ravel()
    for axes, method in zip(cells, methods, strict=False):
        _style(axes)
        error = f", test error {100 * errors[method]:.1f} %" if method in errors else ""
        axes.set_title(f"{TITLES.get(method, method)}{error}", fontsize=11, color=INK)
        if method in panels:
            _panel(axes, panels[method])
        else:
            axes.text(0.5, 0.5, "did not finish", transform=axes.transAxes, ha="center", color=INK)
    last = cells[len(methods)]
    _style(last)
    if "likelihood" in panels.get(with_likelihood, {}):
        _likelihood(figure, last, panels[with_likelihood])
    for axes in cells[count:]:
        axes.set_visible(False)
    attacked = panels.get(with_likelihood, {}).get("attacked")
    _legend(figure, None if attacked is None else attacked.context["epsilon"])
    return figure


def _panel(axes: Axes, shown: Mapping[str, Exhibit]) -> None:
    points, classes = shown["features"].columns, list(dict.fromkeys(shown["means"].columns["label"]))
    x, y, labels = np.array(points["x"], float), np.array(points["y"], float), list(points["label"])
    for index, name in enumerate(classes):
        mine = np.array([label == name for label in labels])
        axes.scatter(x[mine], y[mine], s=9, color=series(index), marker=marker(index), linewidths=0)
    if "learned means" in shown:
        learned = shown["learned means"].columns
        axes.scatter(
            learned["x"], learned["y"], s=190, facecolors="none", edgecolors=INK, linewidths=0.9, zorder=4
        )
    _digits(axes, shown["means"].columns)


def _digits(axes: Axes, means: Columns) -> None:
    for index, (x, y, name) in enumerate(zip(means["x"], means["y"], means["label"], strict=True)):
        text = axes.text(
            x, y, str(name)[:6], fontsize=9.5, fontweight="bold", color=INK, ha="center", va="center", zorder=5,
            bbox={"boxstyle": "round,pad=0.12", "facecolor": PAPER, "edgecolor": series(index), "linewidth": 1.0},
        )  # fmt: skip
        text.set_parse_math(False)


def _likelihood(figure: Figure, axes: Axes, shown: Mapping[str, Exhibit]) -> None:
    grid, attacked = shown["likelihood"].columns, shown["attacked"]
    side = round(len(grid["x"]) ** 0.5)
    x, y, nats = (np.reshape(np.array(grid[key], float), (side, side)) for key in ("x", "y", "value"))
    filled = axes.contourf(x, y, np.exp(nats), LEVELS, cmap=HEAT)
    filled.set_edgecolor("face")  # no seams between bands
    axes.scatter(attacked.columns["x"], attacked.columns["y"], **CROSS)
    learned = shown["learned means"].columns
    for place in zip(learned["x"], learned["y"], learned["label"], strict=True):
        axes.text(*place, fontsize=9.5, fontweight="bold", color=DARK, ha="center", va="center", zorder=5)
    axes.set(aspect="equal", adjustable="box", xlim=(x.min(), x.max()), ylim=(y.min(), y.max()))
    axes.set_title("likelihood that L-GM learned", fontsize=11, color=INK)
    bar = figure.colorbar(filled, ax=axes, shrink=0.8, pad=0.02, ticks=[0, 0.5, 1])
    bar.set_label("exp(-d) of the nearest class", color=INK, fontsize=9.5)
    bar.ax.tick_params(colors=INK, labelsize=9)
    bar.outline.set_edgecolor(GRID)


def _legend(figure: Figure, epsilon: object) -> None:
    """What digits, rings and crosses are."""
    ring: dict[str, Any] = {
        "markersize": 12,
        "markerfacecolor": "none",
        "markeredgecolor": INK,
        "markeredgewidth": 0.9,
    }
    cross: dict[str, Any] = {
        "markersize": 7,
        "markerfacecolor": BRIGHT,
        "markeredgecolor": DARK,
        "markeredgewidth": 0.7,
    }
    signs = [
        Line2D([], [], linestyle="none", marker="$1$", color=INK, label="mean of a class"),
        Line2D([], [], linestyle="none", marker="o", label="mean that the mixture learned", **ring),
    ]
    if epsilon is not None:
        told = f"test image made wrong by FGSM, epsilon {epsilon}"
        signs.append(Line2D([], [], linestyle="none", marker="X", label=told, **cross))
    figure.legend(
        handles=signs, loc="outside lower center", ncols=3, frameon=False, labelcolor=INK, fontsize=9.5
    )


def _style(axes: Axes) -> None:
    axes.set_aspect("equal", adjustable="datalim")
    axes.tick_params(colors=INK, color=GRID, labelsize=9)
    for spine in axes.spines.values():
        spine.set_color(GRID)
