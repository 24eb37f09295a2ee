"""Errors after every epoch, over seeds, for each condition that runs were made under."""

from collections.abc import Mapping
from typing import Any

from clearance.records.record import ExhibitRecord
from clearance.report.findings import Findings
from clearance.report.over_seeds import bars, curves, is_summary, summary_exhibit
from clearance.vocabulary import Scalar

AUDIT, NAME, OVER = "training", "epochs", "epochs_over_seeds"
ERRORS = {"test": "test error", "validation": "validation error"}
OWN = ("split", "chosen_on")  # what identifies an error besides the condition

Condition = tuple[tuple[str, Scalar], ...]


def condition_of(context: Mapping[str, Scalar]) -> Condition:
    """What was varied between runs of one report: every setting that is not the error's own.

    >>> condition_of({"split": "test", "noise": 0.8})
    (('noise', 0.8),)
    """
    return tuple(sorted((key, value) for key, value in context.items() if key not in OWN))


def conditions(findings: Findings) -> list[Condition]:
    """Every condition that curves were recorded under, in order.

    >>> from clearance.records import Report
    >>> conditions(Findings(Report({}, {}, "", ""), "digits"))
    []
    """
    return list(dict.fromkeys(condition_of(one.exhibit.context) for one in _of_runs(findings)))


def over_epochs(findings: Findings) -> ExhibitRecord | None:
    """A row for each condition, method, set of images and epoch.

    >>> from clearance.records import Report
    >>> over_epochs(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    rows: list[dict[str, Any]] = []
    for place, condition in enumerate(conditions(findings)):
        mine = [one for one in _of_runs(findings) if condition_of(one.exhibit.context) == condition]
        for name, column in ERRORS.items():
            found = curves(mine, "epoch", column, findings.methods, most=1.0)
            rows += [{"condition": place, "images": name, **row} for row in found]
    return summary_exhibit(findings, AUDIT, OVER, rows, bars(findings, "Shaded"))


def _of_runs(findings: Findings) -> list[ExhibitRecord]:
    return [record for record in findings.exhibits(AUDIT, NAME) if not is_summary(record)]
