"""Each method's picture of its first seed, for pictures of which there is one a run."""

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from clearance.records.record import ExhibitRecord
from clearance.report.findings import Findings
from clearance.report.gallery import Picture, picture
from clearance.report.names import method_name
from clearance.report.over_seeds import is_summary

Draw = Callable[[ExhibitRecord, int], Figure]
"""A record and the number of its method, which gives its colour."""


def firsts(findings: Findings, audit: str, name: str, **context: Any) -> dict[str, ExhibitRecord]:
    """The exhibit of that name of each method's first seed that has one, in the page's order.

    >>> from clearance.records import Report
    >>> firsts(Findings(Report({}, {}, "", ""), "digits"), "calibration", "reliability")
    {}
    """
    found: dict[str, ExhibitRecord] = {}
    for record in findings.exhibits(audit, name):
        mine = all(record.exhibit.context.get(key) == value for key, value in context.items())
        if mine and not is_summary(record):
            found.setdefault(record.method, record)
    return {method: found[method] for method in findings.methods if method in found}


def drawn_firsts(
    findings: Findings, records: dict[str, ExhibitRecord], draw: Draw, what: str
) -> list[Picture]:
    """A picture for each method; its caption names method and seed, and says `what` is drawn."""
    return [
        picture(
            findings,
            draw(record, findings.methods.index(method)),
            f"{method_name(method)}, seed {record.seed}. {what}".strip(),
            [record],
        )
        for method, record in records.items()
    ]
