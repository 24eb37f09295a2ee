"""How far the last layers move between a head of all images and one of a single image per class (Fig. 3)."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from clearance.records.record import ExhibitRecord
from clearance.records.store import exhibit_file
from clearance.report import distances as over
from clearance.report.bands import bands
from clearance.report.compact import Compact, by_method, mean, number
from clearance.report.confidence import confidence
from clearance.report.findings import Findings
from clearance.report.gallery import Picture, picture
from clearance.report.groups import groups
from clearance.report.names import method_name
from clearance.report.numbers import data, half_width
from clearance.report.over_seeds import bars, rows_of, stored
from clearance.report.paper import cited
from clearance.report.reference import reference
from clearance.report.section import Row, Section

WIDE, NARROW = (5.9, 3.9), (4.9, 3.6)
ORDINALS = ("first", "second", "third", "fourth", "fifth")
WHAT = (
    "Two sets of last layers are trained on the same frozen network from the same first weights: one with all "
    "training images, one with a single image of each class. If the network's features are easy to read, the "
    "second hardly has to differ from the first. How far they lie apart is measured along the straight way "
    "between them, in steps, each counted by how much it changes the answers."
)
MEASURES = (
    ("as in the paper, features as they are", ("empirical", "raw", "as trained")),
    ("as in the paper, features brought to one scale", ("empirical", "rms", "as trained")),
    ("the same, sureness evened out", ("empirical", "rms", "calibrated")),
    ("by changed answers, labels unseen", ("model", "rms", "as trained")),
    ("plain distance of weights", ("euclidean", "rms", "as trained")),
)


def geodesic_section(findings: Findings) -> Section | None:
    """Fig. 3 of the paper, and the same way in other measures.

    >>> from clearance.records import Report
    >>> geodesic_section(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    pictures = [one for one in (_layers(findings), _path(findings)) if one is not None]
    segments = _segments(findings)
    tables = [one for one in (_measures(findings), _rises(findings)) if one is not None]
    if not pictures and not tables:
        return None
    parts: list[Row | Compact] = [Row(pictures), *tables] if pictures else [*tables]
    if segments:
        row = Row(segments, "features", "Step by step, layer by layer", cited("Fig. 3 a to c"))
        parts.insert(1 if pictures else 0, row)
    return Section("How far the last layers move", [WHAT, *confidence(findings)], parts)


def _layers(findings: Findings) -> Picture | None:
    record = stored(findings, over.AUDIT, over.DISTANCES)
    if record is None:
        return None
    rows = _main(findings, record)
    layers = dict.fromkeys(str(row["layer"]) for row in rows)
    if not rows:
        return None
    names = {layer: _layer_name(layer) for layer in layers}
    drawn = groups(rows, "layer", names, findings.methods, "distance", size=WIDE)
    caption = f"Distance of the whole way by layer, as the paper measures it. {bars(findings)}"
    return picture(findings, drawn, caption, [record], cited("the dashed lines of Fig. 3 a to c"))


def _path(findings: Findings) -> Picture | None:
    record = stored(findings, over.AUDIT, over.PATH)
    if record is None:
        return None
    drawn = bands(
        rows_of(record),
        "position",
        findings.methods,
        ("from all images (left) to one per class (right)", "wrong on test images"),
        size=WIDE,
        percent=True,
    )
    return picture(findings, drawn, f"{record.exhibit.caption} Flat is good.", [record], cited("Fig. 3 d"))


def _segments(findings: Findings) -> list[Picture]:
    record = stored(findings, over.AUDIT, over.SEGMENTS)
    if record is None:
        return []
    rows = rows_of(record)
    whole = stored(findings, over.AUDIT, over.DISTANCES)
    totals = (
        {}
        if whole is None
        else {(row["layer"], row["method"]): row["mean"] for row in _main(findings, whole)}
    )
    pictures = []
    for layer in dict.fromkeys(row["layer"] for row in rows):
        mine = [row for row in rows if row["layer"] == layer]
        number = layer.removeprefix("layer ")
        ends = (min(row["segment"] for row in mine), max(row["segment"] for row in mine))
        across = [
            {"method": method, "segment": end, "mean": totals[number, method]}
            for method in findings.methods
            if (number, method) in totals
            for end in ends
        ]
        labels = ("step", "distance")
        drawn = bands(mine, "segment", findings.methods, labels, size=NARROW, log="y", dashed=across)
        caption = f"Last layers, the {_layer_name(number)}: distance of each step"
        caption += ", and of the whole way (dashed)." if across else "."
        pictures.append(picture(findings, drawn, caption, [record, *([whole] if whole and across else [])]))
    return pictures


def _measures(findings: Findings) -> Compact | None:
    """The way through all layers in every measure: how many times the reference's, and the distance itself."""
    record = stored(findings, over.AUDIT, over.DISTANCES)
    if record is None:
        return None
    rows = [row for row in rows_of(record) if row["layer"] == "all"]
    columns = {
        name: {row["method"]: _times(row) for row in rows if _measure(row) == measure}
        for name, measure in MEASURES
    }
    against = method_name(reference(findings))
    title, foot = "The whole way in several measures", ""
    if len(findings.methods) > 1:
        title += f": how many times as far as with {against}"
        foot = (
            "Large: how many times as far, the geometric mean over seeds of the ratio, with its interval. Small "
            f"at the end: the distance itself, mean over seeds; of {against} only that."
        )
    return by_method(findings, title, columns, foot, [exhibit_file(record)])


def _times(row: Mapping[str, Any]) -> Markup:
    own = number(row["mean"], row["unit"], row["low"], row["high"])
    if row["factor"] is None:
        return own
    times = number(row["factor"], "factor", row["factor_low"], row["factor_high"])
    return times + Markup("<small>{}</small>").format(
        data(row["mean"], row["unit"], half_width(row["low"], row["high"]))
    )


def _rises(findings: Findings) -> Compact | None:
    """What the way costs in errors."""
    wanted = {"features": over.main_reading(findings), "temperature": "as trained"}
    columns = {
        title: {row.method: mean(row) for row in findings.rows("mean", over.AUDIT, name, **wanted)}
        for title, name in (
            ("from end to end", "path_error_rise"),
            ("to the worst place", "worst_path_error"),
        )
    }
    return by_method(findings, "How much the share of wrong answers rises on the way", columns)


def _main(findings: Findings, record: ExhibitRecord) -> list[dict[str, Any]]:
    """The distances in the paper's measure, in the reading of features that the pictures have."""
    wanted = ("empirical", over.main_reading(findings), "as trained")
    return [row for row in rows_of(record) if _measure(row) == wanted]


def _measure(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["metric"], row["features"], row["temperature"]


def _layer_name(layer: str) -> str:
    if layer == "all":
        return "all together"
    at = int(layer) - 1 if layer.isdecimal() else len(ORDINALS)
    return f"{ORDINALS[at]} layer" if at < len(ORDINALS) else f"layer {layer}"
