"""How often an attack that knows the score passes, over the radius and over seeds."""

from clearance.records.record import ExhibitRecord
from clearance.report.findings import Findings
from clearance.report.over_seeds import bars, summary_exhibit

AUDIT, OVER = "likelihood", "evasion"


def evasions(findings: Findings) -> ExhibitRecord | None:
    """A row for each method, score and radius.

    >>> from clearance.records import Report
    >>> evasions(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    rows = [
        {
            "method": row.method,
            "score": str(row.context["score"]),
            "radius": row.context["epsilon"],
            "mean": row.value,
            "low": row.low,
            "high": row.high,
            "seeds": row.seeds,
        }
        for row in findings.rows("mean", AUDIT, "evasion")
    ]
    return summary_exhibit(findings, AUDIT, OVER, rows, bars(findings, "Shade"))
