"""What figures in the form of a paper's share: ink, frame, and the same bytes for the same figure."""

import io

from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, FRAME = "#222222", "#bbbbbb"


def style_plane(axes: Axes) -> None:
    """A plane in which both directions have the same scale, with a quiet frame."""
    axes.set_aspect("equal")
    axes.tick_params(colors=INK, color=FRAME, labelsize=9)
    for spine in axes.spines.values():
        spine.set_color(FRAME)


def as_png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as a PNG; the same figure gives the same bytes.

    >>> as_png(Figure(figsize=(1, 1)))[1:4]
    b'PNG'
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()
