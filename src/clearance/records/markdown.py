"""Tables of Markdown: the one place that knows how a cell is written."""

import re
from collections.abc import Sequence

from clearance._text import visible


def markdown_text(text: str) -> str:
    r"""Any text as one line of Markdown that shows it as it is.

    >>> markdown_text("<b>*a* [x](y)"), markdown_text("two\nlines")
    ('&lt;b>\\*a\\* \\[x](y)', 'two\\\\nlines')
    """
    return re.sub(r"([\\`*\[])", r"\\\1", visible(text)).replace("&", "&amp;").replace("<", "&lt;")


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Cells as a table of Markdown; the first row is its head.

    A bar within a cell is escaped, so that it ends no cell.

    >>> print(markdown_table([["", "error"], ["plain", "3.0 %"]]))
    |  | error |
    | --- | --- |
    | plain | 3.0 % |
    """
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
