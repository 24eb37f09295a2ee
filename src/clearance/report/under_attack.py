"""Accuracy under attack over seeds: for each method and norm over the radius, and what speaks against it."""

from typing import Any

from clearance.records.record import ExhibitRecord
from clearance.report.findings import Findings
from clearance.report.over_seeds import bars, curves, is_summary, rows_of, summary_exhibit

AUDIT = "robustness"
CURVES, ALARMS = "accuracy_over_radius", "alarms_over_seeds"
# How a measurement and a column of the runs' own exhibits are called, for each kind of attack.
KINDS = {
    "worst case": "robust_accuracy",
    "cross-entropy attacks": "cross_entropy_attack_accuracy",
    "noise": "noise_accuracy",
    "transfer": "transfer_accuracy",
}


def over_radius(findings: Findings) -> ExhibitRecord | None:
    """A row for each method, norm, kind of attack and radius; at radius 0 nothing is attacked.

    >>> from clearance.records import Report
    >>> over_radius(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    rows = [
        {
            "method": row.method,
            "norm": row.context["norm"],
            "attacks": kind,
            "radius": row.context["epsilon"],
            "mean": row.value,
            "low": row.low,
            "high": row.high,
            "seeds": row.seeds,
        }
        for kind, name in KINDS.items()
        for row in findings.rows("mean", AUDIT, name)
    ]
    shaded = bars(findings, "Shaded") or "Shaded: 95 % interval over images."
    return summary_exhibit(findings, AUDIT, CURVES, [*_unattacked(findings), *rows], shaded) if rows else None


def _unattacked(findings: Findings) -> list[dict[str, Any]]:
    """The accuracy on the same images without an attack, which the runs' exhibits begin with."""
    records = _of_runs(findings, "under_attack")
    return [
        {
            "method": row["method"],
            "norm": norm,
            "attacks": kind,
            "radius": 0.0,
            **{key: row[key] for key in ("mean", "low", "high", "seeds")},
        }
        for norm in dict.fromkeys(one.exhibit.context.get("norm") for one in records)
        for kind in KINDS
        for row in curves(
            [one for one in records if one.exhibit.context.get("norm") == norm],
            "radius",
            kind,
            findings.methods,
            most=1.0,
        )
        if row["radius"] == 0
    ]


def alarms(findings: Findings) -> ExhibitRecord | None:
    """A row for each method, norm and reason: from which radius to which, at how many runs, and its largest share.

    >>> from clearance.records import Report
    >>> alarms(Findings(Report({}, {}, "", ""), "digits")) is None
    True
    """
    seen: dict[tuple[Any, ...], list[tuple[Any, dict[str, Any]]]] = {}
    for method in findings.methods:
        for record in _of_runs(findings, "alarms"):
            if record.method == method:
                for row in rows_of(record):
                    what = (method, record.exhibit.context.get("norm"), row["about"], row["reason"])
                    seen.setdefault(what, []).append((record.seed, row))
    rows = [
        {
            **dict(zip(("method", "norm", "about", "reason"), what, strict=True)),
            "from": min(row["radius"] for _, row in found),
            "to": max(row["radius"] for _, row in found),
            "share": max(row["share"] for _, row in found),
            "runs": float(len({seed for seed, _ in found})),
        }
        for what, found in seen.items()
    ]
    return summary_exhibit(findings, AUDIT, ALARMS, rows, "What speaks against accuracies under attack.")


def _of_runs(findings: Findings, name: str) -> list[ExhibitRecord]:
    return [record for record in findings.exhibits(AUDIT, name) if not is_summary(record)]
