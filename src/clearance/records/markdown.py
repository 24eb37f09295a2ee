"""Markdown tables and text, escaped."""

import re
from collections.abc import Sequence

from clearance._text import visible


def markdown_text(text: str) -> str:
    r"""One line of Markdown that displays the text unchanged.

    >>> markdown_text("<b>*a* [x](y)"), markdown_text("two\nlines")
    ('&lt;b>\\*a\\* \\[x](y)', 'two\\\\nlines')
    """
    return re.sub(r"([\\`*\[])", r"\\\1", visible(text)).replace("&", "&amp;").replace("<", "&lt;")


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Cells as a Markdown table; the first row is its head, and bars within a cell are escaped.

    >>> print(markdown_table([["", "error"], ["plain", "3.0 %"]]))
    |  | error |
    | --- | --- |
    | plain | 3.0 % |
    """
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
