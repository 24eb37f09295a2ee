"""The method that others are held against where a paper is about one method."""

from clearance.report.findings import Findings

PROPOSED = "foca"


def reference(findings: Findings) -> str:
    """The method that the paper proposes, where it took part; else the first.

    >>> from clearance.records import Report, RunNote
    >>> from clearance.vocabulary import Outcome
    >>> runs = tuple(RunNote(name, 0, Outcome.FINISHED, "") for name in ("plain", "foca"))
    >>> reference(Findings(Report({}, {}, "", "", runs=runs), "digits"))
    'foca'
    """
    return PROPOSED if PROPOSED in findings.methods else next(iter(findings.methods), "")
