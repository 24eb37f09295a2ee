"""The page on how far the last layers move between a head of all images and one of a single image per class."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from clearance.records.record import ExhibitRecord
from clearance.records.store import exhibit_file
from clearance.records.summary import compare_seeds
from clearance.report.audit_page import AuditPage, Row, Section, Term, section
from clearance.report.drawing import bands, groups
from clearance.report.findings import Findings, reference
from clearance.report.names import cited, listed, method_name, strong
from clearance.report.numbers import data, half_width
from clearance.report.over_seeds import (
    bars,
    curves,
    is_summary,
    middle,
    rows_of,
    stored,
    summary_exhibit,
    values,
)
from clearance.report.pictures import Picture, picture
from clearance.report.tables import Compact, by_method, means, number

AUDIT = "geodesic"
DISTANCES, PATH, SEGMENTS = "distances", "mean_path_error", "mean_segments"
SETTINGS = ("metric", "layer", "features", "temperature")


def distances(findings: Findings) -> ExhibitRecord | None:
    """Every distance of every method with its factor to the reference's: a row for each.

    `factor` is the geometric mean over seeds of the paired ratios, with its 95 % t interval (of logarithms);
    None where a distance is not above 0.
    """
    rows: list[dict[str, Any]] = []
    known: dict[tuple[Any, ...], dict[str, dict[int, list[float]]]] = {}
    for row in findings.rows("mean", AUDIT, "distance"):
        context = {key: row.context.get(key) for key in SETTINGS}
        setting = tuple(context.values())
        if setting not in known:
            known[setting] = values(findings, AUDIT, "distance", **context)
        found = known[setting]
        own = {seed: one[0] for seed, one in found[row.method].items()}
        against = {seed: one[0] for seed, one in found.get(reference(findings), {}).items()}
        rows.append(
            {
                "method": row.method,
                **context,
                **middle(list(own.values())),
                "unit": row.unit,
                **_factor(own, against, row.method == reference(findings)),
            }
        )
    caption = "Distances, and how many times as far as the reference: mean and 95 % interval over seeds."
    return summary_exhibit(findings, AUDIT, DISTANCES, rows, caption)


def mean_path(findings: Findings) -> ExhibitRecord | None:
    """Test error at each place of the way, mean over seeds."""
    records = _of_reading(findings, "path_error")
    rows = curves(records, "position", "error", findings.methods, most=1.0)
    caption = f"Test error on the way. {bars(findings, 'Shaded')}"
    return summary_exhibit(findings, AUDIT, PATH, rows, caption)


def mean_segments(findings: Findings) -> ExhibitRecord | None:
    """Distance of each segment of the way, layer by layer, mean over seeds."""
    records = _of_reading(findings, "segments")
    layers = dict.fromkeys(name for one in records for name in one.exhibit.columns if name != "segment")
    rows = [
        {"layer": layer, **row}
        for layer in layers
        for row in curves(records, "segment", layer, findings.methods)
    ]
    return summary_exhibit(
        findings, AUDIT, SEGMENTS, rows, f"Distance of each step. {bars(findings, 'Shaded')}"
    )


def main_reading(findings: Findings) -> str:
    """How heads read features in the pictures: in units of their size where that was measured.

    >>> from clearance.records import Report
    >>> main_reading(Findings(Report({}, {}, "", ""), "digits"))
    'rms'
    """
    found = {row.context.get("features") for row in findings.rows("mean", AUDIT, "distance")}
    found |= {one.exhibit.context.get("features") for one in findings.exhibits(AUDIT) if not is_summary(one)}
    return "rms" if "rms" in found or not found else str(min(map(str, found)))


def _of_reading(findings: Findings, name: str) -> list[ExhibitRecord]:
    reading = main_reading(findings)
    return [
        record
        for record in findings.exhibits(AUDIT, name)
        if record.exhibit.context.get("features") == reading
    ]


def _factor(own: dict[int, float], against: dict[int, float], itself: bool) -> dict[str, Any]:
    nothing: dict[str, Any] = {"factor": None, "factor_low": None, "factor_high": None, "verdict": None}
    if itself or not against or min([*own.values(), *against.values()]) <= 0:
        return nothing
    one = compare_seeds(own, against, log=True)
    if one.difference is None:
        return nothing
    return {
        "factor": _exp(one.difference),
        "factor_low": _exp(one.low),
        "factor_high": _exp(one.high),
        "verdict": one.verdict,
    }


def _exp(value: float | None) -> float | None:
    return None if value is None else float(np.exp(value))


Verdicts = dict[str, str]  # rival: whether it moves farther, less far, or is inconclusive
OTHERS = (
    ("after calibration", "empirical", "calibrated"),
    ("counted by changed predictions, without labels", "model", "as trained"),
    ("by plain distance between weights", "euclidean", "as trained"),
)
CONFIDENCE = (
    "The paper's measure is small wherever last layers are confident, whether or not they moved little; the table "
    "therefore shows other measures, too."
)


def confidence(findings: Findings) -> list[Markup]:
    """A paragraph about what the paper's measure says, and where the others take it back.

    A method is said to move less far only where the 95 % interval of the paired ratio over seeds lies on one
    side of 1.
    """
    record = stored(findings, AUDIT, DISTANCES)
    rows = [] if record is None else [row for row in rows_of(record) if row["layer"] == "all"]
    known = {
        (row["metric"], row["temperature"]): _verdicts(rows, row)
        for row in rows
        if row["features"] == main_reading(findings)
    }
    paper = known.get(("empirical", "as trained"), {})
    if not paper:
        return []
    best = reference(findings)
    sentences = [_of_paper(best, paper), escape(CONFIDENCE)]
    ahead = [rival for rival, verdict in paper.items() if verdict == "farther"]
    for words, metric, temperature in OTHERS:
        verdicts = known.get((metric, temperature), {})
        sentences += _of_other(best, ahead, verdicts, words)
    return [Markup(" ").join(sentences)]


def _verdicts(rows: list[dict[str, Any]], like: dict[str, Any]) -> Verdicts:
    """What a measure says of each rival: a ratio's "worse" is a longer way than the reference's."""
    words = {"worse": "farther", "better": "less far"}
    keys = ("metric", "features", "temperature")
    return {
        row["method"]: words.get(row["verdict"], "inconclusive")
        for row in rows
        if row["verdict"] is not None and all(row[key] == like[key] for key in keys)
    }


def _of_paper(best: str, verdicts: Verdicts) -> Markup:
    """Says "A move less far than B; the seeds do not separate them from C." of the last layers of each."""
    whose = Markup("the last layers of {}").format(strong(best))
    parts = []
    for outcome in ("farther", "less far", "inconclusive"):
        rivals = [strong(rival) for rival, verdict in verdicts.items() if verdict == outcome]
        if not rivals:
            continue
        if outcome == "inconclusive":
            parts.append(
                Markup("the seeds do not separate {} from those of {}").format(whose, listed(rivals))
            )
        else:
            how = "less far" if outcome == "farther" else "farther"
            subject = whose if not parts else "they"
            parts.append(Markup("{} move {} than those of {}").format(subject, how, listed(rivals)))
        whose = Markup("them")
    return Markup("As the paper measures it, ") + Markup("; ").join(parts) + Markup(".")


def _of_other(best: str, ahead: list[str], verdicts: Verdicts, words: str) -> list[Markup]:
    """Where another measure turns round, or does not carry, what the paper's says."""
    turned = [strong(rival) for rival in ahead if verdicts.get(rival) == "less far"]
    open_ = [strong(rival) for rival in ahead if verdicts.get(rival) == "inconclusive"]
    name = strong(best)
    found = []
    if turned:
        start = Markup("But {} those of {} move less far than those of {}: ").format(
            words, listed(turned), name
        )
        found.append(start + Markup("there {} is ahead by confidence only.").format(name))
    if open_:
        first = words[0].upper() + words[1:]
        found.append(Markup("{}, the seeds do not separate {} from {}.").format(first, name, listed(open_)))
    return found


WIDE, NARROW = (5.9, 3.9), (4.9, 3.6)
ORDINALS = ("first", "second", "third", "fourth", "fifth")
WHAT = (
    "Two sets of last layers are trained on the same frozen network from the same first weights: one with all "
    "training images, one with a single image of each class. If the features separate the classes well, the second "
    "hardly has to differ from the first. The distance is measured along the straight line between them, in steps, "
    "each counted by how much it changes the predictions."
)
MEASURES = (
    ("as in the paper, features as they are", ("empirical", "raw", "as trained")),
    ("as in the paper, features brought to one scale", ("empirical", "rms", "as trained")),
    ("the same, after calibration", ("empirical", "rms", "calibrated")),
    ("by changed predictions, without labels", ("model", "rms", "as trained")),
    ("plain distance of weights", ("euclidean", "rms", "as trained")),
)


def geodesic_section(findings: Findings) -> Section | None:
    """Fig. 3 of the paper, and the same way in other measures."""
    pictures = [one for one in (_layers(findings), _path(findings)) if one is not None]
    steps = Row(_segments(findings), "features", "Step by step, layer by layer", cited("Fig. 3 a to c"))
    parts = [Row(pictures), steps, _measures(findings), _rises(findings)]
    return section("How far the last layers move", [WHAT, *confidence(findings)], parts)


def _layers(findings: Findings) -> Picture | None:
    record = stored(findings, AUDIT, DISTANCES)
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
    record = stored(findings, AUDIT, PATH)
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
    record = stored(findings, AUDIT, SEGMENTS)
    if record is None:
        return []
    rows = rows_of(record)
    whole = stored(findings, AUDIT, DISTANCES)
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
    record = stored(findings, AUDIT, DISTANCES)
    if record is None:
        return None
    rows = [row for row in rows_of(record) if row["layer"] == "all"]
    columns = {
        name: {row["method"]: _times(row) for row in rows if _measure(row) == measure}
        for name, measure in MEASURES
    }
    against = method_name(reference(findings))
    title, foot = "The whole distance in several measures", ""
    if len(findings.methods) > 1:
        title += f": how many times as far as with {against}"
        foot = (
            "Large: how many times as far, the geometric mean over seeds of the ratio, with its interval. In small "
            f"print: the distance, mean over seeds; for {against} only that."
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
    wanted = {"features": main_reading(findings), "temperature": "as trained"}
    columns = {
        title: means(findings, AUDIT, name, **wanted)
        for title, name in (
            ("from end to end", "path_error_rise"),
            ("to the worst place", "worst_path_error"),
        )
    }
    return by_method(findings, "How much the error rises along the way", columns)


def _main(findings: Findings, record: ExhibitRecord) -> list[dict[str, Any]]:
    """The distances in the paper's measure, in the reading of features that the pictures have."""
    wanted = ("empirical", main_reading(findings), "as trained")
    return [row for row in rows_of(record) if _measure(row) == wanted]


def _measure(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["metric"], row["features"], row["temperature"]


def _layer_name(layer: str) -> str:
    if layer == "all":
        return "all together"
    at = int(layer) - 1 if layer.isdecimal() else len(ORDINALS)
    return f"{ORDINALS[at]} layer" if at < len(ORDINALS) else f"layer {layer}"


PAGE = AuditPage(
    title="How far the last layers move",
    reading=(
        "Shorter is better: last layers trained on few images that end up far from those trained on all images have"
        " learned something else."
    ),
    place=40,
    glossary={
        "distance": Term(
            "Distance between two sets of last layers",
            "Last layers trained on all images and last layers trained on one image of each class start from the "
            "same weights. The straight way between them is cut into equal steps; the lengths of the steps are "
            "squared, added up, and the root is taken. A step is long where it changes the predictions much; the "
            "unit is the nat, about 1.44 bits.",
            "Lower is better: one image of each class is almost as good as all of them. "
            "Compare methods, never single values: more steps make the number smaller.",
            "As the paper measures it, a step counts little wherever predictions are confident, even if the weights"
            " moved far; untrained last layers lie close together, too. Compare it with the errors and the other "
            "measures.",
        ),
        "length": Term(
            "Length of the way between them",
            "The sum of the lengths of the same steps.",
            "Lower is better. It hardly depends on how many steps there are.",
            "There may be a shorter way than the straight one; this is its upper bound.",
        ),
        "path_error_rise": Term(
            "Rise in errors from end to end",
            "The error at the one-image end of the way, minus that at the all-images end.",
            "Close to zero is better: one image of each class is enough.",
            "It says nothing about the places in between.",
            difference=True,
        ),
        "worst_path_error": Term(
            "Rise in errors to the worst place",
            "The largest error anywhere on the way, minus that at the all-images end.",
            "Close to zero is better: the error does not rise anywhere on the way.",
            "It is never below zero, because the way begins at the all-images end.",
            difference=True,
        ),
        "diverged_heads": Term(
            "Ends of a way that failed to train",
            "How many of the ways have an end whose training diverged. They count as infinitely long.",
            "Zero is right.",
            "It depends on how they were trained, not only on the network.",
        ),
    },
    section=geodesic_section,
    over_seeds={DISTANCES: distances, PATH: mean_path, SEGMENTS: mean_segments},
    drawn=(
        "path_error",
        "segments",
    ),
)
