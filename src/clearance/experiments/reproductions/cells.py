"""How the ledgers of studies print a mean over seeds, and rows of cells."""

from collections.abc import Sequence

from clearance.report.numbers import THIN, printed


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Cells as a table of Markdown; the first row is its head.

    >>> print(markdown_table([["", "error"], ["plain", "3.0 %"]]))
    |  | error |
    | --- | --- |
    | plain | 3.0 % |
    """
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def mean_and_spread(mean: float, spread: float | None, unit: str) -> str:
    """A mean ± sd over seeds; the mean alone where one seed gives no spread.

    >>> mean_and_spread(0.0312, 0.004, "fraction")
    '3.1 % ± 0.4 %'
    """
    text = printed(mean, unit) + ("" if spread is None else f" ± {printed(spread, unit)}")
    return text.replace(THIN, " ")
