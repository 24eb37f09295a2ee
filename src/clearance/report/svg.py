"""A matplotlib figure as SVG: inside a page, whose colours it takes in light and in dark, or as a separate file.

Figures are drawn with placeholder colours. Here each becomes a CSS variable with a fallback, so that one
drawing is readable on both backgrounds and still has colours on its own. The same figure gives the
same text.
"""

import io
import re
import warnings
from bisect import bisect_right
from collections.abc import Mapping
from importlib import resources
from itertools import accumulate
from unicodedata import east_asian_width

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text

INK, MUTED, GRID, PAPER = "#010203", "#040506", "#070809", "#0a0b0c"
# Okabe and Ito's colours, darkened until they have contrast on white; page.css has the ones for black.
SERIES = (
    "#0072b2",
    "#c64600",
    "#00795a",
    "#a8407f",
    "#7a5c00",
    "#3d3d9e",
    "#117790",
    "#6b6b6b",
    "#9c2a2a",
    "#4a7000",
)
_PLACES = {
    INK: "currentColor",
    MUTED: "var(--muted, #666)",
    GRID: "var(--grid, #ddd)",
    PAPER: "var(--paper, #fff)",
}


def series(index: int) -> str:
    """Placeholder for the colour of the `index`-th method or class; after ten they start again.

    >>> series(0), series(11)
    ('#a00000', '#a00001')
    """
    return f"#a000{index % len(SERIES):02x}"


def as_svg(figure: Figure, name: str, title: str) -> Markup:
    """The figure as an ``<svg>`` element without ids that could clash, scripts or dates.

    Args:
        figure: Any of matplotlib.
        name: Unique within the page; the ids of markers and clip paths grow from it.
        title: What a screen reader says.

    >>> str(as_svg(Figure(figsize=(1, 1)), "empty", "Nothing"))[:45]
    '<svg class="figure" role="img" aria-label="No'
    """
    named = {words for box in figure.findobj(Legend) for words in box.get_texts()}
    for words in figure.findobj(Text):
        _literal(words, LONGEST_NAME if words in named else LONGEST)
    buffer = io.StringIO()
    with (
        mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "path.simplify": False}),
        warnings.catch_warnings(),
    ):
        # the reader's fonts draw the letters; matplotlib's only say how wide they are, about
        warnings.filterwarnings(
            "ignore", "Glyph .* missing from|Matplotlib currently does not support", UserWarning
        )
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]*>", lambda tag: _styled(tag[0]), text)
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    start = f'<svg class="figure" role="img" aria-label="{escape(title)}" viewBox="{box[1]}"'
    start += ' xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    return Markup(start + text[text.index(">") + 1 :].strip())  # noqa: S704 (matplotlib escapes what it draws)


LONGEST, LONGEST_NAME = 48, 36  # letters of a line of words in a picture, of a name in a legend


def _literal(words: Text, longest: int) -> None:
    """A dollar sign is a dollar sign, and a name of any length leaves room for the picture."""
    words.set_parse_math(False)
    words.set_text("\n".join(cut(line, longest) for line in words.get_text().split("\n")))


def cut(line: str, longest: int) -> str:
    """The line, or its beginning; letters of Chinese, Japanese and Korean count twice.

    >>> cut("a name", 4), cut("name", 4), cut("\u732b\u732b\u732b", 4)
    ('a n…', 'name', '\u732b…')
    """
    widths = list(accumulate(2 if east_asian_width(letter) in "WF" else 1 for letter in line))
    return line if not line or widths[-1] <= longest else line[: bisect_right(widths, longest - 1)] + "…"


def _styled(tag: str) -> str:
    """A tag without id, font and placeholders; the words between tags are names of the data, and stay."""
    tag = re.sub(r'<g id="[^"]*"', "<g", tag)
    tag = re.sub(r"font: ([0-9.]+px) [^;\"]*", r"font-size: \1", tag)
    return _coloured(re.sub(r"font-family: [^;\"]*;?\s*", "", tag))


def glyph(index: int, marker: str) -> Markup:
    """The small sign of a method, as the figures draw it, for a table's first column.

    >>> str(glyph(0, "o"))
    '<svg class="glyph" viewBox="-6 -6 12 12" aria-hidden="true"><path .../></svg>'
    """
    colour = _coloured(series(index))
    start = Markup('<svg class="glyph" viewBox="-6 -6 12 12" aria-hidden="true">')
    return start + Markup('<path d="{}" fill="{}"/></svg>').format(GLYPHS[marker], colour)


GLYPHS: Mapping[str, str] = {
    "o": "M4 0A4 4 0 1 1 -4 0A4 4 0 1 1 4 0z",
    "s": "M-3.7 -3.7H3.7V3.7H-3.7z",
    "^": "M0 -4.4L4.4 3.6H-4.4z",
    "D": "M0 -4.8L4.8 0L0 4.8L-4.8 0z",
    "v": "M0 4.4L4.4 -3.6H-4.4z",
    "P": "M-1.6 -4.6H1.6V-1.6H4.6V1.6H1.6V4.6H-1.6V1.6H-4.6V-1.6H-1.6z",
    "X": "M-4.6 -2.4l2.2-2.2 2.4 2.4 2.4-2.4 2.2 2.2L2.2 0l2.4 2.4-2.2 2.2L0 2.2l-2.4 2.4-2.2-2.2L-2.2 0z",
    "p": "M0 -4.8L4.6 -1.5L2.8 3.9H-2.8L-4.6 -1.5z",
}
MARKERS = tuple(GLYPHS)


def marker(index: int) -> str:
    """The marker of the `index`-th method: with ten colours and eight markers, forty methods differ.

    >>> marker(0), marker(9)
    ('o', 's')
    """
    return MARKERS[index % len(MARKERS)]


def _coloured(text: str) -> str:
    for placeholder, colour in _PLACES.items():
        text = text.replace(placeholder, colour)

    def variable(match: re.Match[str]) -> str:
        index = int(match[1], 16)
        return f"var(--s{index}, {SERIES[index]})"

    return re.sub(r"#a000([0-9a-f]{2})", variable, text)


FIRST_RULE = "* {"  # of the page's style; before it stand the colours alone


def standalone_svg(figure: Figure, name: str, title: str) -> str:
    """The figure as the text of an SVG file that is readable wherever it is shown.

    It follows the reader's choice of light or dark, also as an image in another document.

    Args:
        figure: Drawn with the placeholder colours of :mod:`clearance.report.svg`.
        name: The ids of markers and clip paths grow from it.
        title: What a screen reader says.

    >>> text = standalone_svg(Figure(figsize=(1, 1)), "empty", "Nothing")
    >>> text.startswith("<svg"), "prefers-color-scheme: dark" in text, 'fill="var(--paper)"' in text
    (True, True, True)
    """
    text = str(as_svg(figure, name, title))
    page = resources.files("clearance.report").joinpath("page.css").read_text("utf-8")
    colours = page[: page.index(FIRST_RULE)]
    style = f'{colours}svg {{ color: var(--ink); font-family: system-ui, "Segoe UI", Arial, sans-serif; }}'
    start = text.index(">") + 1
    paper = '<rect width="100%" height="100%" fill="var(--paper)"/>'
    return f"{text[:start]}<style>{style}</style>{paper}{text[start:]}\n"
