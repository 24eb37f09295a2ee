"""The pictures of LeNet: errors epoch by epoch, first filters, and images beside what they became."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from clearance.report.figures import empty
from clearance.report.marks import legend
from clearance.report.svg import GRID, INK, series

PAGE_INK = "#222222"
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
            for column, dashed in (("test_error", False), ("train_error", True)):
                axes.plot(
                    epochs, [100 * row[column] for row in one["history"]], color=series(index), alpha=0.85,
                    linewidth=1.1, linestyle="--" if dashed else "-", label="_" if dashed else label,
                )  # fmt: skip
    axes.set_ylim(0, 6)
    axes.set_xlabel("epoch", color=INK)
    axes.set_ylabel("wrong, %; dashed on training images", color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    legend(axes)
    return figure


def filters(networks: Mapping[tuple[str, str], Sequence[Tree]]) -> Figure:
    """The filters of the first convolution of each first seed, each row in a scale of its own."""
    rows = {key: np.array(found[0]["filters"]) for key, found in networks.items() if found}
    count = max(len(row) for row in rows.values())
    figure = Figure(figsize=(0.5 * count, 0.75 * len(rows)), layout="constrained")
    cells = figure.subplots(len(rows), count, squeeze=False)
    for line, ((method, init), row) in zip(cells, rows.items(), strict=True):
        most = np.abs(row).max() or 1.0
        for axes, image in zip(line, row, strict=False):
            axes.imshow(image, cmap="gray", vmin=-most, vmax=most, interpolation="nearest")
        line[0].set_title(f"{method}, init {init}, up to {most:.2g}", fontsize=8, loc="left", color=PAGE_INK)
    for axes in cells.flat:
        axes.set_axis_off()
    return figure


def contact_sheet(sheet: Tree, title: str) -> Figure:
    """Three rows: images, what the network is 95 % sure is the next class, and the change, with its norm.

    Args:
        sheet: Of one network, as `attacked_network` gives it.
        title: Whose it is.
    """
    images, moved = np.array(sheet["images"]), np.array(sheet["adversarial"])
    count = len(images)
    figure = Figure(figsize=(1.05 * count, 3.9), layout="constrained")
    cells = figure.subplots(3, count, squeeze=False)
    change = moved - images
    most = np.abs(change).max() or 1.0
    for k in range(count):
        cells[0, k].imshow(images[k], cmap="gray", vmin=0, vmax=1)
        cells[0, k].set_title(f"{sheet['classes'][k]}: {sheet['sure'][k]:.2f}", fontsize=8, color=PAGE_INK)
        cells[1, k].imshow(moved[k], cmap="gray", vmin=0, vmax=1)
        cells[1, k].set_title(
            f"{sheet['targets'][k]}: {sheet['sure_of_target'][k]:.2f}", fontsize=8, color=PAGE_INK
        )
        cells[2, k].imshow(change[k], cmap="gray", vmin=-most, vmax=most)
        cells[2, k].set_title(f"norm {sheet['norm'][k]:.2f}", fontsize=8, color=PAGE_INK)
    for axes in cells.flat:
        axes.set_axis_off()
    figure.suptitle(title, fontsize=10, color=PAGE_INK)
    return figure


def as_png(figure: Figure) -> bytes:
    """The figure as a PNG; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()
