"""Where the network is cut: one-image error in front of the last layers, and one layer later."""

from markupsafe import Markup

from clearance.report import cuts as over
from clearance.report.compact import Compact, Line, by_method, mean
from clearance.report.curve import LATER, USUAL
from clearance.report.findings import FEW, Findings
from clearance.report.gallery import Picture, picture
from clearance.report.groups import groups
from clearance.report.names import PIXELS, head_name
from clearance.report.numbers import data
from clearance.report.over_seeds import rows_of, stored
from clearance.report.overview import pixels_error
from clearance.report.paper import cited
from clearance.report.section import Row, Section

SIZE = (5.9, 4.3)
WHAT = (
    "All of the above throws the last layers away and keeps the rest. Here the same network is cut one layer "
    "later, so that the first of its last layers stays, too. What a method gains should not be there only for "
    "the cut that it was trained with. End-to-end training knows no difference between these layers; FOCA does: "
    "it trains that first layer last, with the rest frozen."
)


def cut_section(findings: Findings) -> Section | None:
    """Both cuts side by side, with the nearest class average and the nearest image.

    >>> from clearance.records import Report
    >>> cut_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    drawn = _picture(findings)
    table = _table(findings)
    if table is None:
        return None
    parts: list[Row | Compact] = [Row([drawn]), table] if drawn else [table]
    return Section("Where the network is cut", [WHAT], parts, cited("the fewest images in Fig. 2"))


def _table(findings: Findings) -> Compact | None:
    if not findings.rows("mean", over.AUDIT, "error", samples=findings.fewest):
        return None
    columns = {
        f"{head_name(head)}, {cut}": {
            row.method: mean(row)
            for row in findings.rows("mean", audit, "error", head=head, samples=findings.fewest)
        }
        for head in over.HEADS
        for audit, cut in ((FEW, USUAL), (over.AUDIT, LATER))
    }
    title = Markup("Wrong when rebuilt from {}").format(findings.few)
    found = by_method(findings, title, columns)
    return None if found is None else _with_pixels(findings, found)


def _with_pixels(findings: Findings, table: Compact) -> Compact:
    """The table with a last line for the nearest image, which no network has touched."""
    row = pixels_error(findings)
    if row is None:
        return table
    cell = data(row.value, row.unit)
    blank = Markup("")
    line = Line("nearest image, no network", None, [cell, *[blank] * (len(table.columns) - 1)])
    return Compact(table.title, table.columns, [*table.lines, line], table.foot, table.files)


def _picture(findings: Findings) -> Picture | None:
    record = stored(findings, over.AUDIT, over.NAME)
    if record is None:
        return None
    rows = [{**row, "place": (row["head"], row["cut"])} for row in rows_of(record)]
    short = {"retrained": "small\nnetwork", "class mean": "nearest class\naverage"}
    places = {
        (head, cut): f"{short[head]}\n{cut}"
        for head in over.HEADS
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
    caption = f"Error with last layers rebuilt from the fewest images, at both cuts. {record.exhibit.caption}"
    return picture(findings, drawn, caption, [record])
