"""What the sections of a page hold, for tests to look at."""

import re
from dataclasses import replace

from clearance.report.audits import page_of, sections, with_summaries
from clearance.report.findings import Findings
from clearance.report.tables import Compact

TITLES = {
    "geodesic": "How far the last layers move",
    "low_dimension": "Dimension of the features",
    "deeper_cut": "Where the network is cut",
    "neural_collapse": "Neural collapse: is each class a point?",
    "churn": "Do retrained last layers agree?",
    "new_classes": "Classes left out of training",
}


def findings_of(report):
    return Findings(with_summaries(report), "digits")


def term_of(quantity):
    """How to read a quantity, given as (audit, name); a KeyError where no page says."""
    audit, name = quantity
    return page_of(audit).glossary[name]


def only(report, *audits):
    """The report without what other new audits found."""
    dropped = set(TITLES) - set(audits)
    records = tuple(one for one in report.records if one.measurement.audit not in dropped)
    exhibits = tuple(one for one in report.exhibits if one.exhibit.audit not in dropped)
    return replace(report, records=records, exhibits=exhibits)


def tables_of(section):
    return [part for part in section.parts if isinstance(part, Compact)]


def cells_of(found):
    return [
        cell for section in found for part in tables_of(section) for line in part.lines for cell in line.cells
    ]


def values_in(texts):
    return {float(value) for text in texts for value in re.findall(r'<data value="([^"]*)"', str(text))}


def altered(report, method, *quantities, factor=0.7):
    """The report with the measurement of each quantity, an (audit, name, part of a context), changed in one run."""
    records = list(report.records)
    for quantity in quantities:
        (k,) = (
            k for k, one in enumerate(records) if (one.method, one.seed) == (method, 1) and _is(one, quantity)
        )
        one = records[k].measurement
        records[k] = replace(records[k], measurement=replace(one, value=one.value * factor))
    return replace(report, records=tuple(records))


def _is(record, quantity):
    one, (audit, name, context) = record.measurement, quantity
    return (one.audit, one.name) == (audit, name) and context.items() <= one.context.items()


def not_in_tables(report, method, *quantities):
    """Those quantities whose mean over seeds the tables do not print: all are altered, then their means looked for."""
    changed = altered(report, method, *quantities)
    before, after = (values_in(cells_of(sections(findings_of(one)))) for one in (report, changed))
    rows = [row for row in changed.summary if (row.kind, row.method) == ("mean", method)]
    return [
        (audit, name, context)
        for audit, name, context in quantities
        if not any(
            (row.audit, row.name) == (audit, name)
            and context.items() <= row.context.items()
            and row.value in after - before
            for row in rows
        )
    ]


def pictures_of(section):
    return [one for part in section.parts if not isinstance(part, Compact) for one in part.pictures]
