"""The page on each class and each slice of the images."""

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.records.record import ExhibitRecord
from clearance.records.store import exhibit_file
from clearance.report.audit_page import (
    CLOSE,
    FAR,
    AuditPage,
    Finding,
    Row,
    Section,
    Severity,
    Term,
    points_with_ends,
    section,
    with_ends,
)
from clearance.report.audits.mistakes import class_gallery
from clearance.report.drawing import draw
from clearance.report.findings import Findings
from clearance.report.numbers import POINTS, data
from clearance.report.pictures import firsts, picture
from clearance.report.tables import NONE, Compact, Line, mean

AUDIT = "performance"
GROUPS = {"class": ("recall", "Worst class", "classes"), "slice": ("accuracy", "Worst slice", "slices")}
FEWEST = 6  # images of a class or slice that is said to lie behind; fewer stand in the table alone
MOST_CLASSES = 20  # of a confusion matrix with its numbers; larger ones are drawn
WHAT = (
    "Recall is the share of a class's images that are called so; precision the share of the images that are called so "
    "and are of the class. Behind is the accuracy of all other images minus that of these, in points; its intervals "
    "are widened to hold for all lines together, roughly so for a few images. The first lines are those that lie "
    "behind most clearly."
)


def _worst(findings: Findings) -> list[Finding]:
    return [found for kind in GROUPS if (found := _worst_of(findings, kind)) is not None]


def _worst_of(findings: Findings, kind: str) -> Finding | None:
    """The class or slice that lies behind most clearly, and how many more do."""
    rows = [row for row in _behind(findings, kind) if row.n is None or row.n >= FEWEST]
    if not rows:
        return None
    name, title, groups = GROUPS[kind]
    behind = [row for row in rows if row.low is not None and row.low > CLOSE]
    first = rows[0]
    own = findings.row("mean", AUDIT, name, **{kind: first.context[kind]})
    if not behind or own is None:
        said = Markup("None of the {} {} lies more than two points behind the others for certain.")
        return Finding(title, "fine", said.format(data(len(rows), "count"), groups))
    severity: Severity = "problem" if first.low is not None and first.low > FAR else "warning"
    said = Markup("{}: {} {} of {} images, {} behind the others.").format(
        first.context[kind], name, with_ends(own), data(own.n, "count"), points_with_ends(first)
    )
    if len(behind) > 1:
        others = [str(row.context[kind]) for row in behind[1:4]]
        more = len(behind) - 1 - len(others)
        said += Markup(" Also behind: {}{}.").format(", ".join(others), f" and {more} more" if more else "")
    shown = class_gallery(findings, str(first.context[kind])) if kind == "class" else []
    todo = Markup("{}Look at the images of {} and at their labels first.").format(
        _few_trained_on(findings, str(first.context[kind])) if kind == "class" else "", first.context[kind]
    )
    return Finding(title, severity, said, todo, pictures=shown)


def _few_trained_on(findings: Findings, name: str) -> Markup:
    """What to do for a class with less than half of the training images of the largest; empty for others."""
    for record in firsts(findings, "set_facts", "class_sizes").values():
        sizes = dict(
            zip(record.exhibit.columns["class"], record.exhibit.columns["train images"], strict=True)
        )
        own, largest = sizes.get(name), max(sizes.values())
        if own is not None and 2 * own < largest:
            return Markup(
                "It has {} training images, the largest class {}: train on more images of it, or give it more weight "
                "in the loss. "
            ).format(data(own, "count"), data(largest, "count"))
    return Markup("")


def _behind(findings: Findings, kind: str) -> list[SummaryRow]:
    """How far each class or slice lies behind, the clearest first."""
    rows = [row for row in findings.rows("mean", AUDIT, "behind") if kind in row.context]
    return sorted(rows, key=lambda row: -(row.low if row.low is not None else row.value))


def performance_section(findings: Findings) -> Section | None:
    """A table of classes, one of slices, and the confusion matrix."""
    if len(findings.methods) != 1:
        return None
    matrices = firsts(findings, AUDIT, "confusion_matrix").values()
    tables = [_table(findings, kind) for kind in GROUPS]
    return section(PAGE.title, [WHAT], [*tables, *(_matrix(findings, record) for record in matrices)])


def _table(findings: Findings, kind: str) -> Compact | None:
    name, _, groups = GROUPS[kind]
    shares = {row.context[kind]: row for row in findings.rows("mean", AUDIT, name) if kind in row.context}
    precisions = {
        row.context[kind]: row for row in findings.rows("mean", AUDIT, "precision") if kind in row.context
    }
    behind = {row.context[kind]: row for row in _behind(findings, kind)}
    order = [*behind, *(group for group in shares if group not in behind)]
    lines = [
        Line(
            str(group),
            None,
            [
                data(shares[group].n, "count"),
                mean(shares[group]),
                *([mean(precisions.get(group))] if precisions else []),
                mean(behind.get(group), POINTS),
            ],
        )
        for group in order
    ]
    columns = ["images", name, *(["precision"] if precisions else []), "behind the others"]
    return Compact(groups.capitalize(), columns, lines, head=kind.capitalize()) if lines else None


def _matrix(findings: Findings, record: ExhibitRecord) -> Row | Compact:
    columns = record.exhibit.columns
    title = "Confusion matrix"
    if len(columns) > MOST_CLASSES:
        shown = picture(findings, draw(record.exhibit), record.exhibit.caption, [record])
        return Row([shown], title=title)
    given = [name for name in columns if len(columns[name]) and name != "no class"]
    lines = [
        Line(name, None, [_count(int(columns[answer][place]), answer == name) for answer in columns])
        for place, name in enumerate(given)
    ]
    foot = "A line for each class given, a column for each answer; right answers in bold."
    return Compact(title, list(columns), lines, foot, [exhibit_file(record)], "Given", fixed=True)


def _count(value: int, right: bool) -> Markup:
    if right:
        return Markup("<b>{}</b>").format(data(value, "count"))
    return data(value, "count") if value else NONE


PAGE = AuditPage(
    title="Performance by class and slice",
    reading="Where the interval of behind lies above zero, that class or slice does worse than the other images.",
    place=22,
    glossary={
        "recall": Term(
            "Recall",
            "The share of the test images of a class that are called so.",
            "Higher is better.",
            "With few images of a class its interval is wide.",
        ),
        "precision": Term(
            "Precision",
            "The share of the test images that are called so and are of the class.",
            "Higher is better.",
            "It depends on how common the class is among the test images.",
        ),
        "accuracy": Term(
            "Accuracy of a slice",
            "The share of the test images of a slice that are right.",
            "Higher is better.",
            "A slice may be hard because of the classes in it.",
        ),
        "behind": Term(
            "Behind the others",
            "The accuracy of all other test images minus the accuracy of these.",
            "At or below 0 is right. The intervals of all classes, or of all slices, hold together.",
            "A class or slice with few images may lie behind without a clear interval.",
            difference=True,
        ),
    },
    section=performance_section,
    drawn=("confusion_matrix",),
    findings=_worst,
)
