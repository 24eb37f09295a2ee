"""Accuracy under the attacks of papers, over seeds: for each attack and box over the radius."""

from clearance.records.record import ExhibitRecord
from clearance.report.findings import Findings
from clearance.report.over_seeds import bars, summary_exhibit

AUDIT, OVER = "attacked", "attacked_over_radius"


def attacked(findings: Findings) -> ExhibitRecord | None:
    """A row for each method, attack, box and radius; at radius 0 nothing is attacked.

    >>> from clearance.records import Report
    >>> attacked(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    found = sorted(
        findings.rows("mean", AUDIT, "accuracy"), key=lambda row: (row.method, float(row.context["epsilon"]))
    )
    rows = [
        {
            "method": row.method,
            "attack": row.context["attack"],
            "box": row.context["box"],
            "radius": row.context["epsilon"],
            "mean": row.value,
            "low": row.low,
            "high": row.high,
            "seeds": row.seeds,
        }
        for row in found
    ]
    shaded = bars(findings, "Shaded") or "Shaded: 95 % interval over images."
    return summary_exhibit(findings, AUDIT, OVER, rows, shaded)
