"""The partial-data curve as an exhibit: test error over how many images rebuilt the last layers.

It is drawn from the summary over seeds, so the summary itself becomes an exhibit (method ``"summary"``, no
seed), made afresh from the measurements whenever a page is built.
"""

from typing import Any

from clearance.records.derived import SummaryRow
from clearance.records.record import ExhibitRecord
from clearance.report.findings import FEW, Findings
from clearance.report.names import NO_NETWORK
from clearance.report.over_seeds import SUMMARY, stored
from clearance.vocabulary import Exhibit

NAME = "partial_data"
OWN = "own"  # the last layers that the network was trained with
USUAL, LATER = "usual cut", "one layer later"  # where the network is cut
DEEPER = "deeper_cut"  # the audit that cuts it later
COLUMNS = ("method", "head", "cut", "samples", "error", "low", "high", "seeds")


def curve(findings: Findings) -> ExhibitRecord | None:
    """The curve of one dataset: a row per method, stand-in, cut and number of images, and one per own error.

    `low` and `high` are the 95 % t interval over seeds; with a single seed, one standard deviation over the
    repetitions either side. The caption says which.

    >>> from clearance.records import Report
    >>> curve(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    rows = [_point(row, str(row.context.get("head"))) for row in findings.rows("mean", FEW, "error")]
    rows += [
        _point(row, str(row.context.get("head")), LATER) for row in findings.rows("mean", DEEPER, "error")
    ]
    rows += [_point(row, OWN) for row in findings.rows("mean", "accuracy", "error", split="test")]
    if not any(row["head"] != OWN and row["cut"] == USUAL for row in rows):
        return None
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    bars = "95 % interval over seeds" if findings.seeds > 1 else "standard deviation over repetitions"
    caption = f"Bars: {bars}. Dashed across: with its own last layers."
    exhibit = Exhibit(FEW, NAME, "curve", columns, caption)
    return ExhibitRecord(findings.dataset, SUMMARY, None, exhibit)


def curve_of(findings: Findings) -> ExhibitRecord | None:
    """The stored curve of a dataset, if it has one.

    >>> from clearance.records import Report
    >>> curve_of(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    return stored(findings, FEW, NAME)


def _point(row: SummaryRow, head: str, cut: str = USUAL) -> dict[str, Any]:
    low, high = row.low, row.high
    if row.seeds == 1 and row.within is not None:
        low, high = row.value - row.within, row.value + row.within
    return {
        "method": "" if head in NO_NETWORK else row.method,
        "head": head,
        "cut": cut,
        "samples": row.context.get("samples"),
        "error": row.value,
        "low": low,
        "high": high,
        "seeds": row.seeds,
    }
