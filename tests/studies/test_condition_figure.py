"""Figures of studies: no method hides another, and no line joins what must not be compared."""

from typing import Any

import numpy as np
import pytest

from papers.elsayed_2018.conditions import Panel, condition_figure

METHODS = ("cross-entropy", "hinge", "margin-l2")


def drawn(scale, conditions=(68, 550, 5500), spread=0.02):
    points = {name: dict.fromkeys(conditions, (0.9, spread)) for name in METHODS}
    figure = condition_figure([Panel("all", "images", scale, points)] * 2, "right")
    axes: Any = figure.axes[0]
    return axes


@pytest.mark.parametrize("scale", ["linear", "log", "apart"])
def test_methods_stand_beside_each_other_and_conditions_in_their_order(scale):
    lines = [container.lines[0] for container in drawn(scale).containers]
    places = np.stack([line.get_xdata() for line in lines])
    assert (np.diff(places, axis=0) > 0).all()
    assert (places[-1, :-1] < places[0, 1:]).all()  # the last method of one before the first of the next


def test_a_line_only_where_conditions_are_comparable():
    assert {c.lines[0].get_linestyle() for c in drawn("apart").containers} == {"None"}
    joined = [c.lines[0].get_linestyle() for c in drawn("log").containers]
    assert joined[0] == "-"
    assert "None" not in joined
    assert "-" not in joined[1:]


def test_heights_are_percent_with_their_spread():
    axes = drawn("linear")
    assert axes.yaxis.get_major_formatter()(0.875) == "87.5 %"
    _, _, (bars,) = axes.containers[0].lines
    low, high = bars.get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((0.88, 0.92))


def test_a_method_that_one_condition_lacks_and_a_single_seed():
    points = {"plain": {0.0: (0.9, None), 0.8: (0.5, None)}, "other": {0.8: (0.6, None)}}
    figure = condition_figure([Panel("", "noise", "linear", points)], "right")
    axes: Any = figure.axes[0]
    assert [len(c.lines[0].get_xdata()) for c in axes.containers] == [2, 1]
    assert len(figure.legends[0].get_texts()) == 2
