"""The small table of the first screen: what it has in each cell, for a page or for a terminal."""

from dataclasses import dataclass

from clearance.records.derived import SummaryRow
from clearance.report.findings import FEW, Findings
from clearance.report.names import PIXELS, head_name, method_name


@dataclass(frozen=True, slots=True)
class Line:
    """One method in the first screen's table; what was not measured is None.

    `time` and `memory` are means (seconds, MiB) for the first method, and ratios to it for the others.
    """

    method: str
    name: str
    own: SummaryRow | None
    few: SummaryRow | None
    time: SummaryRow | None
    memory: SummaryRow | None
    failed: int


def overview(findings: Findings) -> list[Line]:
    """A line per method, in the report's order.

    >>> from clearance.records import Report
    >>> overview(Findings(Report({}, {}, "", ""), "digits"))
    []
    """
    return [
        Line(
            method=method,
            name=method_name(method),
            own=findings.own_error(method),
            few=findings.few_error(method) if findings.head else None,
            time=_cost(findings, method, "seconds"),
            memory=_cost(findings, method, "memory"),
            failed=sum(note.method == method for note in findings.failures),
        )
        for method in findings.methods
    ]


def stand_ins(findings: Findings, method: str) -> list[tuple[str, SummaryRow]]:
    """What the last layers were replaced with, in plain words, and the error from the fewest images.

    The nearest image comes last: it uses no network, and is what a network has to beat.
    """
    heads = [*findings.heads, PIXELS]
    found = [(head, findings.few_error(method, head)) for head in heads]
    return [(head_name(head), row) for head, row in found if row is not None]


def pixels_error(findings: Findings) -> SummaryRow | None:
    """Error of the nearest image, pixel by pixel, among the fewest images."""
    return findings.row("mean", FEW, "error", head=PIXELS, samples=findings.fewest)


def _cost(findings: Findings, method: str, name: str) -> SummaryRow | None:
    if method == findings.baseline:
        return findings.row("mean", "training", name, method=method)
    return findings.row("ratio", "training", name, method=method, against=findings.baseline)
