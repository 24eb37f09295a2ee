"""The page on what is odd about the sets: files, sizes, colours, class sizes, errors."""

from dataclasses import replace

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.report.audit_page import (
    CLOSE,
    AuditPage,
    Finding,
    Section,
    Severity,
    Term,
    points_with_ends,
    section,
)
from clearance.report.findings import Findings
from clearance.report.names import listed
from clearance.report.numbers import data
from clearance.report.pictures import firsts, table_of
from clearance.report.tables import of_exhibit

AUDIT = "set_facts"
IMBALANCED = 10  # times: from here on it is said
LOST = 0.01  # share of files that cannot be read from which on it is an alarm
MEMORISED = 0.1  # by which the error on test is above that on train, from which on it is said
LINES = 20
NAMED = 3  # classes without images, at most, that the sentence names
EMPTY = "class without images"  # as the audit calls it
WORDS = {  # for one, and for more
    "empty_classes": ("class of {} has no image", "classes of {} have no image"),
    "unreadable_files": ("file of {} cannot be read", "files of {} cannot be read"),
    "odd_sizes": ("picture of {} has an odd size", "pictures of {} have an odd size"),
    "grey_images": ("image of {} is grey among colours", "images of {} are grey among colours"),
}


def sets_findings(findings: Findings) -> list[Finding]:
    """A training error above the test error first, then what is odd about the images."""
    difference = findings.row("mean", AUDIT, "train_minus_test")
    if difference is None:
        return []
    parts = [
        Markup("{} {}{}").format(data(row.value, "count"), words, _names_of_empty(findings, row))
        for row, words in _odd(findings)
    ]
    for split in ("train", "test"):
        imbalance = findings.row("mean", AUDIT, "class_imbalance", split=split)
        if imbalance is not None and imbalance.value >= IMBALANCED:
            parts.append(Markup("the largest class of {} has {} as many images as the smallest").format(
                split, data(imbalance.value, "factor")
            ))  # fmt: skip
    said = Markup("Of the sets: {}.").format(listed(parts)) if parts else Markup("")
    if difference.low is not None and difference.low > 0 and difference.value >= CLOSE:
        above = Markup("The error on train is above that on test by {}. ").format(
            points_with_ends(difference)
        )
        todo = (
            "Check the labels of train, that it was trained on these images, and that test is not easier or part of "
            "train."
        )
        return [Finding("Sets", "problem", above + said, todo)]
    todo = f"The list: {table_of(findings, AUDIT, 'odd_images')}." if _odd(findings) else ""
    severity: Severity = "problem" if _many_lost(findings) else "information"
    if difference.low is not None and difference.high is not None and difference.high < -MEMORISED:
        less = replace(difference, value=-difference.value, low=-difference.high, high=-difference.low)
        below = Markup("The error on test is above that on train by {}. ").format(points_with_ends(less))
        better = "If test images matter more: more training images, augmentation or weight decay."
        return [Finding("Sets", severity, below + said, f"{better} {todo}".rstrip())]
    if not parts:
        said = Markup("Files, sizes, colours and class sizes are ordinary within train and within test.")
        return [Finding("Sets", "fine", said)]
    return [Finding("Sets", severity, said, todo)]


def _odd(findings: Findings) -> list[tuple[SummaryRow, str]]:
    return [
        (row, words[row.value > 1].format(row.context["split"]))
        for name, words in WORDS.items()
        for row in findings.rows("mean", AUDIT, name)
        if row.value
    ]


def _names_of_empty(findings: Findings, row: SummaryRow) -> str:
    """Which classes have no image, if they are few."""
    if row.name != "empty_classes":
        return ""
    names = [
        str(image)
        for record in findings.exhibits(AUDIT, "odd_images")[:1]  # it is left out of the page to share
        for split, what, image in zip(
            *(record.exhibit.columns[c] for c in ("set", "what", "image")), strict=True
        )
        if (split, what) == (row.context["split"], EMPTY)
    ]
    return f" ({', '.join(map(repr, names))})" if 0 < len(names) <= NAMED else ""


def _many_lost(findings: Findings) -> bool:
    return any(
        row.value >= LOST * (row.n or 1) > 0 for row in findings.rows("mean", AUDIT, "unreadable_files")
    )


def sets_section(findings: Findings) -> Section | None:
    """The odd images by name, and the images of each class."""
    tables = [
        of_exhibit(record, title, head, LINES)
        for name, title, head in (
            ("odd_images", "Odd images", "Set"),
            ("class_sizes", "Images of each class", "Class"),
        )
        for record in list(firsts(findings, AUDIT, name).values())[:1]  # of the images, whatever the method
        if next(iter(record.exhibit.columns.values()))
    ]
    return section(PAGE.title, [_TEXT], tables)


_TEXT = "Files that cannot be read are left out. Sizes are those of the files, before resizing."


PAGE = AuditPage(
    title="Facts of the sets",
    reading="An error on train clearly above that on test needs an explanation before any other number is used.",
    place=6,
    glossary={
        "train_minus_test": Term(
            "Error on train less error on test",
            "The share of wrong training images less the share of wrong test images.",
            "Below or near 0 is ordinary. Clearly above, labels of train are wrong, or the images are not those "
            "it learned from.",
            "Training with augmentation or label noise on purpose has the same sign.",
            difference=True,
        ),
        "class_imbalance": Term(
            "Class imbalance",
            "Images of the largest class over images of the smallest that has any.",
            "1 is balanced. From about 10 on, look at the errors of small classes one by one.",
            "It says nothing of how hard the classes are.",
        ),
        "empty_classes": Term(
            "Classes without images",
            "Classes of which the set has no image.",
            "Nothing is known of these classes: their recall is not measured.",
            "A class may be left out on purpose.",
        ),
        "grey_images": Term(
            "Grey images among colours",
            "Images whose three channels are equal, in a set that also has colours.",
            "0 is ordinary. If they are all of one class, the network may have learned grey instead of the class.",
            "Where both sets are of grey pictures alone, none counts.",
        ),
        "unreadable_files": Term(
            "Files that cannot be read",
            "Files of the folder that are not pictures or are damaged; they are left out.",
            "0 is right.",
            "Files with other endings are not counted.",
        ),
        "odd_sizes": Term(
            "Pictures of odd sizes",
            "Pictures with a short side below half the median, or of a proportion of width to height that is more than "
            "twice, or less than half, the median one.",
            "0 is ordinary: after resizing, such pictures look unlike the others.",
            "In a set of all sizes and proportions they are ordinary.",
        ),
    },
    section=sets_section,
    findings=sets_findings,
)
