"""The parts of a page about one audit each: there when measured, made of stored numbers and of nothing else."""

import math
from dataclasses import replace

import pytest

from clearance.records.store import exhibit_file
from clearance.report.audit_page import Row
from clearance.report.audits import geodesic, sections
from clearance.report.audits.co_adaptation import main_curve
from clearance.report.drawing import bands
from clearance.report.page import further_pictures
from report.section_parts import (
    TITLES,
    altered,
    cells_of,
    findings_of,
    not_in_tables,
    only,
    pictures_of,
    tables_of,
    term_of,
    values_in,
)


@pytest.mark.parametrize("audit", TITLES)
def test_a_section_is_there_just_when_its_audit_was_made(paper, undrawn, audit):
    assert [section.title for section in sections(findings_of(only(paper, audit)))] == [TITLES[audit]]
    others = [one for one in TITLES if one != audit]
    found = [section.title for section in sections(findings_of(only(paper, *others)))]
    assert found == [TITLES[one] for one in others]


def test_every_table_prints_the_means_of_its_records(paper, undrawn):
    expected = [
        ("geodesic", "distance", {"layer": "all", "metric": "model", "features": "rms"}),
        ("geodesic", "path_error_rise", {"features": "rms"}),
        ("low_dimension", "lda_eigenvalue", {"class": "0", "split": "test", "regulariser": 1e-3}),
        ("low_dimension", "threshold_error", {"class": "0", "chosen_on": "train"}),
        ("low_dimension", "effective_rank", {"class": "mean"}),
        ("deeper_cut", "error", {"head": "class mean", "samples": 10}),
        ("neural_collapse", "nc3", {}),
        ("churn", "worst_class_disagreement", {"samples": 100, "differ_in": "images"}),
        ("new_classes", "error", {"head": "retrained", "per_class": 5}),
    ]
    assert not_in_tables(paper, "foca", *expected) == []


def test_a_table_with_a_mean_over_classes_counts_every_class(paper, undrawn):
    report = only(paper, "low_dimension")
    changed = altered(report, "foca", ("low_dimension", "lda_eigenvalue", {"class": "7", "split": "test"}))
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
    shown = [part for section in sections(findings_of(paper)) for part in tables_of(section)]
    assert shown
    for part in shown:
        assert part.columns[-1] == "Training time and memory"
        assert part.lines[1].cells[-1].count("×") == 2


def test_every_place_in_the_text_of_a_table_is_filled(paper, undrawn):
    shown = [part for section in sections(findings_of(paper)) for part in tables_of(section)]
    assert any("how many times as far" in str(part.title) for part in shown)
    assert not [part.foot for part in shown if "{" in f"{part.title}{part.foot}"]


def test_a_reader_of_the_paper_is_told_what_to_compare(paper, undrawn):
    found = {section.title: section for section in sections(findings_of(paper))}
    moved, axes = found[TITLES["geodesic"]], found[TITLES["low_dimension"]]
    cited = [part.cite for part in (*moved.parts, *axes.parts) if isinstance(part, Row)]
    cited += [one.cite for one in pictures_of(moved)]
    named = [f"Compare {what} of Sato et al. (2019)." for what in ("Fig. 3 a to c", "Fig. 3 d", "Fig. 4")]
    assert set(named) <= set(cited)
    assert [" Table 1 " in part.foot for part in tables_of(axes)] == [True, False]
    assert [one.cite for one in (main_curve(findings_of(paper)),) if one] == [
        "Compare Fig. 2 of Sato et al. (2019)."
    ]


def test_the_whole_way_is_dashed_across_its_steps(paper, undrawn, monkeypatch):
    seen = []

    def watched(rows, x, methods, labels, **rest):
        seen.append((x, rows, rest.get("dashed", ())))
        return bands(rows, x, methods, labels, **rest)

    monkeypatch.setattr(geodesic, "bands", watched)
    findings = findings_of(only(paper, "geodesic"))
    sections(findings)
    steps = [one for one in seen if one[0] == "segment"]
    assert len(steps) == 3
    wanted = {"metric": "empirical", "features": "rms", "temperature": "as trained"}
    for layer, (_, rows, dashed) in enumerate(steps, start=1):
        assert {row["layer"] for row in rows} == {f"layer {layer}"}
        for method in ("plain", "foca"):
            total = findings.row("mean", "geodesic", "distance", method=method, layer=str(layer), **wanted)
            across = [(row["segment"], row["mean"]) for row in dashed if row["method"] == method]
            assert total is not None
            assert across == [(1, pytest.approx(total.value)), (15, pytest.approx(total.value))]


def test_no_exhibit_is_drawn_twice(paper, undrawn):
    findings = findings_of(paper)
    assert further_pictures(findings) == []
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


def test_every_new_number_has_an_entry(paper):
    found = {(one.measurement.audit, one.measurement.name) for one in paper.records}
    assert {audit for audit, _ in found} > set(TITLES)
    assert all(map(term_of, found))


def test_a_broken_network_is_shown_as_such(paper, undrawn):
    def broken(record):
        one = record.measurement
        bad = record.method == "foca" and one.unit in ("ratio", "nats")
        return replace(record, measurement=replace(one, value=math.inf)) if bad else record

    findings = findings_of(replace(paper, records=tuple(map(broken, paper.records))))
    assert [section.title for section in sections(findings)] == list(TITLES.values())
    assert any("∞" in cell for cell in cells_of(sections(findings)[:1]))
