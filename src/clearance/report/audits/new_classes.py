"""How well the features serve classes that were left out of training."""

from markupsafe import Markup

from clearance.report.audit_page import AuditPage, Section, Term
from clearance.report.audits.deeper_cut import HEADS
from clearance.report.findings import Findings
from clearance.report.names import PIXELS, head_name
from clearance.report.numbers import data
from clearance.report.tables import by_method, mean, with_pixels

AUDIT = "new_classes"
WHAT = (
    "Some classes were left out of training. Here the last layers are retrained only for these classes, from a few "
    "images of each, and tested on other images of them. The paper does not measure this."
)


def new_classes_section(findings: Findings) -> Section | None:
    """A column for each stand-in and number of images, and a line for the nearest image."""
    columns: dict[str | Markup, dict[str, Markup]] = {}
    pixels: list[Markup] = []
    for head in HEADS:
        for row in findings.rows("mean", AUDIT, "error", head=head):
            count = int(row.context["per_class"])
            title = Markup("{}, {} of each").format(head_name(head), data(count, "count"))
            if title not in columns:
                pixels.append(_pixels(findings, count))
            columns.setdefault(title, {})[row.method] = mean(row)
    table = by_method(findings, "Wrong on test images of the classes that were left out", columns)
    if table is None:
        return None
    table = with_pixels(table, pixels) if any(pixels) else table
    return Section("Classes left out of training", [WHAT], [table])


def _pixels(findings: Findings, per_class: int) -> Markup:
    row = findings.row("mean", AUDIT, "error", head=PIXELS, per_class=per_class)
    return Markup("") if row is None else data(row.value, row.unit)


PAGE = AuditPage(
    title="Classes left out of training",
    reading="Lower is better; the nearest image in pixels, without a network, is the baseline to beat.",
    place=130,
    glossary={
        "error": Term(
            "Error on classes left out of training",
            "Some classes were left out of training. The last layers are retrained only for these, from a few "
            "images of each, and tested on other images of them.",
            "Lower is better; “nearest image, pixel by pixel” is the baseline to beat.",
            "Classes that resemble those of training are easy. One choice of classes is one choice: compare several.",
        ),
    },
    section=new_classes_section,
)
