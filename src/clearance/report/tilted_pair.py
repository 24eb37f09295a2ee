"""Two classes on paper, at a few penalties side by side: the tilting plane, the distances, and the pictures."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clearance.report.marks import legend_below
from clearance.report.svg import INK, MUTED, marker, series
from clearance.vocabulary import Exhibit

Shown = Mapping[str, Exhibit]
"""An exhibit for each machine, by the machine's name."""


def planes(shown: Shown) -> Figure:
    """The samples as the tilting plane shows them, with both class means and the boundary."""
    figure, cells = _side_by_side(shown, 3.1)
    for axes, (title, one) in zip(cells, shown.items(), strict=True):
        x, y = (np.array(one.columns[key], float) for key in ("x", "y"))
        labels = list(one.columns["label"])
        for index, name in enumerate(dict.fromkeys(labels)):
            mine = np.array([label == name for label in labels])
            axes.scatter(
                x[mine], y[mine], s=5, color=series(index), marker=marker(index), linewidths=0, label=name
            )
        angle, offset, apart = (float(one.context[key]) for key in ("angle", "offset", "separation"))
        axes.scatter([-apart / 2, apart / 2], [0, 0], s=34, color=INK, marker="+", label="class means")
        reach = 1.05 * float(np.abs([x, y]).max())
        along, across = (
            np.array([-math.sin(angle), math.cos(angle)]),
            np.array([math.cos(angle), math.sin(angle)]),
        )
        ends = np.array([-2 * reach, 2 * reach])[:, None] * along - offset * across
        axes.plot(ends[:, 0], ends[:, 1], color=INK, linewidth=1.4, label="boundary")
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        _named(axes, title, "along the class means", "across")
    legend_below(cells[0])
    return figure


def distances(shown: Shown) -> Figure:
    """Histograms of signed distances, with the hinge of the first class's side scaled by the weights."""
    figure, cells = _side_by_side(shown, 2.6)
    for axes, (title, one) in zip(cells, shown.items(), strict=True):
        centres = np.array(one.columns["centre"])
        width = centres[1] - centres[0]
        for index, key in enumerate(("first", "second")):
            counts = np.array(one.columns[key])
            axes.bar(
                centres, counts, width=width, color=series(index), alpha=0.6, label=str(one.context[key])
            )
        most = max(max(one.columns["first"]), max(one.columns["second"]))
        loss = np.maximum(1 + float(one.context["scale"]) * centres, 0)
        axes.plot(
            centres, loss * 0.6 * most / loss.max(), color=INK, linewidth=1.4, label="hinge loss, scaled"
        )
        _named(axes, title, "signed distance d(x)", "training samples")
    legend_below(cells[0])
    return figure


def pictures(shown: Shown) -> Figure:
    """A row for each machine: means, weights, and a sample of each class with its mirror image."""
    count = max(len(one.columns["image"]) for one in shown.values())
    figure = Figure(figsize=(8.2, 1.5 * len(shown) + 0.2), layout="constrained")
    cells = figure.subplots(len(shown), count, squeeze=False)
    for row, (title, one) in zip(cells, shown.items(), strict=True):
        images, labels = np.array(one.columns["image"], float), list(one.columns["label"])
        for axes, image, label, (low, high) in zip(row, images, labels, _ranges(images, labels), strict=True):
            axes.imshow(_last(image, low, high), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axes.set_title(label[:22], fontsize=7, pad=2, color=INK, parse_math=False)
            axes.set(xticks=[], yticks=[])
            for spine in axes.spines.values():
                spine.set_visible(False)
        row[0].set_ylabel(title, fontsize=8, color=INK)
    return figure


def _ranges(images: np.ndarray, labels: Sequence[str]) -> list[tuple[float, float]]:
    """What is black and white: one range for samples and mirror images, weights around 0, means within [0, 1]."""
    at = labels.index("weights")
    most = float(np.abs(images[at]).max()) or 1.0
    common = (float(images[at + 1 :].min()), float(images[at + 1 :].max()))
    return [*[(0.0, 1.0)] * at, (-most, most), *[common] * (len(labels) - at - 1)]


def _last(image: np.ndarray, low: float, high: float) -> np.ndarray:
    scaled = (image - low) / (high - low) if high > low else image - low
    moved = np.moveaxis(scaled, 0, -1)
    return moved[..., 0] if moved.shape[-1] == 1 else moved


def _side_by_side(shown: Shown, height: float) -> tuple[Figure, Sequence[Axes]]:
    figure = Figure(figsize=(8.2, height), layout="constrained")
    return figure, figure.subplots(1, len(shown), squeeze=False)[0]


def _named(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=9.5, color=INK)
    axes.tick_params(colors=INK, labelsize=8)
    for side, spine in axes.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=MUTED)
    axes.set_xlabel(x, color=INK, fontsize=9)
    if axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        axes.set_ylabel(y, color=INK, fontsize=9)
