"""What a page puts together over seeds, against the same worked out from the measurements."""

from dataclasses import replace

import numpy as np
import pytest

from clearance.report.audits.geodesic import confidence, distances
from clearance.report.audits.low_dimension import table
from clearance.report.findings import Findings
from clearance.report.over_seeds import rows_of
from report.section_parts import findings_of, only


def by_seed(report, method, name, **context):
    found: dict[int, list[float]] = {}
    for record in report.records:
        one = record.measurement
        if (record.method, one.name) == (method, name) and context.items() <= one.context.items():
            found.setdefault(record.seed, []).append(one.value)
    return [found[seed] for seed in sorted(found)]


def test_factors_are_geometric_means_of_paired_ratios(paper):
    findings = Findings(paper, "digits")
    record = distances(findings)
    assert record is not None
    context = {"metric": "model", "layer": "2", "features": "raw", "temperature": "as trained"}
    (row,) = [one for one in rows_of(record) if one["method"] == "plain" and context.items() <= one.items()]
    plain, foca = (np.ravel(by_seed(paper, name, "distance", **context)) for name in ("plain", "foca"))
    assert row["factor"] == pytest.approx(np.exp(np.mean(np.log(plain / foca))), rel=1e-12)
    assert row["factor_low"] < row["factor"] < row["factor_high"]
    assert row["mean"] == pytest.approx(plain.mean(), rel=1e-12)


def test_the_paper_s_table_averages_classes_inside_a_seed(paper):
    record = table(Findings(paper, "digits"))
    assert record is not None
    rows = {(one["method"], one["quantity"], one["on"], one["classes"]): one for one in rows_of(record)}
    ratios = by_seed(paper, "foca", "lda_eigenvalue", split="test", regulariser=1e-3)
    assert {len(seed) for seed in ratios} == {10}
    mean = rows["foca", "lda_eigenvalue", "test", "mean over classes"]
    assert mean["mean"] == pytest.approx(np.mean(ratios), rel=1e-12)
    half = 4.302652729911275 * np.mean(ratios, axis=1).std(ddof=1) / 3**0.5
    assert mean["high"] - mean["mean"] == pytest.approx(half, rel=1e-9)
    first = rows["foca", "lda_eigenvalue", "test", "first class"]
    assert first["mean"] == pytest.approx(np.mean(ratios, axis=0)[0], rel=1e-12)


def test_by_confidence_only_is_said_just_where_another_measure_turns_round(paper):
    def scaled(record):
        one = record.measurement
        euclidean = one.name == "distance" and one.context["metric"] == "euclidean"
        if not (euclidean and record.method == "foca"):
            return record
        return replace(record, measurement=replace(one, value=one.value / 10))

    (turned,) = confidence(findings_of(only(paper, "geodesic")))
    assert "by plain distance between weights those of <b>plain training</b> move less far" in turned
    assert turned.count("by confidence only") == 1
    report = only(paper, "geodesic")
    (kept,) = confidence(findings_of(replace(report, records=tuple(map(scaled, report.records)))))
    assert "As the paper measures it, the last layers of <b>FOCA</b> move less far" in kept
    assert "confidence only" not in kept
