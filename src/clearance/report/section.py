"""What a page says about one audit: a title, some sentences, and rows of pictures and tables in order."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from clearance.report.compact import Compact
from clearance.report.gallery import Picture


@dataclass(frozen=True, slots=True)
class Row:
    """Pictures side by side.

    Args:
        pictures: What to show.
        shape: ``"features"`` for small ones, one per method; ``"two"`` for wide ones.
        title: Words above them.
        cite: What a reader of the paper may compare them with.
        folded: Whether they are shown only when asked for; `title` is then what is clicked on.
    """

    pictures: Sequence[Picture]
    shape: str = "two"
    title: str = ""
    cite: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page about one audit.

    Args:
        title: The heading, in plain words.
        text: Paragraphs below it.
        parts: Pictures and tables, in the page's order.
        cite: The figure or table of the paper that this is about, for who knows the paper.
    """

    title: str
    text: Sequence[str | Markup]
    parts: Sequence[Row | Compact]
    cite: str = ""
