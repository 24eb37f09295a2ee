"""What a comparison came to at each value of the setting that was swept."""

from markupsafe import Markup

from clearance.report import sweep as over
from clearance.report.bands import bands
from clearance.report.findings import Findings
from clearance.report.gallery import Picture, picture
from clearance.report.numbers import exact
from clearance.report.over_seeds import rows_of, stored
from clearance.report.section import Row, Section

SIZE = (5.9, 3.9)
DASHED = {"error": "train_error"}  # drawn in the same picture
WHAT = Markup(
    "The same comparison at {} values of <code>{}</code>, everything else alike. Choose none of them by a test error."
)
REST = Markup(
    "The sentence at the top, the tables and the pictures are at {} {}; the full table has every value."
)


def sweep_section(findings: Findings) -> Section | None:
    """A picture for each quantity over the setting; None where nothing was swept.

    >>> from clearance.records import Report
    >>> sweep_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    found, record = over.swept(findings.report), stored(findings, over.AUDIT, over.OVER)
    if found is None or record is None:
        return None
    rows = rows_of(record)
    drawn = [
        _picture(findings, one, found.field)
        for one in over.QUANTITIES
        if one.key not in DASHED.values() and any(row["quantity"] == one.key for row in rows)
    ]
    name = found.field.replace("_", " ")
    text = [
        WHAT.format(exact(len(found.values)), found.field),
        REST.format(name, exact(found.shown)),
    ]
    return Section(f"Over {name}", text, [Row(drawn)])


def _picture(findings: Findings, quantity: over.Quantity, field: str) -> Picture:
    record = stored(findings, over.AUDIT, over.OVER)
    assert record is not None
    rows = rows_of(record)
    drawn = bands(
        [row for row in rows if row["quantity"] == quantity.key],
        "setting",
        findings.methods,
        (field.replace("_", " "), quantity.label),
        size=SIZE,
        percent=quantity.key in DASHED,
        log=quantity.log,
        dashed=[row for row in rows if row["quantity"] == DASHED.get(quantity.key)],
    )
    dashed = " Dashed: on training images." if quantity.key in DASHED else ""
    caption = (
        f"{quantity.label.capitalize()} over {field.replace('_', ' ')}.{dashed} {record.exhibit.caption}"
    )
    return picture(findings, drawn, caption.strip(), [record])
