"""A figure as an SVG file of its own: with the page's colours, in light and in dark, and paper under it."""

from importlib import resources

from matplotlib.figure import Figure

from clearance.report.svg import as_svg

FIRST_RULE = "* {"  # of the page's style; before it stand the colours alone


def standalone_svg(figure: Figure, name: str, title: str) -> str:
    """The figure as the text of an SVG file that is readable wherever it is shown.

    It follows the reader's choice of light or dark by itself, also as an image in another document.

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
