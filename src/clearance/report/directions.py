"""The main directions of features over seeds: the numbers of the paper's table, and how the regulariser moves them."""

from typing import Any

from clearance.records.record import ExhibitRecord
from clearance.report.findings import Findings
from clearance.report.over_seeds import middle, summary_exhibit, values

AUDIT = "low_dimension"
TABLE, SENSITIVITY = "table", "sensitivity"
FIRST, MEAN = "first class", "mean over classes"
QUANTITIES = (
    ("lda_eigenvalue", "split", "train"),
    ("lda_eigenvalue", "split", "test"),
    ("threshold_error", "chosen_on", "test"),
    ("threshold_error", "chosen_on", "train"),
)


def first_class(findings: Findings) -> str | None:
    """The class that the paper's table is about: the first that was measured.

    >>> from clearance.records import Report
    >>> first_class(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    row = findings.row("mean", AUDIT, "lda_eigenvalue")
    return None if row is None else str(row.context["class"])


def regulariser(findings: Findings) -> float | None:
    """The regulariser that every class was measured with."""
    row = findings.row("mean", AUDIT, "threshold_error")
    return None if row is None else float(row.context["regulariser"])


def table(findings: Findings) -> ExhibitRecord | None:
    """The paper's table: a row per method and number, of the first class and as the mean over classes.

    The mean over classes is taken inside each seed; mean and interval are over seeds.
    """
    rows: list[dict[str, Any]] = []
    for name, key, choice in QUANTITIES:
        for classes in (FIRST, MEAN):
            context: dict[str, Any] = {key: choice, "regulariser": regulariser(findings)}
            if classes == FIRST:
                context["class"] = first_class(findings)
            found = values(findings, AUDIT, name, **context)
            most = 1.0 if name == "threshold_error" else None
            for method in findings.methods:
                seeds = [sum(one) / len(one) for one in found.get(method, {}).values()]
                if seeds:
                    numbers = middle(seeds, 0.0, most)
                    rows.append(
                        {"method": method, "quantity": name, "on": choice, "classes": classes, **numbers}
                    )
    caption = "One class against the rest on the best line: mean and 95 % interval over seeds."
    return summary_exhibit(findings, AUDIT, TABLE, rows, caption)


def sensitivity(findings: Findings) -> ExhibitRecord | None:
    """Scatter ratio of the first class over the regulariser, on training and on test images."""
    found = findings.rows("mean", AUDIT, "lda_eigenvalue")
    rows = [
        {
            "method": row.method,
            "split": row.context["split"],
            "regulariser": row.context["regulariser"],
            "mean": row.value,
            "low": row.low,
            "high": row.high,
            "seeds": row.seeds,
        }
        for row in found
        if row.context.get("class") == first_class(findings)
    ]
    rows.sort(key=lambda row: float(row["regulariser"] or 0))
    return summary_exhibit(findings, AUDIT, SENSITIVITY, rows, "Scatter ratio over the regulariser.")
