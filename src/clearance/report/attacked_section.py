"""What the attacks of most papers leave: white box and black box, which is no verdict."""

from typing import Any

from markupsafe import Markup

from clearance.records.record import ExhibitRecord
from clearance.report import attacked as over
from clearance.report.bands import bands
from clearance.report.compact import Compact, by_method, mean
from clearance.report.findings import Findings
from clearance.report.gallery import Picture, picture
from clearance.report.numbers import exact
from clearance.report.over_seeds import rows_of, stored
from clearance.report.section import Row, Section

SIZE = (5.9, 3.7)
BOXES = {
    "white": "with the network's own gradients (white box)",
    "black": "made on another network (black box)",
    "white, training loss": "with the network's own gradients of all that it was trained with",
    "white, adversarially trained": "with the own gradients of networks trained on such images",
}
WHAT = (
    "The attacks that the paper reports: one step along the sign of the gradient of cross-entropy (FGSM), and many "
    "small such steps (IFGSM). Every pixel changes by at most the radius."
)
NOT_MEANT = (
    "This is for holding against the paper, and no evidence that a network is robust: where answers are loud, "
    "cross-entropy has hardly a gradient to follow, and such attacks fail on a network that others break. More left "
    "in the black box than in the white is usual; less says that the network hides its gradients."
)


def attacked_section(findings: Findings) -> Section | None:
    """A picture for each attack and box, and a table at the middle one of the radii.

    >>> from clearance.records import Report
    >>> attacked_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    record = stored(findings, over.AUDIT, over.OVER)
    if record is None:
        return None
    rows = rows_of(record)
    kinds = list(dict.fromkeys((row["attack"], row["box"]) for row in rows))
    drawn = [_picture(findings, record, kind) for kind in kinds]
    table = _table(findings, rows, kinds)
    parts: list[Row | Compact] = [Row(drawn)]
    said = [WHAT, NOT_MEANT]
    return Section("Under the attacks of the paper", said, parts if table is None else [*parts, table])


def _picture(findings: Findings, record: ExhibitRecord, kind: tuple[str, str]) -> Picture:
    drawn = bands(
        [row for row in rows_of(record) if (row["attack"], row["box"]) == kind],
        "radius",
        findings.methods,
        ("radius, norm inf", "right on test images"),
        size=SIZE,
        percent=True,
    )
    caption = f"{kind[0]}, {BOXES.get(kind[1], kind[1])}. {record.exhibit.caption}"
    return picture(findings, drawn, caption, [record])


def _table(findings: Findings, rows: list[dict[str, Any]], kinds: list[tuple[str, str]]) -> Compact | None:
    radii = sorted({row["radius"] for row in rows if row["radius"] > 0})
    if not radii:
        return None
    middle = radii[len(radii) // 2]
    columns: dict[str | Markup, dict[str, Markup]] = {}
    for attack, box in kinds:
        found = findings.rows("mean", over.AUDIT, "accuracy", attack=attack, box=box, epsilon=middle)
        columns[f"{attack}, {BOXES.get(box, box)}"] = {row.method: mean(row) for row in found}
    title = Markup("Right on test images at radius {}").format(exact(middle))
    return by_method(findings, title, columns)
