"""Every point drawn is in an exhibit, drawings repeat, and any kind of exhibit can be drawn."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection

from clearance.records.record import ExhibitRecord, RunNote
from clearance.records.store import Report
from clearance.report import drawing
from clearance.report.audits import with_summaries
from clearance.report.audits.co_adaptation import LATER, USUAL, curve, partial_data
from clearance.report.audits.training import MOST_RUNS, MOST_STEPS, training_curves, training_pictures
from clearance.report.drawing import MOST_POINTS, apart, labelled_cloud
from clearance.report.findings import Findings
from clearance.report.svg import as_svg
from clearance.vocabulary import Exhibit, Outcome

SIZE = (5.0, 3.0)


def made(findings):
    record = curve(findings)
    assert record is not None
    return record


def pairs(x, y):
    return {(round(float(a), 9), round(float(b), 9)) for a, b in zip(x, y, strict=True)}


def test_errors_of_a_few_in_ten_thousand_are_on_the_picture():
    errors = [0.0004, 0.0003, 0.0002]
    columns: dict[str, Any] = {
        "method": ["plain"] * 3, "head": ["retrained"] * 3, "cut": [USUAL] * 3, "samples": [10, 100, 1000],
        "error": errors,
        "low": errors, "high": errors, "sets": [5] * 3, "spread": [0.0] * 3,
    }  # fmt: skip
    axes = partial_data(columns, "retrained", ["plain"], SIZE).axes[0]
    low, high = axes.get_ylim()
    assert low < 0.02 < 0.04 < high
    assert len([tick for tick in axes.get_yticks() if low <= tick <= high]) >= 1


def test_partial_data_draws_the_exhibit_and_nothing_else(comparison):
    findings = Findings(comparison, "digits")
    columns = made(findings).exhibit.columns
    axes: Any = partial_data(columns, "retrained", findings.methods, SIZE).axes[0]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    wanted = [row for row in rows if row["head"] in ("retrained", "nearest pixel")]
    known = pairs([row["samples"] for row in wanted], [100 * row["error"] for row in wanted])
    own = {round(100 * row["error"], 9) for row in rows if row["head"] == "own"}
    drawn, dashed = set(), set()
    for line in axes.lines:
        if line.get_transform() == axes.transData and line.get_marker() not in ("_", "|"):
            drawn |= pairs(*line.get_data())
        elif len(line.get_ydata()) == 2:
            dashed.add(round(float(line.get_ydata()[0]), 9))
    assert {point for point in drawn if point in known} == known
    assert dashed == own
    ends = {
        round(100 * row[end], 6) for row in wanted if row["head"] == "retrained" for end in ("low", "high")
    }
    bars = [
        segment
        for bar in axes.collections
        if isinstance(bar, LineCollection)
        for segment in bar.get_segments()
    ]
    assert {round(float(y), 6) for segment in bars for _, y in segment} == ends


def test_the_first_method_is_drawn_at_both_cuts(paper):
    findings = Findings(paper, "digits")
    columns = made(findings).exhibit.columns
    assert {"plain", "foca"} <= {
        m for m, cut in zip(columns["method"], columns["cut"], strict=True) if cut == LATER
    }
    axes: Any = partial_data(columns, "class mean", findings.methods, SIZE).axes[0]
    (line,) = [one for one in axes.lines if "later" in str(one.get_label())]
    assert line.get_label() == "plain training, cut one layer later"
    wanted = findings.rows("mean", "deeper_cut", "error", method="plain", head="class mean")
    known = pairs([row.context["samples"] for row in wanted], [100 * row.value for row in wanted])
    assert pairs(*line.get_data()) == known
    (usual,) = [one for one in axes.lines if one.get_label() == "plain training"]
    assert not pairs(*usual.get_data()) & known


def test_curve_is_made_from_the_measurements(comparison):
    columns = made(Findings(comparison, "digits")).exhibit.columns
    errors = [
        record.measurement.value
        for record in comparison.records
        if record.method == "foca"
        and record.measurement.name == "error"
        and record.measurement.context.get("head") == "linear"
        and record.measurement.context["samples"] == 100
    ]
    (row,) = [
        row
        for row in zip(
            *(columns[name] for name in ("method", "head", "samples", "error", "seeds")), strict=True
        )
        if row[:3] == ("foca", "linear", 100)
    ]
    assert row[3] == pytest.approx(np.mean(errors), rel=1e-14)
    assert row[4] == 3


def test_one_seed_has_bars_over_repetitions(single):
    record = made(Findings(single, "digits"))
    columns = record.exhibit.columns
    at = columns["samples"].index(10)
    assert columns["high"][at] - columns["error"][at] == pytest.approx(0.2 * columns["error"][at])
    assert "repetitions" in record.exhibit.caption


@pytest.mark.parametrize("seed", range(4))
def test_names_are_moved_apart_and_no_farther_than_needed(seed):
    rng = np.random.default_rng(seed)
    sizes = np.stack([0.04 + 0.1 * rng.random(10), np.full(10, 0.06)], axis=1)
    places = 0.5 + 0.08 * rng.standard_normal((10, 2))  # ten names where there is room for three
    found = apart(places, sizes)
    touching = (np.abs(found[:, None] - found[None]) < (sizes[:, None] + sizes[None]) / 2 - 1e-6).all(axis=2)
    assert not (touching & ~np.eye(10, dtype=bool)).any()
    assert (found >= sizes / 2 - 1e-12).all()
    assert (found <= 1 - sizes / 2 + 1e-12).all()
    assert np.abs(found - places).max() < 0.35
    free = np.array([[0.2, 0.2], [0.8, 0.8]])
    np.testing.assert_allclose(apart(free, sizes[:2]), free, atol=2e-6)


def test_classes_at_one_place_have_names_that_can_be_read():
    columns: dict[str, Any] = {
        "x": [0.0, 0.0, 0.0, 9.0],
        "y": [0.0, 0.0, 0.0, 9.0],
        "label": ["a", "b", "c", "d"],
    }
    drawn = labelled_cloud(columns, ["a", "b", "c", "d"])
    drawn.draw_without_rendering()  # only then have boxes their places
    names = {text.get_text(): text for text in drawn.axes[0].texts}
    assert list(names) == ["a", "b", "c", "d"]
    boxes = [text.get_bbox_patch().get_window_extent() for text in names.values()]  # type: ignore[union-attr]
    assert not any(one.overlaps(other) for k, one in enumerate(boxes) for other in boxes[:k])
    assert [tuple(text.xy) for text in names.values()] == [(0, 0), (0, 0), (0, 0), (9, 9)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("count", [5, 240, 3 * MOST_POINTS + 1])
def test_features_draw_points_of_the_exhibit(count):
    rng = np.random.default_rng(count)
    columns = {
        "x": rng.standard_normal(count).tolist(),
        "y": rng.standard_normal(count).tolist(),
        "label": [("cat", "dog $x$", "7")[k % 3] for k in range(count)],
    }
    axes = labelled_cloud(columns, ["7", "cat", "dog $x$"]).axes[0]
    clouds = [cloud.get_offsets() for cloud in axes.collections if isinstance(cloud, PathCollection)]
    drawn = pairs(*np.concatenate(clouds).T)
    assert drawn <= pairs(columns["x"], columns["y"])
    assert len(drawn) == min(count, -(-count // -(-count // MOST_POINTS)))
    assert len(clouds) == 3


def test_training_curves_leave_gaps_where_nothing_was_recorded():
    columns: dict[str, Any] = {"step": [0, 10, 20, 30], "loss": [None, float("nan"), 1.0, 0.5]}
    line: Any = training_curves([("a", columns)], ["a"], SIZE).axes[0].lines[0]
    np.testing.assert_allclose(line.get_ydata(), [np.nan, np.nan, 1.0, 0.5])
    np.testing.assert_array_equal(line.get_xdata(), columns["step"])


def test_of_many_runs_the_first_are_drawn():
    def run(method, seed):
        columns = {"step": [0, 1, 2], "loss": [2.3, 1.0 + seed, 0.5]}
        return ExhibitRecord(
            "digits", method, seed, Exhibit("training", "curve", "curve", columns, "Training.")
        )

    seeds = {"plain": MOST_RUNS + 5, "foca": 2}
    notes = [RunNote(m, s, Outcome.FINISHED, "finished") for m, count in seeds.items() for s in range(count)]
    shown = tuple(run(note.method, note.seed) for note in notes)
    (drawn,) = training_pictures(
        Findings(Report({}, {}, "", "", exhibits=shown, runs=tuple(notes)), "digits")
    )
    assert len(drawn.files) == MOST_RUNS + 2
    assert all(f"plain.seed{seed}." in name for seed, name in enumerate(drawn.files[:MOST_RUNS]))
    assert "of each method the first ones" in drawn.caption


def test_long_training_curves_are_thinned_not_smoothed():
    step = np.arange(5000)
    loss = np.random.default_rng(0).random(5000)
    line: Any = (
        training_curves([("a", {"step": list(step), "loss": list(loss)})], ["a"], SIZE).axes[0].lines[0]
    )
    assert 200 < len(line.get_xdata()) <= MOST_STEPS
    assert pairs(*line.get_data()) <= pairs(step, loss)


def test_zero_errors_are_drawn_on_a_linear_axis():
    columns: dict[str, Any] = {
        "method": ["a", "a"], "head": ["h", "h"], "cut": [USUAL, USUAL], "samples": [10, 100],
        "error": [0.1, 0.0], "low": [None, None], "high": [None, None], "seeds": [1, 1],
    }  # fmt: skip
    assert partial_data(columns, "h", ["a"], SIZE).axes[0].get_yscale() == "linear"
    columns["error"] = [0.1, 0.01]
    assert partial_data(columns, "h", ["a"], SIZE).axes[0].get_yscale() == "log"


KINDS: dict[Any, dict[str, list[Any]]] = {
    "curve": {"x": [0, 1, 2], "y": [1.0, None, 3.0], "name": ["a", "b", "c"]},
    "histogram": {"centre": [0.5, 1.5], "count": [3, 4]},
    "scatter": {"x": [0, 1], "y": [2, 3]},
    "heatmap": {"a": [0.1, 0.2], "b": [0.3, 0.4]},
    "images": {"image": [[[0.0, 1.0], [0.5, 0.2]], [[[0.1]], [[0.2]], [[0.3]]]]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_is_drawn_and_the_drawing_repeats(kind):
    shown = Exhibit("other", "thing", kind, KINDS[kind], "A thing.")
    first, second = (as_svg(drawing.draw(shown), kind, "A <thing>") for _ in range(2))
    assert first == second
    assert "A &lt;thing&gt;" in first
    assert "#a000" not in first
    assert not re.search(r"#0[147a]0[258b]0[369c]", first)


def test_drawn_values_of_the_generic_kinds():
    bars: Any = drawing.draw(Exhibit("a", "b", "histogram", KINDS["histogram"], "")).axes[0].patches
    assert [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in bars] == [(0.5, 3), (1.5, 4)]
    mesh: Any = drawing.draw(Exhibit("a", "b", "heatmap", KINDS["heatmap"], "")).axes[0].collections[0]
    np.testing.assert_array_equal(mesh.get_array().reshape(2, 2), [[0.1, 0.3], [0.2, 0.4]])
    line = drawing.draw(Exhibit("a", "b", "curve", KINDS["curve"], "")).axes[0].lines[0]
    np.testing.assert_array_equal(line.get_ydata(), [1.0, np.nan, 3.0])


def test_names_with_dollar_signs_are_not_mathematics():
    columns: dict[str, Any] = {"x": [0, 1], "y": [2, 3], "label": ["$\\frac$", "b"]}
    assert r"$\frac$" in as_svg(drawing.draw(Exhibit("a", "b", "scatter", columns, "")), "s", "t")
    sheet: dict[str, Any] = {"image": [[[0.5]]], "label": ["$\\frac$"]}
    assert r"$\frac$" in as_svg(drawing.draw(Exhibit("a", "b", "images", sheet, "")), "s", "t")
    axes = training_curves([("$\\frac$", {"step": [0], "loss": [1.0]})], ["$\\frac$"], SIZE)
    assert r"$\frac$" in as_svg(axes, "s", "t")


def test_exhibit_of_a_method_called_summary_is_not_taken_for_the_summary(comparison):
    fake = ExhibitRecord("digits", "summary", 0, Exhibit("co_adaptation", "partial_data", "curve", {}, ""))
    found = with_summaries(replace(comparison, exhibits=(fake,))).exhibits
    assert found[0] == fake
    assert len(found) == 2


def test_names_of_lines_that_the_page_itself_gives_are_whole(paper):
    findings = Findings(paper, "digits")
    columns = made(findings).exhibit.columns
    drawn = str(as_svg(partial_data(columns, "retrained", findings.methods, SIZE), "curve", "Errors"))
    assert "plain training, cut one layer later" in drawn
    assert "nearest image, no network" in drawn
