"""Distances to the nearest mistake, class by class, over seeds."""

from clearance.records.record import ExhibitRecord
from clearance.report.findings import Findings
from clearance.report.over_seeds import bars, summary_exhibit

AUDIT, BY_CLASS = "boundary_distance", "by_class"
ALL = "all"


def by_class(findings: Findings) -> ExhibitRecord | None:
    """A row for each method, norm and class: the median of the distances that the search found.

    >>> from clearance.records import Report
    >>> by_class(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    rows = [
        {
            "method": row.method,
            "norm": row.context["norm"],
            "class": str(row.context["class"]),
            "mean": row.value,
            "low": row.low,
            "high": row.high,
            "seeds": row.seeds,
        }
        for row in findings.rows("mean", AUDIT, "minimum_distance")
    ]
    return summary_exhibit(findings, AUDIT, BY_CLASS, rows, bars(findings))
