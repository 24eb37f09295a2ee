"""The pictures of LeNet: errors epoch by epoch, first filters, and images beside what they became."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from clearance.report.drawing import contact_sheet as drawn_sheet
from clearance.report.drawing import empty, legend
from clearance.report.svg import GRID, INK, series

PAGE_INK = "#222222"
GAP = 2  # pixels between images
ERRORS = ("test_error", "train_error")
Tree = Mapping[str, Any]


def error_curves(networks: Mapping[tuple[str, str], Sequence[Tree]]) -> Figure:
    """Test errors (solid) and training errors (dashed) after every epoch, a colour for each method and init.

    Args:
        networks: What `measured_network` found, a list over seeds, by (method, init).
    """
    figure, axes = empty((7.2, 4.2))
    for index, ((method, init), found) in enumerate(networks.items()):
        for place, one in enumerate(found):
            label = f"{method}, init {init}" if place == 0 else "_"
            epochs = [row["epoch"] for row in one["history"]]
            for column, dashed in zip(ERRORS, (False, True), strict=True):
                axes.plot(
                    epochs, [100 * row[column] for row in one["history"]], color=series(index), alpha=0.85,
                    linewidth=1.1, linestyle="--" if dashed else "-", label="_" if dashed else label,
                )  # fmt: skip
    axes.set_ylim(0, _highest(networks))
    axes.set_xlabel("epoch", color=INK)
    axes.set_ylabel("wrong, %; dashed on training images", color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    legend(axes)
    return figure


def _highest(networks: Mapping[tuple[str, str], Sequence[Tree]]) -> float:
    """6 % as in the article, or what holds the last error of every network."""
    last = [
        row[name]
        for found in networks.values()
        for one in found
        for row in one["history"][-1:]
        for name in ERRORS
    ]
    return max(6.0, 110 * max(last, default=0.0))


def filters(networks: Mapping[tuple[str, str], Sequence[Tree]]) -> Figure:
    """The filters of the first convolution of each first seed, each row in a scale of its own."""
    rows = {key: np.array(found[0]["filters"]) for key, found in networks.items() if found}
    figure = Figure(figsize=(9.0, 0.9 * len(rows)), layout="constrained")
    cells = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    for axes, ((method, init), row) in zip(cells, rows.items(), strict=True):
        most = np.abs(row[np.isfinite(row)]).max(initial=0.0) or 1.0
        axes.imshow(_side_by_side(row, np.nan), cmap="gray", vmin=-most, vmax=most, interpolation="nearest")
        axes.set_title(f"{method}, init {init}, up to {most:.2g}", fontsize=8, loc="left", color=PAGE_INK)
        axes.set_axis_off()
    return figure


def contact_sheet(sheet: Tree, title: str) -> Figure:
    """Three rows: images and how sure their class is, what they became and how sure the next is, the change, its norm.

    Args:
        sheet: Of one network, as `attacked_network` gives it.
        title: Whose it is.
    """
    figure = drawn_sheet(sheet, PAGE_INK)
    figure.suptitle(title, fontsize=10, color=PAGE_INK)
    return figure


def _side_by_side(images: np.ndarray, between: float) -> np.ndarray:
    """(n, H, W) as one picture; drawn as one, because an axes for each takes seconds."""
    return np.concatenate(
        [np.pad(image, ((0, 0), (0, GAP)), constant_values=between) for image in images], axis=1
    )


def as_png(figure: Figure) -> bytes:
    """The figure as a PNG; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()
