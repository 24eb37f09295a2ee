"""The page on images with common corruptions: noise, blur, low contrast and others."""

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.records.record import ExhibitRecord
from clearance.records.store import table_file
from clearance.report.audit_page import (
    AuditPage,
    Finding,
    Row,
    Section,
    Term,
    rest_with_ends,
    section,
    with_ends,
)
from clearance.report.drawing import draw
from clearance.report.findings import Findings
from clearance.report.numbers import data
from clearance.report.pictures import drawn_firsts, firsts, of_method
from clearance.report.tables import Compact, Line, mean

AUDIT = "common_corruptions"
MILD = 2  # severity up to which a corruption that halves the accuracy is an alarm
HALF = 0.5


def corruptions_findings(findings: Findings) -> list[Finding]:
    """The mild corruption that costs most, and the mean over all; an alarm where a mild one halves the accuracy."""
    clean, overall = (
        findings.row("mean", AUDIT, "error", severity=0), findings.row("mean", AUDIT, "mean_error"),
    )  # fmt: skip
    mild = [row for row in findings.rows("mean", AUDIT, "error") if 0 < int(row.context["severity"]) <= MILD]
    if clean is None or overall is None or not mild:
        return []
    worst = max(mild, key=lambda row: row.value)
    said = Markup("On images with common corruptions the error is {} on average, {} without{}. ").format(
        with_ends(overall), with_ends(clean), _of_images(findings, clean)
    )
    if worst.value <= clean.value:
        return [Finding("Corruptions", "information", said + Markup("None of the mild ones costs accuracy."))]
    said += Markup("The mild one that costs most: {} ({}), accuracy {}.").format(
        worst.context["corruption"], _strength(findings, worst), rest_with_ends(worst)
    )
    alarm = 1 - (worst.value if worst.low is None else worst.low) < HALF * (
        1 - (clean.value if clean.high is None else clean.high)
    )  # the whole interval of one is below half of that of the other
    todo = (
        f"Train with {worst.context['corruption']} among the augmentations, or check that inputs in use do not have it."
        if alarm
        else ""
    )
    return [Finding("Corruptions", "problem" if alarm else "information", said, todo)]


def _of_images(findings: Findings, clean: SummaryRow) -> Markup:
    """How many of the test images were used, where these are not all: the error of all is another number."""
    if clean.n is None or findings.images is None or clean.n >= findings.images:
        return Markup("")
    return Markup(
        ", on {} of the {} test images, the same number of each class or all of a small one"
    ).format(data(clean.n, "count"), data(findings.images, "count"))


def _strength(findings: Findings, row: SummaryRow) -> str:
    for record in firsts(findings, AUDIT, "strengths").values():
        columns = record.exhibit.columns
        for place, key in enumerate(zip(columns["corruption"], columns["severity"], strict=True)):
            if key == (row.context["corruption"], row.context["severity"]):
                return str(columns["strength"][place])
    return f"severity {row.context['severity']}"


def corruptions_section(findings: Findings) -> Section | None:
    """The accuracy by corruption and severity, and its curves."""
    curves = drawn_firsts(
        findings,
        firsts(findings, AUDIT, "curves"),
        lambda record, _: draw(record.exhibit),
        "Accuracy by severity; 0 is without corruption.",
    )
    tables = [_table(findings, method) for method in findings.methods]
    parts = [*tables, Row(curves, title="Accuracy by severity")]
    return section(PAGE.title, [_TEXT], parts, "Hendrycks and Dietterich (2019)")


_TEXT = (
    "The same test images with noise, blur and other changes that happen by chance, at five severities. Noise, blur, "
    "brightness, contrast, JPEG and pixelation are those of CIFAR-10-C; grey, rotation and shift are defined here."
)


def _table(findings: Findings, method: str) -> Compact | None:
    rows = findings.rows("mean", AUDIT, "error", method=method)
    cells = {(row.context["corruption"], int(row.context["severity"])): row for row in rows}
    severities = sorted({severity for _, severity in cells if severity})
    lines = [
        Line(str(name), None, [mean(cells.get((name, severity))) for severity in severities])
        for name in dict.fromkeys(name for name, severity in cells if severity)
    ]
    if not lines:
        return None
    clean = cells.get(("none", 0))
    foot = Markup("Without corruption: {} of {} images. 95 % Wilson intervals.").format(
        with_ends(clean), data(clean.n, "count")
    ) if clean else ""  # fmt: skip
    title = of_method("Error by severity", method, findings)
    return Compact(
        title, [str(severity) for severity in severities], lines, foot, _files(findings, method), "Corruption"
    )


def _files(findings: Findings, method: str) -> list[str]:
    record: ExhibitRecord | None = firsts(findings, AUDIT, "strengths").get(method)
    return [] if record is None else [table_file(record)]


PAGE = AuditPage(
    title="Common corruptions",
    reading=(
        "A corruption of severity one or two that halves the accuracy needs action; the higher severities show how "
        "the accuracy goes on."
    ),
    place=28,
    glossary={
        "error": Term(
            "Error on corrupted images",
            "The share of test images that are misclassified after a corruption of a given severity; severity 0 "
            "is without.",
            "Lower is better.",
            "Noise, blur, brightness, contrast, JPEG and pixelation have the strengths of CIFAR-10-C, made for "
            "images of "
            "32 pixels; on large images they are mild.",
        ),
        "mean_error": Term(
            "Mean error over corruptions",
            "The mean of the errors over all corruptions and severities.",
            "Lower is better.",
            "It is not divided by the errors of another network, as in published tables for ImageNet.",
        ),
    },
    section=corruptions_section,
    drawn=("curves",),
    findings=corruptions_findings,
)
