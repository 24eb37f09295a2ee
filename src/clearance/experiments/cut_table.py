"""Errors from the fewest images at both cuts of the network, and on raw pixels, for a ledger."""

from clearance.records import Report
from clearance.records.derived import SummaryRow

USUAL, LATER = "co_adaptation", "deeper_cut"
HEADS = ("retrained", "linear", "class mean", "class mean, unit length", "nearest neighbour")
PIXELS = ("class mean, pixels", "nearest pixel")


def cut_table(report: Report) -> tuple[list[str], list[list[str]]] | None:
    """Columns and lines: for each method the error at the cut it was trained with, and one layer later.

    A line is a head; heads that were not measured are left out. The last lines are raw pixels, whatever the
    network. (From one image of each class the nearest class mean is the nearest neighbour.) None where only one
    cut was measured.

    >>> cut_table(Report({}, {}, "", "")) is None
    True
    """
    rows = [row for row in report.summary if row.kind == "mean" and row.name == "error"]
    fewest = min((int(row.context["samples"]) for row in rows if row.audit == LATER), default=None)
    if fewest is None:
        return None
    found = {
        (row.audit, row.context["head"], row.method): _percent(row)
        for row in rows
        if row.audit in (USUAL, LATER) and row.context["samples"] == fewest
    }
    methods = list(dict.fromkeys(row.method for row in rows if row.audit == LATER))
    columns = [f"from {fewest} images", *(f"{m}, {cut}" for m in methods for cut in ("as trained", "later"))]
    lines = [
        [head, *(found.get((audit, head, m), "–") for m in methods for audit in (USUAL, LATER))]
        for head in HEADS
        if any((audit, head, m) in found for m in methods for audit in (USUAL, LATER))
    ]
    blank = [""] * (len(columns) - 2)
    for head in PIXELS:  # the same for every method
        value = next((cell for (_, name, _), cell in found.items() if name == head), None)
        lines += [] if value is None else [[f"{head}, no network", value, *blank]]
    return columns, lines


def _percent(row: SummaryRow) -> str:
    return f"{100 * row.value:.1f} %"
