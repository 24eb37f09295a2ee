"""The page on the images that are wrong, with the images themselves."""

from collections.abc import Iterator
from dataclasses import replace

from markupsafe import Markup, escape

from clearance.records.record import ExhibitRecord
from clearance.records.store import Report, exhibit_file
from clearance.report.audit_page import AuditPage, Finding, Section, Term, with_ends
from clearance.report.findings import Findings
from clearance.report.numbers import data, printed
from clearance.report.pictures import Gallery, Shot, as_image, firsts, of_method
from clearance.report.tables import Compact, Line

AUDIT, TITLE = "mistakes", "Confident mistakes"
ON_FIRST_SCREEN, IN_DETAIL = 12, 24  # images
LINES = 500  # in the table of all of them
WHAT = (
    "Wrong test images, the most confident first: the name of the file, the given class, the predicted class, and the "
    "confidence (the largest softmax probability)."
)


def _confident(findings: Findings) -> list[Finding]:
    row = findings.row("mean", AUDIT, "confident_share")
    if row is None or (row.low, row.high) == (0, 1):  # the interval where nothing is wrong
        return []
    said = Markup("{} of the {} errors have a confidence of {} or more.").format(
        with_ends(row), data(row.n, "count"), data(float(row.context["confidence"]), "fraction", half=0.05)
    )
    if row.value == 0:
        return [Finding(TITLE, "information", said)]
    shown = [
        Gallery("The most confident mistakes", _shots(record)[:ON_FIRST_SCREEN], folded=True)
        for record in firsts(findings, AUDIT, "confident").values()
    ]
    todo = "Look at these images and at their labels."
    return [Finding(TITLE, "information", said, todo, pictures=shown)]


def pair_gallery(findings: Findings, pair: str) -> list[Gallery]:
    """The wrong images of a pair of classes, named as in the exhibit of the audit `confusions`."""
    return [
        shown
        for record in firsts(findings, AUDIT, "pairs").values()
        for shown in _of_pairs(record)
        if shown.title == pair
    ]


def class_gallery(findings: Findings, name: str) -> list[Gallery]:
    """The stored mistakes on images of a class, the most confident first."""
    records = [record for stored in PAGE.drawn for record in firsts(findings, AUDIT, stored).values()]
    shots = dict.fromkeys(
        shot for record in records for shot in _shots(record) if f"given {name}" in shot.words
    )
    return [Gallery(f"Mistakes on {name}", list(shots)[:ON_FIRST_SCREEN], folded=True)] if shots else []


def mistakes_section(findings: Findings) -> Section | None:
    """A gallery of the most confident mistakes, and one for each pair."""
    shown = [
        Gallery(of_method("The most confident mistakes", method, findings), _shots(record)[:IN_DETAIL])
        for method, record in firsts(findings, AUDIT, "confident").items()
    ]
    shown += [
        replace(each, title=of_method(each.title, method, findings))
        for method, record in firsts(findings, AUDIT, "pairs").items()
        for each in _of_pairs(record)
    ]
    listed = [
        replace(table, title=of_method(table.title, method, findings))
        for method, record in firsts(findings, "performance", "answers").items()
        if (table := _wrong_files(record)) is not None
    ]
    return Section(PAGE.title, [WHAT], [*shown, *listed]) if shown else None


def _wrong_files(record: ExhibitRecord) -> Compact | None:
    """Every wrong image by the name of its file, from the answers of the audit `performance`."""
    columns = record.exhibit.columns
    rows = zip(*(columns[name] for name in ("value", "file", "given", "predicted")), strict=True)
    wrong = [
        Line(str(file), None, [escape(given), escape(predicted)])
        for right, file, given, predicted in rows
        if not right
    ]
    if not wrong:
        return None
    foot = f"The first {LINES} of {len(wrong)}." if len(wrong) > LINES else ""
    return Compact(
        "All mistakes", ["given", "predicted"], wrong[:LINES], foot, [exhibit_file(record)], "Image"
    )


def stored_shots(report: Report) -> list[Shot]:
    """Every image of a mistake that a report keeps; the first of its words is the name of its file."""
    return [
        shot
        for record in report.exhibits
        if record.exhibit.audit == AUDIT and record.exhibit.name in PAGE.drawn
        for shot in _shots(record)
    ]


def _of_pairs(record: ExhibitRecord) -> Iterator[Gallery]:
    names = [str(name) for name in record.exhibit.columns["pair"]]
    shots = _shots(record)
    for pair in dict.fromkeys(names):
        mine = [shot for shot, name in zip(shots, names, strict=True) if name == pair]
        yield Gallery(pair, mine)


def _shots(record: ExhibitRecord) -> list[Shot]:
    columns = record.exhibit.columns
    rows = zip(
        *(columns[name] for name in ("image", "file", "given", "predicted", "confidence")), strict=True
    )
    return [
        Shot(
            as_image(image),
            (str(file), f"given {given}", f"predicted {predicted}", printed(float(confidence), "fraction")),
        )
        for image, file, given, predicted, confidence in rows
    ]


PAGE = AuditPage(
    title="The mistakes",
    reading="Look at the images: whether a label or the network is wrong, no number says.",
    place=26,
    glossary={
        "confident_share": Term(
            "Confident mistakes",
            "Of the wrong test images, the share whose largest probability is at least a limit.",
            "Lower is better: a network that is wrong should not be sure.",
            "A wrong label looks like a confident mistake.",
        ),
    },
    section=mistakes_section,
    drawn=("confident", "pairs"),
    findings=_confident,
)
