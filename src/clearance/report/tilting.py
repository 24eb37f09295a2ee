"""The figures on why boundaries lean: losses and what scaling makes of them, and a pair's path over the penalty.

Each function sees the columns of exhibits and nothing else, and returns a figure.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clearance.report.figures import empty
from clearance.report.marks import legend
from clearance.report.svg import GRID, INK, MUTED, series

Columns = Mapping[str, Sequence[Any]]
SIZE = (4.8, 3.4)
NAMES = {"zero_one": "0-1", "hinge": "hinge", "softplus": "softplus"}


def losses(columns: Columns) -> Figure:
    """The three losses over y s(x)."""
    figure, axes = empty(SIZE)
    for index, (name, label) in enumerate(NAMES.items()):
        style = "steps-post" if name == "zero_one" else "default"
        axes.plot(
            columns["z"], columns[name], color=series(index), linewidth=1.8, label=label, drawstyle=style
        )
    _labelled(axes, "y s(x): score of the true side", "loss")
    legend(axes)
    return figure


def limits(columns: Columns, distances: Columns, *, large: bool) -> Figure:
    """Hinge and softplus at one end of the scale, with their limits, over the example distances.

    Args:
        columns: Of the exhibit ``limits``.
        distances: Of the exhibit ``distances``.
        large: Large weights, or small ones.
    """
    figure, axes = empty(SIZE)
    scale = (max if large else min)(columns["scale"])
    top = scale * 3 if large else 1.4
    _bars(axes, distances, 0.6 * top)
    for index, (name, label) in enumerate(list(NAMES.items())[1:], start=1):
        chosen = [k for k, one in enumerate(columns["loss"]) if one == name and columns["scale"][k] == scale]
        z, scaled, limit = ([columns[key][k] for k in chosen] for key in ("z", "scaled", "limit"))
        axes.plot(z, scaled, color=series(index), linewidth=1.8, label=label)
        axes.plot(z, limit, color=series(index), linewidth=1.4, dashes=(4, 3), label=f"{label}, limit")
    axes.set_ylim(0, top)
    _labelled(axes, "y d(x): distance to the boundary", f"loss at ‖w‖ = {scale:.3g}")
    legend(axes)
    return figure


def log_likelihood(columns: Columns, likelihoods: Columns) -> Figure:
    """Minus the logarithm of the likelihood, over a histogram of likelihoods."""
    figure, axes = empty(SIZE)
    _bars(axes, likelihoods, 2.5)
    axes.plot(columns["likelihood"], columns["loss"], color=series(0), linewidth=1.8)
    axes.set_ylim(0, 5)
    _labelled(axes, "likelihood of the true class", "− ln likelihood")
    return figure


def path(columns: Columns) -> Figure:
    """Angle and adversarial distance, and both errors, over the penalty."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    x = columns["log10_lambda"]
    largest = max(columns["adversarial_distance"])
    left.plot(
        x, [math.degrees(angle) / 90 for angle in columns["angle"]], color=series(0), label="angle / 90°"
    )
    share = [distance / largest for distance in columns["adversarial_distance"]]
    left.plot(x, share, color=series(1), label=f"adversarial distance / {largest:.3g}")
    for index, split in ((2, "train"), (3, "test")):
        percents = [100 * value for value in columns[f"{split}_error"]]
        if all(map(math.isfinite, percents)):
            right.plot(x, percents, color=series(index), label="training" if split == "train" else split)
    for axes, name in ((left, "share of the largest"), (right, "wrong, %")):
        axes.tick_params(colors=INK, labelsize=9)
        for side, spine in axes.spines.items():
            spine.set(visible=side in ("left", "bottom"), color=MUTED)
        axes.set_ylim(bottom=0)
        _labelled(axes, "log10 λ", name)
        legend(axes)
    return figure


def _bars(axes: Axes, columns: Columns, height: float) -> None:
    """A histogram as grey columns behind a curve, as tall as told."""
    centres, counts = np.array(columns["centre"]), np.array(columns["count"])
    axes.bar(centres, counts * height / counts.max(), width=centres[1] - centres[0], color=GRID, zorder=0)


def _labelled(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
