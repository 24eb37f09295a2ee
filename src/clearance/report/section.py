"""What a page says about one audit: a title, some sentences, and rows of pictures and tables in order."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from clearance.report.compact import Compact
from clearance.report.gallery import Picture

PAPER = "Sato et al. (2019)"


@dataclass(frozen=True, slots=True)
class Row:
    """Pictures side by side.

    Args:
        pictures: What to show.
        shape: ``"features"`` for small ones, one per method; ``"two"`` for wide ones.
        title: Words above them.
        folded: Whether they are shown only when asked for; `title` is then what is clicked on.
    """

    pictures: Sequence[Picture]
    shape: str = "two"
    title: str = ""
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


def cited(what: str) -> str:
    """Where a reader of the paper has seen this before.

    >>> cited("Fig. 3")
    'Compare Fig. 3 of Sato et al. (2019).'
    """
    return f"Compare {what} of {PAPER}."
