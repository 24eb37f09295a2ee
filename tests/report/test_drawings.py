"""Rows of a summary as bands, groups and strips: what is drawn is what the rows say."""

import math
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from clearance.report.audits.low_dimension import strips
from clearance.report.drawing import bands, groups, label_logarithmic

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


def test_many_decades_have_a_number_each_whichever_way_the_axis_runs():
    """Nine decades: 2 and 5 between them would stand in one another's way."""
    shown = []
    for turned in (False, True):
        axes = Figure(figsize=(6, 4)).subplots()
        axes.set_xscale("log")
        axes.set_xlim(*((1e2, 1e-6) if turned else (1e-6, 1e2)))
        label_logarithmic(axes.xaxis)
        shown.append(sorted(axes.xaxis.get_major_locator().tick_values(1e-6, 1e2)))
    assert shown[0] == shown[1]
    assert all(math.log10(tick) == pytest.approx(round(math.log10(tick))) for tick in shown[1])


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
