"""The page on where the network is cut: one-image error in front of the last layers, and one layer later."""

from markupsafe import Markup

from clearance.records.record import ExhibitRecord
from clearance.report.audit_page import AuditPage, Row, Section, Term, section
from clearance.report.audits.co_adaptation import DEEPER, LATER, USUAL
from clearance.report.drawing import groups
from clearance.report.findings import FEW, Findings
from clearance.report.names import PIXELS, cited, head_name
from clearance.report.numbers import data
from clearance.report.over_seeds import bars, rows_of, stored, summary_exhibit, with_interval
from clearance.report.pictures import Picture, picture
from clearance.report.tables import Compact, by_method, means, pixels_error, with_pixels

AUDIT, NAME = DEEPER, "cuts"
HEADS = ("retrained", "class mean")


def cuts(findings: Findings) -> ExhibitRecord | None:
    """A row per method, stand-in and cut; None where only one cut was measured."""
    rows = [
        with_interval(
            row,
            method="" if row.context["head"] == PIXELS else row.method,
            head=row.context["head"],
            cut=USUAL if audit == FEW else LATER,
        )
        for audit in (FEW, AUDIT)
        for row in findings.rows("mean", audit, "error", samples=findings.fewest)
        if row.context.get("head") in (*HEADS, PIXELS)
    ]
    if not any(row["cut"] == LATER for row in rows):
        return None
    return summary_exhibit(findings, AUDIT, NAME, rows, bars(findings))


SIZE = (5.9, 4.3)
WHAT = (
    "Everything above discards the last layers and keeps the rest. Here the same network is cut one layer later, so"
    " the first of its last layers is kept, too. A method's gain should not appear only at the cut it was trained "
    "with. End-to-end training treats these layers alike; FOCA does not: it trains that first layer last, with the "
    "rest frozen."
)


def cut_section(findings: Findings) -> Section | None:
    """Both cuts side by side, with the nearest class average and the nearest image."""
    drawn = _picture(findings)
    parts = [Row([drawn] if drawn else []), _table(findings)]
    return section("Where the network is cut", [WHAT], parts, cited("the fewest images in Fig. 2"))


def _table(findings: Findings) -> Compact | None:
    if not findings.rows("mean", AUDIT, "error", samples=findings.fewest):
        return None
    columns = {
        f"{head_name(head)}, {cut}": means(findings, audit, "error", head=head, samples=findings.fewest)
        for head in HEADS
        for audit, cut in ((FEW, USUAL), (AUDIT, LATER))
    }
    title = Markup("Wrong when retrained on {}").format(findings.few)
    found = by_method(findings, title, columns)
    row = pixels_error(findings)
    return found if found is None or row is None else with_pixels(found, [data(row.value, row.unit)])


def _picture(findings: Findings) -> Picture | None:
    record = stored(findings, AUDIT, NAME)
    if record is None:
        return None
    rows = [{**row, "place": (row["head"], row["cut"])} for row in rows_of(record)]
    short = {"retrained": "small\nnetwork", "class mean": "nearest class\naverage"}
    places = {
        (head, cut): f"{short[head]}\n{cut}"
        for head in HEADS
        for cut in (USUAL, LATER)
        if any(row["place"] == (head, cut) for row in rows)
    }
    pixels = next((row["mean"] for row in rows if row["head"] == PIXELS), None)
    drawn = groups(
        rows,
        "place",
        places,
        findings.methods,
        "wrong on test images",
        size=SIZE,
        percent=True,
        level=None if pixels is None else ("nearest image, no network", pixels),
    )
    caption = f"Error with last layers retrained on the fewest images, at both cuts. {record.exhibit.caption}"
    return picture(findings, drawn, caption, [record])


_LATER = "The same network is cut one layer later: the first of its last layers counts as part of the rest. "
PAGE = AuditPage(
    title="With retrained last layers, cut one layer later",
    reading=(
        "Read it like the retrained last layers above, with the first of the old ones kept: where errors drop, the "
        "features depended on this layer."
    ),
    place=60,
    glossary={
        "error": Term(
            "Error with retrained last layers, cut one layer later",
            _LATER + "The layers after it are retrained on a few images, as before.",
            "Lower is better. A method that is also ahead here is not ahead only at the cut used in training.",
            "The layer that is kept was trained with the last layers; with FOCA it was trained last of all.",
        ),
        "gap": Term(
            "Gap to its own last layers, cut one layer later",
            _LATER
            + "The error with the layers after it retrained, minus the error of the network as it was trained.",
            "Close to zero is better.",
            "With few images a gap also contains what few images cost; compare it between methods.",
            difference=True,
        ),
        "diverged_heads": Term(
            "Retrained last layers that failed, cut one layer later",
            _LATER + "How many of the retrained layers diverged during training. They count as guessing.",
            "Zero is right.",
            "It depends on how they were trained, not only on the network.",
        ),
        "unfitted_heads": Term(
            "Retrained last layers that miss their own images, cut one layer later",
            _LATER + "How many of the retrained layers misclassify some of the images they were trained on.",
            "Zero is right for few images.",
            "It does not say that the network is bad: last layers that are too simple also miss images.",
        ),
    },
    section=cut_section,
    over_seeds={NAME: cuts},
)
