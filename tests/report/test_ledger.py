"""Each number stands in the row and the column where it belongs."""

from dataclasses import replace
from statistics import geometric_mean, mean
from typing import Any

import pytest
from markupsafe import Markup

from clearance.records import Record, Report
from clearance.report import render_page
from clearance.report.findings import Findings
from clearance.report.ledger import LONG, ledger
from clearance.report.tables import cost, cost_title, overview, stand_ins
from clearance.vocabulary import Measurement


@pytest.fixture(scope="module")
def findings(comparison):
    return Findings(comparison, "digits")


def measured(report, method, name, **context):
    """The mean straight from the records, without the summary."""
    return mean(
        record.measurement.value
        for record in report.records
        if (record.method, record.measurement.name) == (method, name)
        and all(record.measurement.context.get(key) == value for key, value in context.items())
    )


def entries(findings):
    return [
        entry
        for group in ledger(findings)
        for part in group.parts
        for block in part.blocks
        for entry in block
    ]


def test_each_cell_is_its_method_s_own(findings):
    own_cells = [entry for entry in entries(findings) if "pixel" not in entry.place]
    assert len(own_cells) == 2 + 4 * 4 * 2 + 3 * 2 + 3
    for entry in own_cells:
        assert [cell.mean.method for cell in entry.cells] == list(findings.methods)
        for cell in entry.cells[1:]:
            if cell.difference is not None:
                assert (cell.difference.method, cell.difference.against) == (cell.mean.method, "plain")
                assert cell.difference.context == cell.mean.context


def test_a_cell_is_the_mean_of_the_records(findings, comparison):
    (entry,) = [
        entry
        for entry in entries(findings)
        if (entry.title, entry.place, entry.samples)
        == ("Error with retrained last layers", "one linear layer", 100)
    ]
    assert entry.unit == "%"
    assert (entry.n, entry.seeds, entry.direction) == ([50], 3, "lower is better")
    for method, cell in zip(findings.methods, entry.cells, strict=True):
        expected = measured(comparison, method, "error", head="linear", samples=100)
        assert cell.mean.value == pytest.approx(expected, rel=1e-14)


def test_the_nearest_image_belongs_to_no_method(findings):
    pixels = [entry for entry in entries(findings) if "pixel" in entry.place]
    assert [entry.samples for entry in pixels] == [10, 100, 500, 1347]
    for entry in pixels:
        assert entry.cells[0].difference is None
        assert set(entry.cells[1:]) == {None}


def test_mishaps_that_never_happened_are_said_once(findings):
    idle = [name for group in ledger(findings) for name in group.idle]
    assert len(idle) == 2
    assert not any(entry.title in idle for entry in entries(findings))


def test_the_first_table_is_of_the_right_quantities(findings, comparison):
    line: Any
    for line in overview(findings):
        assert line.own.value == pytest.approx(measured(comparison, line.method, "error", split="test"))
        assert line.few.value == pytest.approx(
            measured(comparison, line.method, "error", head="retrained", samples=10)
        )
        assert line.few.low < line.few.value < line.few.high
    times: dict[str, Any] = {line.method: line.time for line in overview(findings)}
    assert times["plain"].value == pytest.approx(measured(comparison, "plain", "seconds"))
    assert (times["foca"].unit, times["foca"].against) == ("factor", "plain")


def test_memory_is_a_factor_beside_the_time(findings, comparison):
    memory: dict[str, Any] = {line.method: line.memory for line in overview(findings)}
    assert memory["plain"].value == pytest.approx(measured(comparison, "plain", "memory"))
    pairs = [
        [
            record.measurement.value
            for record in comparison.records
            if (record.method, record.measurement.name) == (method, "memory")
        ]
        for method in ("foca", "plain")
    ]
    ratios = [one / other for one, other in zip(*pairs, strict=True)]
    assert memory["foca"].value == pytest.approx(geometric_mean(ratios), rel=1e-12)
    for line in overview(findings):
        time, small = str(cost(line)).split("<small>")
        assert str(line.time.value) in time  # type: ignore[union-attr]
        assert str(memory[line.method].value) in small
    assert cost_title(overview(findings)) == "Training time and memory"


def test_one_network_is_shown_with_every_stand_in(single):
    found = Findings(single, "digits")
    rows = stand_ins(found, "model")
    assert [row.context["head"] for _, row in rows] == [
        "retrained", "linear", "class mean", "class mean, unit length", "nearest pixel",
    ]  # fmt: skip
    assert all(row.context["samples"] == 10 for _, row in rows)


def test_baseline_is_the_first_and_pixels_are_no_method(comparison):
    pixels = [
        replace(record, method="pixels")
        for record in comparison.records
        if record.measurement.context.get("head") == "nearest pixel" and record.method == "plain"
    ]
    report = replace(comparison, records=(*pixels, *comparison.records))
    assert Findings(report, "digits").methods == ("plain", "dropout", "batchnorm", "foca")


def test_long_groups_of_the_full_table_are_folded_and_lose_nothing(paper):
    findings = Findings(paper, "digits")
    groups_of = {group.title: group for group in ledger(findings)}
    assert [part.title for part in groups_of["Accuracy"].parts] == [""]
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


def test_a_difference_of_shares_is_in_points():
    numbers = [
        Measurement("set_facts", "train_minus_test", -0.012, "fraction", 100, low=-0.02, high=-0.001),
        Measurement("performance", "behind", 0.1, "fraction", 100, context={"class": "cat"}),
        Measurement("performance", "recall", 0.9, "fraction", 100, context={"class": "cat"}),
    ]
    report = Report({}, {}, "", "", tuple(Record("digits", "mine", 0, one) for one in numbers))
    units = {entry.title: entry.unit for entry in entries(Findings(report, "digits"))}
    assert units == {
        "Error on train less error on test": "points",
        "Behind the others": "points",
        "Recall": "%",
    }
    page = " ".join(Markup(render_page(report)).striptags().split())
    assert "−1.2 points −2.0 to −0.1 points" in page
    assert "−1.2 %" not in page
