"""Errors epoch by epoch, and where a look at the validation images would have stopped training."""

from dataclasses import replace

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.records.record import ExhibitRecord
from clearance.report import epochs as over
from clearance.report.bands import bands
from clearance.report.compact import Compact, by_method, mean
from clearance.report.findings import Findings
from clearance.report.gallery import Picture, picture
from clearance.report.names import listed
from clearance.report.over_seeds import rows_of, stored
from clearance.report.section import Row, Section
from clearance.report.settings import setting

SIZE = (5.9, 3.9)
WHAT = (
    "Errors after every pass through the training images. Solid: test images, whose labels are right. Dashed, where "
    "some images were kept back from training: those, with labels as often wrong as the ones trained on. A solid line "
    "that rises again shows a network that has begun to learn wrong labels by heart."
)
NOT_MEANT = (
    "Nothing was chosen by the test images: every other number on this page is that of the last epoch. The table says "
    "what stopping at the lowest dashed point would have given, which anybody could have done."
)


def epochs_section(findings: Findings) -> Section | None:
    """A picture and a table for each condition that runs were made under.

    >>> from clearance.records import Report
    >>> epochs_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    record = stored(findings, over.AUDIT, over.OVER)
    if record is None:
        return None
    varied = over.conditions(findings)
    drawn = [_picture(findings, record, place, condition) for place, condition in enumerate(varied)]
    tables = [table for condition in varied if (table := _table(findings, condition)) is not None]
    return Section("Epoch by epoch", [WHAT, NOT_MEANT] if tables else [WHAT], [Row(drawn), *tables])


def _picture(findings: Findings, record: ExhibitRecord, place: int, condition: over.Condition) -> Picture:
    rows = [row for row in rows_of(record) if row["condition"] == place]
    drawn = bands(
        [row for row in rows if row["images"] == "test"],
        "epoch",
        findings.methods,
        ("epoch", "wrong"),
        size=SIZE,
        percent=True,
        dashed=[row for row in rows if row["images"] == "validation"],
    )
    caption = f"Solid: test images. Dashed: images kept back. {record.exhibit.caption}".strip()
    told = _told(condition)
    shown = picture(findings, drawn, f"{told.striptags()}. {caption}" if told else caption, [record])
    # the numbers of a condition are marked as such, as all numbers of a page are
    return replace(shown, caption=Markup("{}. {}").format(told, caption)) if told else shown


def _table(findings: Findings, condition: over.Condition) -> Compact | None:
    """The last epoch beside the one that the validation images choose."""
    stopped = _rows(findings, "training", "early_stopped_error", condition)
    if not stopped:
        return None
    last = _rows(findings, "accuracy", "error", condition, split="test")
    which = _rows(findings, "training", "early_stopped_epoch", condition)
    columns: dict[str | Markup, dict[str, Markup]] = {
        "after the last epoch": {row.method: mean(row) for row in last},
        "at the lowest error on images kept back": {row.method: mean(row) for row in stopped},
        "which epoch that is": {row.method: mean(row) for row in which},
    }
    told = _told(condition)
    title = Markup("Wrong on test images{}{}").format(", " if told else "", told)
    return by_method(findings, title, columns)


def _rows(
    findings: Findings, audit: str, name: str, condition: over.Condition, **wanted: str
) -> list[SummaryRow]:
    rows = findings.rows("mean", audit, name, **wanted)
    return [row for row in rows if over.condition_of(row.context) == condition]


def _told(condition: over.Condition) -> Markup:
    return listed([setting(key, value) for key, value in condition])
