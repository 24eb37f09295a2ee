"""The page on images that are there more than once."""

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.report.audit_page import AuditPage, Finding, Section, Severity, Term, with_ends
from clearance.report.findings import Findings
from clearance.report.names import listed
from clearance.report.numbers import data
from clearance.report.pictures import Gallery, firsts, labelled_shots, table_of
from clearance.report.tables import NONE, Compact, Line, of_exhibit

AUDIT = "duplicates"
LEAK = 0.01  # share of the test images from which on those that are training images are an alarm
ON_FIRST_SCREEN = 12  # images
LINES = 20  # pairs in the page's table; the file has all
BETWEEN = {
    "train": "within train",
    "test": "within test",
    "test in train": "test images that are also training images",
    "unknown": "within the unknown images",
    "unknown in train or test": "unknown images that are also in train or test",
}


def duplicates_findings(findings: Findings) -> list[Finding]:
    """Test images that are training images, and what accuracy is without them; else the other duplicates."""
    leaked = _counts(findings, "test in train")
    if leaked is None:
        return []
    exact, near = leaked
    files = f"The list: {table_of(findings, AUDIT, AUDIT)}"
    both = int(_both(exact, near))
    known = _known(findings, files)
    if both == 0:
        return [known or _within(findings, files)]
    share = both / exact.n if exact.n else 0.0
    said = Markup("{} of {} test images ({}) are also training images: {} pixel for pixel, {} nearly.").format(
        data(both, "count"), data(exact.n, "count"), data(share, "fraction"),
        data(exact.value, "count"), data(both - exact.value, "count"),
    ) + _accuracy(findings)  # fmt: skip
    todo = f"Remove them from one of the two sets, then audit again. {files}."
    severity: Severity = "problem" if share >= LEAK else "warning"
    leak = Finding("Duplicates", severity, said, todo, pictures=pair_galleries(findings))
    return [leak] if known is None else [leak, known]


def _accuracy(findings: Findings) -> Markup:
    rows = {name: findings.row("mean", AUDIT, "error", images=name) for name in ("all", "not in train")}
    every, rest = rows["all"], rows["not in train"]
    if every is None or rest is None:
        return Markup(" No test image is left without them.")
    return Markup(" The error is {} with them and {} without.").format(with_ends(every), with_ends(rest))


def _known(findings: Findings, files: str) -> Finding | None:
    """What is said where unknown images are those that the network was trained on, or tested with."""
    counts = _counts(findings, "unknown in train or test")
    if counts is None or (both := _both(*counts)) < LEAK * (counts[0].n or 1) or not both:
        return None
    said = Markup("{} of {} unknown images are also in train or test.").format(
        data(both, "count"), data(counts[0].n, "count")
    )
    return Finding(
        "Duplicates", "problem", said, f"Give unknown images that are neither, then audit again. {files}."
    )


def _within(findings: Findings, files: str) -> Finding:
    """What is said where no test image is a training image."""
    parts = []
    for name in ("train", "test"):
        counts = _counts(findings, name)
        if counts is not None and (number := _both(*counts)):
            parts.append(
                Markup("{} of the images of {} {} another there").format(
                    data(number, "count"), name, "duplicates" if number == 1 else "duplicate"
                )
            )
    two = findings.row("mean", AUDIT, "conflicting_labels")
    if two is not None and two.value:
        parts.append(
            Markup("{} of all images {} a duplicate with another label").format(
                data(two.value, "count"), "has" if two.value == 1 else "have"
            )
        )
    looked = (
        "exactly or nearly" if findings.row("mean", AUDIT, "near_duplicates", sets="train") else "exactly"
    )
    said = Markup("No test image was found among the training images, {}.").format(looked)
    if not parts:
        return Finding("Duplicates", "fine", said)
    todo = f"Decide which of each pair to keep. {files}."
    return Finding("Duplicates", "information", said + Markup(" But {}.").format(listed(parts)), todo)


def _counts(findings: Findings, sets: str) -> tuple[SummaryRow, SummaryRow | None] | None:
    """The exact and the near duplicates; the latter are not looked for in images of less than 8 pixels a side."""
    exact, near = (
        findings.row("mean", AUDIT, name, sets=sets) for name in ("exact_duplicates", "near_duplicates")
    )
    return None if exact is None else (exact, near)


def _both(exact: SummaryRow, near: SummaryRow | None) -> float:
    return exact.value + (0 if near is None else near.value)


def pair_galleries(findings: Findings) -> list[Gallery]:
    """The first pairs side by side."""
    return [
        Gallery("The first pairs", labelled_shots(record)[:ON_FIRST_SCREEN], folded=True, together=2)
        for record in list(firsts(findings, AUDIT, "pairs").values())[:1]
    ]


def duplicates_section(findings: Findings) -> Section | None:
    """How many there are of each kind, the first pairs by name, and their pictures."""
    counts = {sets: found for sets in BETWEEN if (found := _counts(findings, sets)) is not None}
    if not counts:
        return None
    lines = [
        Line(
            BETWEEN[sets],
            None,
            [
                *(NONE if row is None else data(row.value, "count") for row in found),
                data(found[0].n, "count"),
            ],
        )
        for sets, found in counts.items()
    ]
    table = Compact("How many", ["exact", "near", "of"], lines, head="Duplicates")
    return Section(PAGE.title, [_TEXT], [table, *_pairs(findings), *_pictures(findings)])


_TEXT = (
    "Exact duplicates have equal pixels. Near duplicates have nearly equal low frequencies and pixels, as they are or "
    "mirrored: pictures that were saved again, resized or mirrored. Test images that are training images "
    "make the accuracy "
    "on test look higher than it is on new images."
)


def _pairs(findings: Findings) -> list[Compact]:
    return [
        of_exhibit(record, "Pairs", "Kind", LINES, record.exhibit.caption)
        for record in list(firsts(findings, AUDIT, AUDIT).values())[:1]  # of the images, whatever the method
        if record.exhibit.columns["kind"]
    ]


def _pictures(findings: Findings) -> list[Gallery]:
    return [
        Gallery("Pairs of duplicates, side by side", labelled_shots(record), together=2)
        for record in list(firsts(findings, AUDIT, "pairs").values())[:1]
    ]


PAGE = AuditPage(
    title="Duplicates",
    reading="Zero test images among the training images is right; the error without them is the one to report.",
    place=2,
    glossary={
        "exact_duplicates": Term(
            "Exact duplicates",
            "Images whose pixels equal those of another image: within a set, how many more there are than different "
            "images; of test in train, how many test images are also training images.",
            "Lower is better; test images that are training images should be 0.",
            "Pictures are compared as the network gets them, after resizing.",
        ),
        "near_duplicates": Term(
            "Near duplicates",
            "The same for images that differ in some pixels but show the same picture: saved again as JPEG, "
            "resized, or "
            "mirrored.",
            "Lower is better; test images that are training images should be 0.",
            "Cropped, turned and moved pictures are not found. Very similar pictures of different things can be "
            "counted.",
        ),
        "conflicting_labels": Term(
            "Duplicates with different labels",
            "Images of train and test that have an exact or near duplicate with another label.",
            "It should be 0: one of the two labels is wrong.",
            "It does not say which of the two is right.",
        ),
        "error": Term(
            "Error without duplicates",
            "The error on all test images, on those that have no duplicate among the training images, and on the "
            "others.",
            "Lower is better; the error on test images that are not in train is what to expect on new images.",
            "With few images in one of the parts its interval is wide.",
        ),
    },
    section=duplicates_section,
    drawn=("pairs",),
    findings=duplicates_findings,
)
