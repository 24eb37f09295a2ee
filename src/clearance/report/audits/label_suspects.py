"""The page on labels that look wrong."""

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.records.record import ExhibitRecord
from clearance.report.audit_page import AuditPage, Finding, Section, Term, with_ends
from clearance.report.findings import Findings
from clearance.report.numbers import data
from clearance.report.pictures import Gallery, Shot, as_image, firsts, of_method, table_of
from clearance.report.tables import of_exhibit

AUDIT = "label_suspects"
MANY, AT_LEAST = (
    0.02,
    0.01,
)  # share of sure suspects from which on it is an alarm, and that its interval must exclude
PAIR, PAIR_AT_LEAST = 0.10, 0.05  # the same for the share of a class that looks like one other class
TELLS = (
    0.75  # share of the labels that the second classifier must predict for a pair of classes to be an alarm
)
ON_FIRST_SCREEN = 12  # images
LINES = 200  # in a table of the page; the file has all


def labels_findings(findings: Findings) -> list[Finding]:
    """A pair of classes that are filed as each other, else many wrong labels, else how many there are to look at."""
    pair = findings.row("mean", AUDIT, "worst_pair")
    sure = {split: findings.row("mean", AUDIT, "sure", split=split) for split in ("train", "test")}
    if pair is None:
        return []
    listed = table_of(findings, AUDIT, "suspects")
    todo = f"Look at them, surest first, and correct those that are wrong. The list: {listed}."
    shown = [
        Gallery("The surest suspects", _shots(record)[:ON_FIRST_SCREEN], folded=True)
        for record in firsts(findings, AUDIT, "pictures").values()
    ]
    said, alarm = Markup(""), False
    agreement = findings.row("mean", AUDIT, "agreement")
    tells = agreement is None or agreement.value >= TELLS
    if tells and _above(pair, PAIR, PAIR_AT_LEAST):
        alarm = True
        said += _pair_words(findings, pair)
    for split, row in sure.items():
        if row is not None and _above(row, MANY, AT_LEAST):  # many wrong labels are hard to predict
            alarm = True
            said += Markup(" {} of the labels of {} are almost surely wrong.").format(with_ends(row), split)
    unseen = _unseen_words(findings)
    if alarm:
        return [Finding("Labels", "problem", said + unseen, todo, pictures=shown)]
    small = findings.row("mean", AUDIT, "not_judged")
    if small is not None and small.value == 1:
        said = Markup("No label was judged: of every class, too few images were compared at once.")
        return [Finding("Labels", "information", said)]
    count = sum(round(row.value * (row.n or 0)) for row in findings.rows("mean", AUDIT, "suspects"))
    if count == 0:
        return [Finding("Labels", "fine", Markup("No label looks wrong.") + unseen)]
    said = Markup("{} {} worth a look: too few, or too unsure, for a fault of the set.").format(
        data(count, "count"), "label is" if count == 1 else "labels are"
    )
    if agreement is not None and not tells:
        said += Markup(" The classifier that looks for them predicts only {} of the labels.").format(
            with_ends(agreement)
        )
    return [Finding("Labels", "information", said + unseen, todo, pictures=shown)]


def _unseen_words(findings: Findings) -> Markup:
    """What was not looked at, and how to."""
    said, most = Markup(""), 0
    for split in ("train", "test"):
        row = findings.row("mean", AUDIT, "left_out", split=split)
        if row is not None and row.n is not None:
            count, most = row.n - round(row.value * row.n), max(most, row.n)
            said += Markup(" Of {} only {} of {} images were looked at.").format(
                split, data(count, "count"), data(row.n, "count")
            )
    if most:
        said += Markup(" --settings label_suspects.images={} looks at all.").format(most)
    row = findings.row("mean", AUDIT, "not_judged")
    if row is not None:
        said += Markup(
            " {} of the labels were not judged, because too few images of their class were compared at once."
        ).format(data(row.value, "fraction"))
    return said


def _above(row: SummaryRow, limit: float, low: float) -> bool:
    return row.value >= limit and row.low is not None and row.low >= low


def _pair_words(findings: Findings, pair: SummaryRow) -> Markup:
    """Both directions: which of the two classes holds the wrong labels is open."""
    for record in firsts(findings, AUDIT, "pairs").values():
        columns = record.exhibit.columns
        ends = list(zip(columns["given"], columns["looks like"], strict=True))
        shares = dict(zip(ends, columns["share of given"], strict=True))
        given, other = ends[0]
        said = Markup("{} of {} look like {}").format(with_ends(pair), given, other)
        if back := shares.get((other, given)):
            said += Markup(", and {} of {} like {}").format(data(back, "fraction"), other, given)
        return said + Markup(
            ": part of one of the two is filed as the other, or they are hard to tell apart."
        )
    return Markup("Of one class {} look like another.").format(with_ends(pair))


def labels_section(findings: Findings) -> Section | None:
    """The pairs of classes, the first suspects by name, and their pictures."""
    if findings.row("mean", AUDIT, "worst_pair") is None:
        return None
    tables = [
        of_exhibit(record, of_method(title, method, findings), head, LINES, record.exhibit.caption)
        for name, title, head in (
            ("pairs", "Classes that look like another", "Given"),
            ("suspects", "Suspects", "Set"),
        )
        for method, record in firsts(findings, AUDIT, name).items()
        if next(iter(record.exhibit.columns.values()))
    ]
    pictures = [
        Gallery(of_method("The surest suspects", method, findings), _shots(record))
        for method, record in firsts(findings, AUDIT, "pictures").items()
    ]
    return Section(PAGE.title, [_TEXT], [*tables, *pictures])


def _shots(record: ExhibitRecord) -> list[Shot]:
    """The images, each with its set and name, its label and what it looks like."""
    columns = record.exhibit.columns
    rows = zip(*(columns[name] for name in ("image", "set", "file", "given", "looks like")), strict=True)
    return [
        Shot(as_image(image), (f"{split} {file}", f"given {given}", f"looks like {other}"))
        for image, split, file, given, other in rows
    ]


_TEXT = (
    "A second classifier, which does not see the network, is asked about every image without the label "
    "of that image. Labels that it "
    "contradicts are ranked by the probability that it gives them."
)


PAGE = AuditPage(
    title="Label suspects",
    reading=(
        "Two in a hundred sure suspects, or a tenth of a class that looks like one other class, need action; "
        "a few suspects are in "
        "every set."
    ),
    place=4,
    glossary={
        "suspects": Term(
            "Label suspects",
            "The share of images in the list: confident learning doubts their label, by probabilities from the other "
            "images, or they are sure suspects.",
            "Lower is better. Where classes overlap, many suspects have the right label.",
            "It is not the share of wrong labels: look at the images.",
        ),
        "sure": Term(
            "Sure label suspects",
            "The share of images whose given label has a probability below 0.01 (with more than ten classes a tenth of "
            "guessing), while another class is likelier. They are among the label suspects.",
            "Lower is better; from 2 % on, labels were probably mixed up.",
            "Odd images with right labels are among them.",
        ),
        "model_agrees": Term(
            "Suspects on which the network agrees",
            "Of the suspects, the share for which the network, too, predicts the class that the image looks like.",
            "Neither direction is better. Near zero on train, the network may have learned the wrong labels.",
            "With few suspects its interval is wide.",
        ),
        "agreement": Term(
            "Labels that the second classifier predicts",
            "The share of the labels, in train and test, that the classifier predicts which looks for wrong ones.",
            "Below 75 % it cannot tell the classes apart, and a class that looks like another is no alarm.",
            "It is not the audited network, and no measure of it.",
        ),
        "left_out": Term(
            "Images that were not looked at",
            "The share of the images beyond the number that the audit takes of each set.",
            "Neither direction is better. Raise `images` to look at all.",
            "It says nothing about these images.",
        ),
        "not_judged": Term(
            "Labels that were not judged",
            "The share of labels, in train and test, of which fewer than five of the class were among the images "
            "compared at once.",
            "Neither direction is better.",
            "It says nothing about these labels.",
        ),
        "worst_pair": Term(
            "Largest share of a class that looks like another",
            "Of the images of a class, in train and test, the share that looks like one other class, for the "
            "pair with the largest.",
            "Lower is better; from 10 % on, one of the two is probably filed in part as the other.",
            "Which of the two has the wrong labels is open. Classes that overlap have a share, too. The interval is "
            "adjusted for the number of pairs.",
        ),
    },
    section=labels_section,
    drawn=("pictures",),
    findings=labels_findings,
)
