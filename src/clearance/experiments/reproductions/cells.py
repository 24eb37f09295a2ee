"""How the ledgers of studies print a mean over seeds, and rows of cells."""

from clearance.records.markdown import markdown_table as markdown_table
from clearance.report.numbers import THIN, printed


def mean_and_spread(mean: float, spread: float | None, unit: str) -> str:
    """A mean ± sd over seeds; the mean alone where one seed gives no spread.

    >>> mean_and_spread(0.0312, 0.004, "fraction")
    '3.1 % ± 0.4 %'
    """
    text = printed(mean, unit) + ("" if spread is None else f" ± {printed(spread, unit)}")
    return text.replace(THIN, " ")
