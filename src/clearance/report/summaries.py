"""Everything that a page draws or prints over seeds and that is no row of the summary: made afresh each time.

Such an exhibit has the method ``"summary"`` and no seed. A stored one is never read back: a record that
changes must change the page.
"""

from collections.abc import Callable
from dataclasses import replace

from clearance.records.record import ExhibitRecord
from clearance.records.store import Report
from clearance.report import (
    attacked,
    boundary,
    curve,
    cuts,
    directions,
    distances,
    epochs,
    evasions,
    sweep,
    under_attack,
)
from clearance.report.findings import FEW, Findings, datasets
from clearance.report.over_seeds import is_summary

MAKERS: dict[tuple[str, str], Callable[[Findings], ExhibitRecord | None]] = {
    (FEW, curve.NAME): curve.curve,
    (distances.AUDIT, distances.DISTANCES): distances.distances,
    (distances.AUDIT, distances.PATH): distances.mean_path,
    (distances.AUDIT, distances.SEGMENTS): distances.mean_segments,
    (directions.AUDIT, directions.TABLE): directions.table,
    (directions.AUDIT, directions.SENSITIVITY): directions.sensitivity,
    (cuts.AUDIT, cuts.NAME): cuts.cuts,
    (epochs.AUDIT, epochs.OVER): epochs.over_epochs,
    (under_attack.AUDIT, under_attack.CURVES): under_attack.over_radius,
    (under_attack.AUDIT, under_attack.ALARMS): under_attack.alarms,
    (attacked.AUDIT, attacked.OVER): attacked.attacked,
    (evasions.AUDIT, evasions.OVER): evasions.evasions,
    (boundary.AUDIT, boundary.BY_CLASS): boundary.by_class,
    (sweep.AUDIT, sweep.OVER): sweep.over_setting,
}


def with_summaries(report: Report) -> Report:
    """`report` with the exhibits over seeds of each dataset recomputed from its records.

    >>> with_summaries(Report({}, {}, "", "")).exhibits
    ()
    """
    kept = [record for record in report.exhibits if not _is_ours(record)]
    here = sweep.at_shown(report)  # one value of a setting that was swept; its curves alone see all
    made = [
        record
        for dataset in datasets(report)
        for (audit, _), make in MAKERS.items()
        if (record := make(Findings(report if audit == sweep.AUDIT else here, dataset))) is not None
    ]
    return replace(report, exhibits=(*kept, *made))


def _is_ours(record: ExhibitRecord) -> bool:
    return is_summary(record) and (record.exhibit.audit, record.exhibit.name) in MAKERS
