"""How far images are from a mistake that the network is sure of, with the images themselves."""

from clearance.records.record import ExhibitRecord
from clearance.report.compact import by_method, mean
from clearance.report.contact_sheet import contact_sheet
from clearance.report.findings import Findings
from clearance.report.gallery import Picture, per_method
from clearance.report.over_seeds import is_summary
from clearance.report.reading import TITLES
from clearance.report.section import Row, Section

AUDIT, SHEET = "sure_mistakes", "contact_sheet"
WHAT = (
    "An image is changed step by step, along the way that makes the network surer of another class, until it is as "
    "sure of that class as it usually is of its answers. Before that, every network's answers are divided by a number "
    "of its own (the temperature), so that loud and quiet networks are equally sure. Where the change that it takes is "
    "long, one should begin to see the other class in it; where it is short, one sees noise."
)
NOT_MEANT = (
    "The way is not the shortest. Beside it stands the nearest mistake that a search found from the same images, "
    "however unsure the network is there."
)
COLUMNS = (
    ("until it is sure of another class", "sure_distance"),
    ("nearest mistake found", "nearest_distance"),
    ("images that got there", "reached"),
    ("temperature", "temperature"),
)
FOOT = (
    "Distances: medians over images, Euclidean, in pixel units; infinite where fewer than half of the images "
    "got there."
)


def sure_section(findings: Findings) -> Section | None:
    """A table, and the contact sheet of each method's first seed.

    >>> from clearance.records import Report
    >>> sure_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    columns = {
        title: {row.method: mean(row) for row in findings.rows("mean", AUDIT, name)}
        for title, name in COLUMNS
    }
    table = by_method(findings, "How far, until the network is sure of another class", columns, FOOT)
    if table is None:
        return None
    sheets = [_picture(findings, record) for record in _sheets(findings)]
    shown = [Row(sheets, title="Images, what they became, and the change")] if sheets else []
    return Section(TITLES[AUDIT], [WHAT, NOT_MEANT], [table, *shown])


def _sheets(findings: Findings) -> list[ExhibitRecord]:
    """The first of each method."""
    shown: dict[str, ExhibitRecord] = {}
    for record in findings.exhibits(AUDIT, SHEET):
        if not is_summary(record) and record.method in findings.methods:
            shown.setdefault(record.method, record)
    return [shown[method] for method in findings.methods if method in shown]


def _picture(findings: Findings, record: ExhibitRecord) -> Picture:
    return per_method(findings, record, contact_sheet(record.exhibit.columns), "Sure mistakes of")
