"""What the studies of this paper share: their ledger, with tables of methods next to the paper's numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clearance.research import Report, Scalar, markdown_table, printed, summarise
from papers.engine.catalogue import paper_claims
from papers.engine.ledger import TableRow, in_words, mean_and_spread, measured, seeds_in_words
from papers.wan_2018.protocol import BASELINE, PAPER

MARGIN = ("lgm", "gm")  # the mixture with its margin, and without


@dataclass(frozen=True)
class Column:
    """A column of a table whose rows are methods.

    Args:
        head: What stands above it.
        quantity: What is shown, mean ± sd over seeds, with the paired verdict against softmax.
        flipped: Whether a share of what is right is shown as a share of what is wrong.
        judged: Whether the verdict against softmax is shown: not if no direction is better.
    """

    head: str
    quantity: TableRow
    flipped: bool = False
    judged: bool = True


def method_table(report: Report, columns: Sequence[Column], dataset: str) -> str:
    """A row for each method: mean ± sd over seeds, the verdict against `BASELINE`, and what the paper prints.

    Args:
        report: The records.
        columns: What is shown.
        dataset: The dataset; the paper's numbers are shown only for their own dataset.
    """
    lines = [["", *(column.head for column in columns)]]
    lines += [
        [method, *(_cell(report, column, method, dataset) for column in columns)] for method in report.methods
    ]
    return markdown_table(lines)


def margin_note(report: Report, columns: Sequence[Column]) -> list[str]:
    """What the margin alpha adds, a line for each column: the mixture with it against the same without, by pairs.

    Args:
        report: The records.
        columns: What is compared; none of them flipped.

    >>> margin_note(Report({}, {}, "", ""), [])
    []
    """
    if not set(MARGIN) <= set(report.methods):
        return []
    lines = [f"- {column.head}: {in_words(report, column.quantity, *MARGIN)}." for column in columns]
    return [f"## Whether the margin adds anything: {' against '.join(MARGIN)}", "\n".join(lines)]


def papers_number(quantity: TableRow, method: str, dataset: str) -> float | None:
    """What the paper prints for a quantity of a method, as its claims have it; None where nothing is known.

    >>> shown = TableRow("", "attacked", "accuracy", context={"attack": "FGSM", "box": "white", "epsilon": 0.1})
    >>> papers_number(shown, "lgm", "mnist"), papers_number(shown, "lgm", "digits")
    (0.7637, None)
    """
    asked = (quantity.audit, quantity.name, dict(quantity.context), (method,))
    for claim in paper_claims(PAPER).claims:
        for reading in claim.readings if dataset in claim.datasets else ():
            known = (reading.audit, reading.measure, dict(reading.context), tuple(reading.methods))
            if known == asked and reading.value is not None:
                return reading.value
    return None


def seeds_note(report: Report) -> str:
    """Over how many seeds a table's numbers are, and when its verdicts say little."""
    seeds = len({record.seed for record in report.records})
    few = "" if seeds > 1 else "; one seed gives no spread and no verdict"
    return (
        f"Mean ± sd over {seeds_in_words(seeds)}, in brackets the paired verdict against {BASELINE} "
        f"(95 % t interval){few}."
    )


def images_note(report: Report, audit: str, name: str, context: Mapping[str, Scalar]) -> str:
    """How many images a number is of: one count, or the least and the most of all runs."""
    found = sorted({record.measurement.n for record in measured(report.records, audit, name, context)})
    if not found:
        return "no images"
    return f"{found[0]:,} images" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,} images"


def _cell(report: Report, column: Column, method: str, dataset: str) -> str:
    own = column.quantity.of(report, method)
    parts = []
    if own:
        over = summarise(own)
        parts.append(mean_and_spread(_turned(over.mean, column), over.spread, column.quantity.unit))
        one = (
            None
            if method == BASELINE or not column.judged
            else column.quantity.compared(report, method, BASELINE)
        )
        if one is not None and one.low is not None:
            parts.append(f"[{one.verdict}]")
    paper = papers_number(column.quantity, method, dataset)
    if paper is not None:
        parts.append(f"(paper: {printed(_turned(paper, column), column.quantity.unit)})")
    return " ".join(parts) or "–"


def _turned(value: float, column: Column) -> float:
    return 1 - value if column.flipped else value
