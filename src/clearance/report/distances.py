"""How far the last layers move, over seeds: distances with their ratios, errors on the way, segment by segment."""

from typing import Any

import numpy as np

from clearance.records.record import ExhibitRecord
from clearance.records.summary import compare
from clearance.report.findings import Findings
from clearance.report.over_seeds import bars, curves, is_summary, middle, summary_exhibit, values
from clearance.report.reference import reference

AUDIT = "geodesic"
DISTANCES, PATH, SEGMENTS = "distances", "mean_path_error", "mean_segments"
SETTINGS = ("metric", "layer", "features", "temperature")


def distances(findings: Findings) -> ExhibitRecord | None:
    """Every distance of every method with its factor to the reference's: a row for each.

    `factor` is the geometric mean over seeds of the paired ratios, with its 95 % t interval (of logarithms);
    None where a distance is not above 0.

    >>> from clearance.records import Report
    >>> distances(Findings(Report({}, {}, "", ""), "digits")) is None
    True
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
                **middle(list(own.values()), 0.0),
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
        if record.exhibit.context.get("features") == reading and not is_summary(record)
    ]


def _factor(own: dict[int, float], against: dict[int, float], itself: bool) -> dict[str, Any]:
    nothing: dict[str, Any] = {"factor": None, "factor_low": None, "factor_high": None, "verdict": None}
    if itself or not against or min([*own.values(), *against.values()]) <= 0:
        return nothing
    one = compare(own, against, log=True)
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
