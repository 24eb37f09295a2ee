"""Error with last layers rebuilt from the fewest images, at either cut of the network, over seeds."""

from clearance.records.record import ExhibitRecord
from clearance.report.curve import DEEPER, LATER, USUAL
from clearance.report.findings import FEW, Findings
from clearance.report.names import PIXELS
from clearance.report.over_seeds import bars, summary_exhibit

AUDIT, NAME = DEEPER, "cuts"
HEADS = ("retrained", "class mean")


def cuts(findings: Findings) -> ExhibitRecord | None:
    """A row per method, stand-in and cut; None where only one cut was measured.

    >>> from clearance.records import Report
    >>> cuts(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    rows = [
        {
            "method": "" if row.context["head"] == PIXELS else row.method,
            "head": row.context["head"],
            "cut": USUAL if audit == FEW else LATER,
            "mean": row.value,
            "low": row.low,
            "high": row.high,
            "seeds": row.seeds,
        }
        for audit in (FEW, AUDIT)
        for row in findings.rows("mean", audit, "error", samples=findings.fewest)
        if row.context.get("head") in (*HEADS, PIXELS)
    ]
    if not any(row["cut"] == LATER for row in rows):
        return None
    return summary_exhibit(findings, AUDIT, NAME, rows, bars(findings))
