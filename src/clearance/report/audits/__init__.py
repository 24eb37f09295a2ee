"""What a page says about each audit: a file per audit, which has the audit's name and holds its ``PAGE``.

An audit without such a file, such as a user's own, has its numbers in the full table and its exhibits at the end.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from markupsafe import Markup

from clearance.records.record import ExhibitRecord
from clearance.records.store import Report
from clearance.report.audit_page import SEVERITIES, AuditPage, Finding, Section, Term
from clearance.report.findings import Findings, datasets
from clearance.report.numbers import POINTS
from clearance.report.over_seeds import is_summary
from clearance.report.sweep import AUDIT as SWEEP
from clearance.report.sweep import at_shown, over_setting
from clearance.vocabulary import Measurement

NAMED = 5  # quantities that a sentence names at most


@cache
def page_of(audit: str) -> AuditPage:
    """The page of an audit, by the audit's name.

    >>> page_of("minimal_perturbation").title, page_of("of_my_own").title
    ('Smallest change that changes the prediction', 'Of my own')
    """
    module = f"{__name__}.{audit}"
    if audit.isidentifier() and not audit.startswith("_") and find_spec(module):
        page: AuditPage = import_module(module).PAGE
        return page
    return AuditPage(title=audit.replace("_", " ").capitalize())


def pages(report: Report) -> list[AuditPage]:
    """The pages of all audits that a report has something of, in the order of their places."""
    measured = (record.measurement.audit for record in report.records)
    shown = (record.exhibit.audit for record in report.exhibits)
    return sorted(map(page_of, dict.fromkeys([*measured, *shown])), key=lambda page: page.place)


def sections(findings: Findings) -> list[Section]:
    """Every part that the records have something for."""
    makers = [page.section for page in pages(findings.report) if page.section is not None]
    return [section for make in makers if (section := make(findings)) is not None]


def all_findings(findings: Findings) -> list[Finding]:
    """What the first screen of one network says, the most severe first; of equal ones in the order of the audits.

    What is to be done before anything else stands before all others.

    Every number is one of the report's summary. A sentence claims no more than its interval carries: what an interval
    leaves open is said to be open.
    """
    if len(findings.methods) != 1 or findings.seeds > 1:  # of several networks a sentence would hold for some
        return []
    makers = [page.findings for page in pages(findings.report) if page.findings is not None]
    records = findings.report.records
    odd = [record.measurement for record in records if math.isnan(record.measurement.value)]
    numbers = findings
    if (
        odd
    ):  # a sentence about what is not a number would claim something: it is as if it had not been measured
        kept = tuple(record for record in records if not math.isnan(record.measurement.value))
        numbers = Findings(replace(findings.report, records=kept), findings.dataset)
    found = [finding for make in makers for finding in make(numbers)] if numbers.methods else []
    found += [_not_numbers(odd)] if odd else []
    if any(finding.alone for finding in found):
        found = [one if one.alone else replace(one, todo="", code="") for one in found]
    return sorted(found, key=lambda one: (not one.lead, not one.alone, SEVERITIES.index(one.severity)))


def _not_numbers(odd: Sequence[Measurement]) -> Finding:
    """Which quantities nothing can be said about."""
    names = list(dict.fromkeys(title(each.audit, each.name) for each in odd))
    said = Markup("Came out as NaN, so that nothing is said about it here: {}{}.").format(
        ", ".join(names[:NAMED]), f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    )
    todo = "Look for NaN and infinities in the images, the weights and the layers, then audit again."
    return Finding("Not measured", "problem", said, todo)


def headline(start: str, found: Sequence[Finding]) -> str:
    """How many findings of each severity there are.

    >>> from markupsafe import Markup
    >>> headline("Audit of net", [Finding("Leaks", "problem", Markup("")), Finding("Input", "fine", Markup(""))])
    'Audit of net: 1 problem, 1 fine'
    """
    counts = Counter(finding.severity for finding in found if not finding.lead)
    plural = {"problem": "problems", "warning": "warnings"}
    parts = [
        f"{counts[severity]} {severity if counts[severity] == 1 else plural.get(severity, severity)}"
        for severity in SEVERITIES
        if counts[severity] and severity != "information"
    ]
    return start + (f": {', '.join(parts)}" if parts else "")


def with_summaries(report: Report) -> Report:
    """`report` with the exhibits over seeds of each dataset made afresh from its records.

    Such an exhibit has the method ``"summary"`` and no seed. A stored one is never read back: a record that changes
    must change the page.
    """
    kept = [record for record in report.exhibits if not _is_ours(record)]
    here = at_shown(report)  # one value of a setting that was swept; its curves alone see all
    makers = [make for page in pages(report) for make in page.over_seeds.values()]
    made = [
        record
        for dataset in datasets(report)
        for record in (
            *(make(Findings(here, dataset)) for make in makers),
            over_setting(Findings(report, dataset)),
        )
        if record is not None
    ]
    return replace(report, exhibits=(*kept, *made))


def title(audit: str, name: str) -> str:
    """What a quantity is called at the head of its row.

    >>> title("training", "steps"), title("other", "some_number")
    ('Training steps', 'Other: some number')
    """
    term = page_of(audit).glossary.get(name)
    return term.title if term else f"{audit}: {name}".replace("_", " ").capitalize()


def shown_unit(audit: str, name: str, unit: str) -> str:
    """The unit that a quantity is printed in: points for a difference of fractions, else its own.

    >>> shown_unit("linear_probe", "gain", "fraction"), shown_unit("linear_probe", "error", "fraction")
    ('points', 'fraction')
    """
    term = page_of(audit).glossary.get(name)
    return POINTS if unit == "fraction" and term is not None and term.difference else unit


def terms(quantities: Iterable[tuple[str, str]]) -> list[Term]:
    """How to read those quantities, each once, where that is known.

    >>> len(terms([("training", "steps"), ("training", "steps"), ("other", "number")]))
    1
    """
    once = dict.fromkeys(quantities)
    return [page_of(audit).glossary[name] for audit, name in once if name in page_of(audit).glossary]


def _is_ours(record: ExhibitRecord) -> bool:
    audit, name = record.exhibit.audit, record.exhibit.name
    return is_summary(record) and (audit == SWEEP or name in page_of(audit).over_seeds)
