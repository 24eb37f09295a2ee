"""The page on the accuracy under the attacks of most papers, white box and black box; it is not a verdict."""

from typing import Any

from markupsafe import Markup

from clearance.records.record import ExhibitRecord
from clearance.report.audit_page import AuditPage, Row, Section, Term
from clearance.report.drawing import bands
from clearance.report.findings import Findings
from clearance.report.numbers import exact
from clearance.report.over_seeds import bars, rows_of, stored, summary_exhibit, with_interval
from clearance.report.pictures import Picture, picture
from clearance.report.tables import Compact, by_method, mean

AUDIT, OVER = "attacked", "attacked_over_radius"


def attacked(findings: Findings) -> ExhibitRecord | None:
    """A row for each method, attack, box and radius; at radius 0 nothing is attacked."""
    found = sorted(
        findings.rows("mean", AUDIT, "accuracy"), key=lambda row: (row.method, float(row.context["epsilon"]))
    )
    rows = [
        with_interval(
            row, attack=row.context["attack"], box=row.context["box"], radius=row.context["epsilon"]
        )
        for row in found
    ]
    shaded = bars(findings, "Shaded") or "Shaded: 95 % interval over images."
    return summary_exhibit(findings, AUDIT, OVER, rows, shaded)


SIZE = (5.9, 3.7)
BOXES = {
    "white": "with the network's own gradients (white box)",
    "black": "made on another network (black box)",
    "white, training loss": "with the network's own gradients of its whole training loss",
    "white, adversarially trained": "with the network's own gradients, for networks trained on attacked images",
}
WHAT = (
    "The attacks that the paper reports: one step along the sign of the gradient of cross-entropy (FGSM), and many "
    "small such steps (IFGSM). Every pixel changes by at most the radius."
)
NOT_MEANT = (
    "These numbers are for comparison with the paper and are not evidence of robustness: where logits are large, "
    "cross-entropy has almost no gradient, and such attacks fail on a network that other attacks break. Accuracy is"
    " usually higher in the black box than in the white box; lower accuracy shows that the network hides its "
    "gradients."
)


def attacked_section(findings: Findings) -> Section | None:
    """A picture for each attack and box, and a table at the middle one of the radii."""
    record = stored(findings, AUDIT, OVER)
    if record is None:
        return None
    rows = rows_of(record)
    kinds = list(dict.fromkeys((row["attack"], row["box"]) for row in rows))
    drawn = [_picture(findings, record, kind) for kind in kinds]
    table = _table(findings, rows, kinds)
    parts: list[Row | Compact] = [Row(drawn)]
    said = [WHAT, NOT_MEANT]
    return Section("Attacks of the paper", said, parts if table is None else [*parts, table])


def _picture(findings: Findings, record: ExhibitRecord, kind: tuple[str, str]) -> Picture:
    drawn = bands(
        [row for row in rows_of(record) if (row["attack"], row["box"]) == kind],
        "radius",
        findings.methods,
        ("radius, norm inf", "accuracy on test images"),
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
        found = findings.rows("mean", AUDIT, "accuracy", attack=attack, box=box, epsilon=middle)
        columns[f"{attack}, {BOXES.get(box, box)}"] = {row.method: mean(row) for row in found}
    title = Markup("Accuracy on test images at radius {}").format(exact(middle))
    return by_method(findings, title, columns)


PAGE = AuditPage(
    title="Attacks of the paper",
    reading="Higher is better, but these are the attacks of a paper, and stronger attacks are known.",
    place=150,
    glossary={
        "accuracy": Term(
            "Accuracy under the attacks of the paper",
            "Images changed by FGSM or IFGSM, along the gradient of cross-entropy, by no more than a radius: with the "
            "network's own gradients (white box), or with those of another one (black box).",
            "Higher is what the paper calls more robust. At radius zero nothing is attacked.",
            "It is not evidence of robustness: such attacks fail on networks with large logits. Compare it with the"
            " worst of all attacks.",
        ),
        "confidence": Term(
            "Confidence on attacked images",
            "The probability of the predicted class on the same changed images: the mean over all of them, "
            "including those that are still classified correctly.",
            "Lower is what the paper calls less extreme: a network that is fooled should not be confident.",
            "Small logits also give low confidence. The number says nothing about other attacks.",
        ),
    },
    section=attacked_section,
    over_seeds={OVER: attacked},
)
