"""Images, what an attack made of them, and the change between: three rows, with words above each picture."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from clearance.report.svg import INK

GAP = 0.08  # between pictures, in pictures
WORDS = 11  # points; a page shows two sheets side by side, at about half of their size
LONGEST = 10  # letters of a name that fit above a picture
Columns = Mapping[str, Sequence[Any]]


def contact_sheet(columns: Columns, ink: str = INK) -> Figure:
    """The figure of one network's sheet.

    Args:
        columns: ``image`` and ``adversarial``, each (H, W) or (C, H, W) in [0, 1]; ``label``, ``target``: names of
            classes; ``sure``, ``sure_of_target``: probabilities, of the label above, of the target in the middle;
            ``norm``: how long the change is.
        ink: Colour of the words.

    The change is drawn in a scale of its own, grey for none, the same for all pictures.

    >>> black, white = [[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]
    >>> columns = {"image": [black], "adversarial": [white], "label": ["night"], "target": ["day"], "sure": [0.9],
    ...            "sure_of_target": [0.95], "norm": [2.0]}
    >>> [text.get_text().split() for axes in contact_sheet(columns).axes for text in axes.texts]
    [['night', '0.90'], ['day', '0.95'], ['norm', '2.00']]
    """
    before, after = (np.stack([_last(one) for one in columns[name]]) for name in ("image", "adversarial"))
    change = after - before
    most = float(np.abs(change).max()) or 1.0
    rows = (
        (before, _sure(columns["label"], columns["sure"])),
        (after, _sure(columns["target"], columns["sure_of_target"])),
        (0.5 + change / (2 * most), [f"norm\n{norm:.2f}" for norm in columns["norm"]]),
    )
    figure = Figure(figsize=(1.0 * len(before), 4.9), layout="constrained")
    for axes, (images, words) in zip(figure.subplots(3, 1), rows, strict=True):
        _row(axes, images, words, ink)
    return figure


def _row(axes: Any, images: np.ndarray, words: Sequence[str], ink: str) -> None:
    """Pictures side by side in one axes, because an axes for each takes seconds."""
    tall = images.shape[1] / images.shape[2]
    for place, (image, word) in enumerate(zip(images, words, strict=True)):
        left = place * (1 + GAP)
        axes.imshow(
            image, cmap="gray", vmin=0, vmax=1, interpolation="nearest", extent=(left, left + 1, 0, tall)
        )
        axes.text(
            left + 0.5, tall + 0.06, word, ha="center", va="bottom", fontsize=WORDS, color=ink,
            parse_math=False,
        )  # fmt: skip
    axes.set_xlim(0, len(images) * (1 + GAP) - GAP)
    axes.set_ylim(0, tall + 0.56)
    axes.set_axis_off()


def _sure(names: Sequence[str], values: Sequence[float]) -> list[str]:
    return [f"{_short(str(name))}\n{value:.2f}" for name, value in zip(names, values, strict=True)]


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _last(image: Any) -> np.ndarray:
    """Channels last, or none where there is one."""
    pixels = np.asarray(image, dtype=float)
    if pixels.ndim == 2:
        return pixels
    return pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1)
