"""Distance to a high-confidence mistake, with the images themselves."""

from clearance.report.audit_page import AuditPage, Row, Section, Term, section
from clearance.report.drawing import contact_sheet
from clearance.report.findings import Findings
from clearance.report.pictures import firsts, per_method
from clearance.report.tables import by_method, means

AUDIT, SHEET = "high_confidence_adversarials", "contact_sheet"
WHAT = (
    "An image is changed step by step to raise the network's confidence in another class, until that confidence is "
    "as high as usual for its predictions. First, every network's logits are divided by a temperature, so that all "
    "networks have the same median confidence. Where the change is long, the other class should begin to show in "
    "it; where it is short, it looks like noise."
)
NOT_MEANT = (
    "The path is not the shortest. Compare it with the nearest mistake that a search found from the same images, at"
    " any confidence."
)
COLUMNS = (
    ("until confident in another class", "confident_distance"),
    ("nearest mistake found", "nearest_distance"),
    ("images that arrived", "reached"),
    ("temperature", "temperature"),
)
FOOT = "Distances: medians over images, Euclidean, in pixel units; infinite where fewer than half of them arrived."


def high_confidence_section(findings: Findings) -> Section | None:
    """A table, and the contact sheet of each method's first seed."""
    columns = {title: means(findings, AUDIT, name) for title, name in COLUMNS}
    table = by_method(findings, "Distance until the network is confident in another class", columns, FOOT)
    what = "High-confidence adversarials for"
    sheets = [
        per_method(findings, record, contact_sheet(record.exhibit.columns), what)
        for record in firsts(findings, AUDIT, SHEET).values()
    ]
    shown = Row(sheets, title="Images, what they became, and the change")
    return section(PAGE.title, [WHAT, NOT_MEANT], [table, shown])


PAGE = AuditPage(
    title="Distance to a high-confidence mistake",
    reading="Longer is better; all networks were first given the same median confidence. The path is not the shortest.",
    place=170,
    glossary={
        "confident_distance": Term(
            "Change until the network is confident in another class",
            "How far an image moves, in the Euclidean norm, until its confidence in another class equals its median"
            " confidence in its predictions; the median over images.",
            "Higher is better. Compare it between networks: all have the same median confidence.",
            "It is not the shortest way: compare it with the nearest mistake found.",
        ),
        "nearest_distance": Term(
            "Nearest mistake found, of the same images",
            "How far the nearest wrong image is that a search found, in the Euclidean norm; the median over images, "
            "and zero for those already misclassified.",
            "Higher is better.",
            "A nearer wrong image may exist, and the network's confidence in the one found may be low.",
        ),
        "reached": Term(
            "Images that reached a high-confidence mistake",
            "The share of images for which the network reached that confidence in another class, within the steps "
            "allowed.",
            "Neither direction is better. Where it is below one half, the distance is infinite.",
            "Images that did not arrive might, with more steps.",
        ),
        "temperature": Term(
            "Temperature that equalises confidence",
            "What logits are divided by so that the median confidence is the one asked for, 95 % by default.",
            "Neither direction is better. Above one the network's logits are larger than that.",
            "It makes networks comparable; it does not calibrate them.",
        ),
    },
    section=high_confidence_section,
    drawn=("contact_sheet",),
)
