"""The parts of a page about one audit each: there when measured, made of stored numbers and of nothing else."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from markupsafe import Markup

from clearance.records.store import exhibit_file
from clearance.report import gallery
from clearance.report.bands import bands
from clearance.report.compact import Compact
from clearance.report.confidence import confidence
from clearance.report.directions import table
from clearance.report.distances import distances
from clearance.report.findings import Findings
from clearance.report.glossary import GLOSSARY
from clearance.report.groups import groups
from clearance.report.ledger import LONG, ledger
from clearance.report.over_seeds import rows_of
from clearance.report.sections import sections
from clearance.report.strips import strips
from clearance.report.summaries import with_summaries

TITLES = {
    "geodesic": "How far the last layers move",
    "low_dimension": "The main directions of the features",
    "deeper_cut": "Where the network is cut",
    "neural_collapse": "Are the classes points?",
    "churn": "Do rebuilt last layers agree?",
    "new_classes": "Classes that the network has never seen",
}


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures are made, but not turned into SVG, which takes a hundred times as long."""
    monkeypatch.setattr(gallery, "as_svg", lambda figure, name, title: Markup("<svg></svg>"))


def findings_of(report):
    return Findings(with_summaries(report), "digits")


def only(report, *audits):
    """The report without what other new audits found."""
    dropped = set(TITLES) - set(audits)
    records = tuple(one for one in report.records if one.measurement.audit not in dropped)
    exhibits = tuple(one for one in report.exhibits if one.exhibit.audit not in dropped)
    return replace(report, records=records, exhibits=exhibits)


def tables_of(section):
    return [part for part in section.parts if isinstance(part, Compact)]


def cells_of(found):
    return [
        cell for section in found for part in tables_of(section) for line in part.lines for cell in line.cells
    ]


def values_in(texts):
    return {float(value) for text in texts for value in re.findall(r'<data value="([^"]*)"', str(text))}


def pictures_of(section):
    return [one for part in section.parts if not isinstance(part, Compact) for one in part.pictures]


@pytest.mark.parametrize("audit", TITLES)
def test_a_section_is_there_just_when_its_audit_was_made(paper, undrawn, audit):
    assert [section.title for section in sections(findings_of(only(paper, audit)))] == [TITLES[audit]]
    others = [one for one in TITLES if one != audit]
    found = [section.title for section in sections(findings_of(only(paper, *others)))]
    assert found == [TITLES[one] for one in others]


@pytest.mark.parametrize(
    ("audit", "name", "context"),
    [
        ("geodesic", "distance", {"layer": "all", "metric": "model", "features": "rms"}),
        ("geodesic", "path_error_rise", {"features": "rms"}),
        ("low_dimension", "lda_eigenvalue", {"class": "7", "split": "test"}),
        ("low_dimension", "threshold_error", {"class": "0", "chosen_on": "train"}),
        ("low_dimension", "effective_rank", {"class": "mean"}),
        ("deeper_cut", "error", {"head": "class mean", "samples": 10}),
        ("neural_collapse", "nc3", {}),
        ("churn", "worst_class_disagreement", {"samples": 100, "differ_in": "images"}),
        ("new_classes", "error", {"head": "retrained", "per_class": 5}),
    ],
)
def test_altering_one_record_alters_its_table(paper, undrawn, audit, name, context):
    report = only(paper, audit)

    def altered(record):
        one = record.measurement
        same = (record.method, record.seed, one.audit, one.name) == ("foca", 1, audit, name)
        if not (same and context.items() <= one.context.items()):
            return record
        return replace(record, measurement=replace(one, value=one.value * 1.37))

    changed = replace(report, records=tuple(altered(record) for record in report.records))
    count = sum(one is not other for one, other in zip(report.records, changed.records, strict=True))
    assert count == 1
    before, after = (values_in(cells_of(sections(findings_of(one)))) for one in (report, changed))
    assert before != after


def test_every_number_and_file_of_a_section_is_stored(paper, undrawn):
    findings = findings_of(paper)
    known = {row.value for row in findings.report.summary} | {0.0, 1.0}
    known |= {end for row in findings.report.summary for end in (row.low, row.high) if end is not None}
    files = {exhibit_file(record): record for record in findings.report.exhibits}
    for section in sections(findings):
        for part in tables_of(section):
            mine = set(known)
            for file in part.files:
                for column in files[file].exhibit.columns.values():
                    mine |= {value for value in column if isinstance(value, float)}
            assert values_in(cell for line in part.lines for cell in line.cells) <= mine
        assert {file for picture in pictures_of(section) for file in picture.files} <= set(files)
        assert all(picture.files for picture in pictures_of(section))


def test_the_cost_stands_beside_every_gain(paper, undrawn):
    for section in sections(findings_of(paper)):
        for part in tables_of(section):
            assert part.columns[-1] == "Training time"
            assert "×" in part.lines[1].cells[-1]


def test_no_exhibit_is_drawn_twice(paper, undrawn):
    findings = findings_of(paper)
    assert gallery.further_pictures(findings) == []
    drawn = {file for section in sections(findings) for one in pictures_of(section) for file in one.files}
    for name in ("spectrum", "lda", "plane"):
        assert any(f".{name}." in file for file in drawn)


def test_one_network_has_its_sections_without_anything_to_compare(paper, undrawn):
    alone = replace(
        paper,
        records=tuple(one for one in paper.records if (one.method, one.seed) == ("plain", 0)),
        exhibits=tuple(one for one in paper.exhibits if (one.method, one.seed) == ("plain", 0)),
        runs=paper.runs[:1],
    )
    found = sections(findings_of(alone))
    assert [section.title for section in found] == list(TITLES.values())
    assert "FOCA" not in "".join(str(part.title) + str(part.foot) for one in found for part in tables_of(one))
    assert not any("×" in cell for cell in cells_of(found))
    assert not any("how many times" in str(part.title) for one in found for part in tables_of(one))


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


def test_every_new_number_has_an_entry(paper):
    found = {(one.measurement.audit, one.measurement.name) for one in paper.records}
    assert {audit for audit, _ in found} > set(TITLES)
    assert found <= set(GLOSSARY)


def test_long_groups_of_the_full_table_are_folded_and_lose_nothing(paper):
    findings = Findings(paper, "digits")
    groups_of = {group.title: group for group in ledger(findings)}
    assert [part.title for part in groups_of["As trained"].parts] == [""]
    long = groups_of["How far the last layers move"].parts
    assert [part.title for part in long][:2] == [
        "Distance between two sets of last layers",
        "Length of the way between them",
    ]
    shown = [entry for part in long for block in part.blocks for entry in block]
    means = {
        (row.name, tuple(sorted(row.context.items())))
        for row in findings.report.summary
        if row.audit == "geodesic"
    }
    counts = {key for key in means if key[0] == "diverged_heads"}
    assert len(shown) == len(means - counts) > LONG
    assert "<code>1</code>" in long[0].blocks[0][0].place


ROWS: list[dict[str, Any]] = [
    {"method": method, "x": x, "mean": mean, "low": 0.8 * mean, "high": 1.2 * mean}
    for method, factor in (("a", 1.0), ("b", 0.1))
    for x, mean in ((1, 0.5 * factor), (10, 0.2 * factor))
]


def test_bands_draw_rows_and_nothing_else():
    dashed = [{**row, "mean": 2 * row["mean"]} for row in ROWS[:2]]
    options: dict[str, Any] = {"size": (4, 3), "percent": True, "log": "xy", "dashed": dashed}
    axes: Any = bands(ROWS, "x", ["a", "b"], ("x", "y"), **options).axes[0]
    drawn = [np.asarray(line.get_ydata()) for line in axes.lines]
    np.testing.assert_allclose(drawn, [[50, 20], [100, 40], [5, 2]])
    shaded = [path.get_paths()[0].vertices[:, 1] for path in axes.collections]
    np.testing.assert_allclose([(s.min(), s.max()) for s in shaded], [(16, 60), (1.6, 6)])
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_bands_are_linear_where_a_number_is_zero():
    rows = [{**ROWS[0], "mean": 0.0}, *ROWS[1:]]
    assert bands(rows, "x", ["a", "b"], ("x", "y"), size=(4, 3), log="y").axes[0].get_yscale() == "linear"


def test_groups_draw_a_point_and_a_bar_for_each_row():
    level = ("nothing", 0.9)
    axes: Any = groups(ROWS, "x", {1: "one", 10: "ten"}, ["a", "b"], "y", size=(4, 3), level=level).axes[0]
    points = [line.get_ydata()[0] for line in axes.lines if len(line.get_ydata()) == 1]
    np.testing.assert_allclose(points, [row["mean"] for row in ROWS])
    bars = [tuple(line.get_ydata()) for line in axes.lines if len(set(line.get_ydata())) == 2]
    assert {(row["low"], row["high"]) for row in ROWS} <= set(bars)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["one", "ten"]


def test_strips_mark_the_farthest_image_of_the_class():
    columns: dict[str, list[Any]] = {
        "x": [0.5, 0.9, 0.1, 0.6],
        "y": [0, 0, 1, 2],
        "label": ["cat", "cat", "rest", "rest"],
    }
    axes: Any = strips(columns, "cat").axes[0]
    grey, coloured = (np.asarray(cloud.get_offsets()).tolist() for cloud in axes.collections)
    assert (grey, coloured) == ([[0.1, 1], [0.6, 2]], [[0.5, 0], [0.9, 0]])
    assert axes.lines[0].get_xdata()[0] == 0.5


def test_what_is_infinite_is_a_gap():
    rows = [{**ROWS[0], "mean": math.inf, "low": None, "high": None}, *ROWS[1:]]
    line: Any = bands(rows, "x", ["a", "b"], ("x", "y"), size=(4, 3), log="y").axes[0].lines[0]
    np.testing.assert_allclose(line.get_ydata(), [0.2])
    for shown in (rows, rows[:1]):
        for drawn in (
            bands(shown, "x", ["a", "b"], ("x", "y"), size=(4, 3), log="y"),
            groups(shown, "x", {1: "one"}, ["a", "b"], "y", size=(4, 3)),
        ):
            assert np.isfinite(drawn.axes[0].get_ylim()).all()


def test_a_broken_network_is_shown_as_such(paper, undrawn):
    def broken(record):
        one = record.measurement
        bad = record.method == "foca" and one.unit in ("ratio", "nats")
        return replace(record, measurement=replace(one, value=math.inf)) if bad else record

    findings = findings_of(replace(paper, records=tuple(map(broken, paper.records))))
    assert [section.title for section in sections(findings)] == list(TITLES.values())
    assert any("∞" in cell for cell in cells_of(sections(findings)[:1]))
