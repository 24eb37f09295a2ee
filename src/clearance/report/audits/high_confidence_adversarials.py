"""How far images are from a mistake that the network is sure of, with the images themselves."""

from clearance.records.record import ExhibitRecord
from clearance.report.audit_page import AuditPage, Row, Section, Term
from clearance.report.drawing import contact_sheet
from clearance.report.findings import Findings
from clearance.report.over_seeds import is_summary
from clearance.report.pictures import Picture, per_method
from clearance.report.tables import by_method, mean

AUDIT, SHEET = "high_confidence_adversarials", "contact_sheet"
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
    return Section(PAGE.title, [WHAT, NOT_MEANT], [table, *shown])


def _sheets(findings: Findings) -> list[ExhibitRecord]:
    """The first of each method."""
    shown: dict[str, ExhibitRecord] = {}
    for record in findings.exhibits(AUDIT, SHEET):
        if not is_summary(record) and record.method in findings.methods:
            shown.setdefault(record.method, record)
    return [shown[method] for method in findings.methods if method in shown]


def _picture(findings: Findings, record: ExhibitRecord) -> Picture:
    return per_method(findings, record, contact_sheet(record.exhibit.columns), "Sure mistakes of")


PAGE = AuditPage(
    title="How far to a mistake that the network is sure of",
    reading="Longer is better, and every network was made as sure as the others first; the path is one that somebody "
    "takes, and not the shortest.",
    place=170,
    glossary={
        "sure_distance": Term(
            "Change until the network is sure of another class",
            "How far an image moves, in the Euclidean norm, until the network is as sure of the next class as it is "
            "of its answers in the median; the median over images.",
            "Higher is better. Compare it between networks: each was made equally sure first.",
            "It is no shortest way: see the nearest mistake found beside it.",
        ),
        "nearest_distance": Term(
            "Nearest mistake found, of the same images",
            "How far the nearest wrong image is that a search found, in the Euclidean norm; the median over images, "
            "and zero for those that are wrong already.",
            "Higher is better.",
            "A nearer wrong image may exist, and the network may be unsure of the one that was found.",
        ),
        "reached": Term(
            "Images that arrived at a sure mistake",
            "The share of images of which the network became that sure of another class, within the steps allowed.",
            "Neither direction is better. Where it is below a half, the distance beside it is infinite.",
            "Images that did not arrive might, with more steps.",
        ),
        "temperature": Term(
            "Temperature that makes networks equally sure",
            "What answers are divided by, so that the median image is as sure as was asked for, 95 % by default.",
            "Neither direction is better. Above one the network's answers are louder than that.",
            "It makes networks comparable, and not right as often as they say.",
        ),
    },
    section=sure_section,
    drawn=("contact_sheet",),
)
