"""Derived rows against numbers worked out by hand."""

import math
import random

import pytest
from scipy import stats

from clearance.records.derived import derive
from clearance.records.record import Record
from clearance.vocabulary import Measurement


def record(method, seed, value, audit="accuracy", unit="fraction", better="lower", **rest):
    found = Measurement(audit, "error", value, unit, n=100, better=better, context={"split": "test"}, **rest)
    return Record("digits", method, seed, found)


def only(rows, kind, method):
    (row,) = [row for row in rows if row.kind == kind and row.method == method]
    return row


def test_mean_keeps_within_apart_from_over_seeds():
    rows = derive([record("a", 0, 0.1, spread=0.03), record("a", 1, 0.3, spread=0.04)])
    mean = only(rows, "mean", "a")
    assert mean.value == pytest.approx(0.2)
    assert mean.spread == pytest.approx(math.sqrt(0.02))
    assert mean.within == pytest.approx(math.sqrt((0.0009 + 0.0016) / 2))
    assert (mean.seeds, mean.n, mean.interval) == (2, 100, "t over seeds")


def named(name, unit, low, high, **rest):
    """One method's mean over two seeds with these values."""
    found = [Measurement("a", name, value, unit, n=9, better="lower", **rest) for value in (low, high)]
    (mean,) = derive([Record("digits", "a", seed, one) for seed, one in enumerate(found)])
    return mean


HALF = 12.706204736174694 * 0.02  # of the t interval of 0.01 and 0.05, or of any two numbers as far apart


def test_the_interval_of_an_error_stays_where_errors_are():
    (mean,) = derive([record("a", 0, 0.01), record("a", 1, 0.05)])
    assert (mean.low, mean.value) == (0.0, pytest.approx(0.03))
    assert mean.high == pytest.approx(0.03 + HALF, rel=1e-8)


@pytest.mark.parametrize("name", ["disagreement", "threshold_error", "first_axis_share", "worst_path_error"])
def test_the_interval_of_any_fraction_ends_at_none_and_at_all(name):
    low, high = named(name, "fraction", 0.01, 0.05), named(name, "fraction", 0.95, 0.99)
    assert (low.low, low.high) == (0.0, pytest.approx(0.03 + HALF, rel=1e-8))
    assert (high.low, high.high) == (pytest.approx(0.97 - HALF, rel=1e-8), 1.0)


@pytest.mark.parametrize("unit", ["ratio", "nats", "seconds", "MiB", "count"])
def test_the_interval_of_an_amount_ends_at_nothing_only(unit):
    assert named("distance", unit, 0.01, 0.05).low == 0.0
    assert named("distance", unit, 0.95, 0.99).high == pytest.approx(0.97 + HALF, rel=1e-8)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("gap", "fraction"),
        ("path_error_rise", "fraction"),
        ("angle", "degrees"),
        ("log_likelihood", "nats"),
        ("first_order_distance", "ratio"),
    ],
)
def test_the_interval_of_what_may_be_negative_is_left_alone(name, unit):
    below = -0.04 if name == "log_likelihood" else 0.0  # a number below zero shows what a unit does not
    mean = named(name, unit, 0.01 + below, 0.05 + below)
    assert mean.low == pytest.approx(0.03 + below - HALF, rel=1e-8)


def test_a_difference_of_errors_may_be_negative():
    rows = derive(
        [record(m, s, v) for m, s, v in (("a", 0, 0.2), ("a", 1, 0.3), ("b", 0, 0.1), ("b", 1, 0.3))]
    )
    found = only(rows, "difference", "b")
    assert found.value == pytest.approx(-0.05)
    assert found.low == pytest.approx(-0.05 - 12.706204736174694 * 0.05, rel=1e-8)


@pytest.mark.parametrize("unit", ["nats", "ratio", "MiB", "seconds"])
def test_amounts_have_ratios_of_their_geometric_means(unit):
    values = {("a", 0): 2.0, ("a", 1): 8.0, ("b", 0): 1.0, ("b", 1): 1.0}
    rows = derive(
        Record("digits", *key, Measurement("geodesic", "distance", value, unit, n=3, better="lower"))
        for key, value in values.items()
    )
    found = only(rows, "ratio", "b")
    assert (found.value, found.unit, found.against) == (pytest.approx(0.25), "factor", "a")
    half = 12.706204736174694 * math.log(2)  # of the logarithms of 1/2 and 1/8, whose mean is that of 1/4
    assert found.low == pytest.approx(0.25 * math.exp(-half), rel=1e-8)


@pytest.mark.parametrize("name", ["gap", "path_error_rise", "train_minus_test", "ece_debiased"])
def test_no_ratio_of_what_may_be_negative(name):
    found = [Measurement("a", name, 0.1, "fraction", n=3, better="lower") for _ in range(2)]
    rows = derive([Record("digits", method, 0, one) for method, one in zip("ab", found, strict=True)])
    assert {row.kind for row in rows} == {"mean", "difference"}


def test_no_ratio_of_values_below_0():
    rows = derive([record("a", 0, 0.1), record("b", 0, -0.1), record("a", 1, 0.2), record("b", 1, -0.2)])
    assert {row.kind for row in rows} == {"mean", "difference"}


def test_one_seed_keeps_the_interval_that_was_measured():
    found = Measurement(
        "accuracy", "error", 0.1, "fraction", 100, None, 0.05, 0.17, "lower", {"interval": "wilson 95 %"}
    )
    (mean,) = derive([Record("digits", "a", 0, found)])
    assert (mean.low, mean.high, mean.interval) == (0.05, 0.17, "wilson 95 %")
    assert "interval" not in mean.context


def test_difference_and_ratio_are_to_the_first_method_and_paired():
    rows = derive([record("a", 0, 0.2), record("a", 1, 0.4), record("b", 1, 0.2), record("b", 0, 0.05)])
    assert only(rows, "difference", "b").value == pytest.approx((-0.2 - 0.15) / 2)
    ratio = only(rows, "ratio", "b")
    assert ratio.value == pytest.approx(math.sqrt(0.5 * 0.25))
    assert (ratio.unit, ratio.against) == ("factor", "a")
    assert ratio.low < ratio.value < ratio.high


def test_zero_error_counts_as_half_a_test_image_in_a_ratio_only():
    rows = derive([record("a", 0, 0.2), record("b", 0, 0.0)])
    assert only(rows, "ratio", "b").value == pytest.approx(0.005 / 0.2)
    assert only(rows, "mean", "b").value == 0.0


def test_no_ratio_where_nothing_says_how_small_a_zero_is():
    rows = derive([record("a", 0, 0.2, audit="other"), record("b", 0, 0.0, audit="other")])
    assert {row.kind for row in rows} == {"mean", "difference"}


def test_quantities_without_a_direction_get_no_comparison():
    rows = derive([record("a", 0, 1.0, better="neither"), record("b", 0, 2.0, better="neither")])
    assert [row.kind for row in rows] == ["mean", "mean"]


def test_adjusted_p_values_are_holm_over_the_methods():
    a, b, c = (0.2, 0.25, 0.22), (0.1, 0.12, 0.13), (0.19, 0.26, 0.2)
    rows = derive(
        [
            record(name, seed, value)
            for name, numbers in (("a", a), ("b", b), ("c", c))
            for seed, value in enumerate(numbers)
        ]
    )
    raw = stats.ttest_rel(b, a).pvalue
    found = only(rows, "difference", "b")
    assert found.p == pytest.approx(raw)
    assert found.adjusted == pytest.approx(2 * raw)
    assert found.verdict == "better"
    rivals = [row for row in rows if row.kind == "rival"]
    assert {(row.method, row.against) for row in rivals} == {("b", "a"), ("b", "c")}


def test_a_method_whose_runs_failed_still_counts_in_the_family():
    """Otherwise a failure would make the others' differences significant."""
    a, b, c = (0.2, 0.25, 0.22), (0.1, 0.12, 0.13), (0.19, 0.26, 0.2)
    three = [record(n, seed, v) for n, row in (("a", a), ("b", b), ("c", c)) for seed, v in enumerate(row)]
    raw = stats.ttest_rel(b, a).pvalue
    for failed, tests in (((), 2), (("c",), 2), (("d",), 3), (("d", "e"), 4)):
        assert only(derive(three, failed=failed), "difference", "b").adjusted == pytest.approx(tests * raw)
    (rival,) = [row for row in derive(three, failed=("d",)) if row.kind == "rival" and row.against == "a"]
    assert rival.adjusted == pytest.approx(6 * raw)


def test_rivals_of_the_best_are_adjusted_for_all_pairs():
    best = [0.10, 0.11, 0.10, 0.12, 0.10]
    near = [a + b for a, b in zip(best, (0.01, 0.02, 0.015, 0.004, 0.03), strict=True)]  # p about 0.02
    values = {"best": best, "far": [0.5, 0.6, 0.5, 0.5, 0.6], "near": near, "nearly": near, "lost": [0.3]}
    rows = derive(record(method, seed, one) for method, row in values.items() for seed, one in enumerate(row))
    rivals = {row.against: row for row in rows if row.kind == "rival"}
    raw = stats.ttest_rel(best, near).pvalue
    assert rivals["near"].p == pytest.approx(raw)
    assert rivals["near"].adjusted == rivals["nearly"].adjusted == pytest.approx(9 * raw)  # "lost" counts too
    assert rivals["far"].adjusted == pytest.approx(10 * stats.ttest_rel(best, values["far"]).pvalue)
    assert (rivals["lost"].p, rivals["lost"].adjusted) == (None, None)


def test_of_equal_methods_the_best_is_rarely_told_apart():
    """At 5 % in at most 5 % of comparisons, though the best was picked by the same numbers."""
    draws, generator = 400, random.Random(0)
    told = 0
    for _ in range(draws):
        rows = derive(
            record(f"m{method}", seed, generator.gauss(0.2, 0.01))
            for method in range(12)
            for seed in range(5)
        )
        told += any(row.kind == "rival" and (row.adjusted or 1) < 0.05 for row in rows)
    assert told <= 0.05 * draws + 2 * math.sqrt(0.05 * 0.95 * draws)


def test_a_lost_seed_is_counted():
    rows = derive(
        [
            record("a", 0, 0.2),
            record("a", 1, 0.2),
            record("a", 2, 0.3),
            record("b", 0, 0.1),
            record("b", 1, 0.1),
        ]
    )
    found = only(rows, "difference", "b")
    assert (found.seeds, found.dropped) == (2, 1)


def test_rows_leave_out_what_they_do_not_say():
    (row,) = derive([record("a", 0, math.nan)])
    written = row.to_json()
    assert written["value"] == {"float": "NaN"}
    assert "verdict" not in written
    assert "low" not in written
