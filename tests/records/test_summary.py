"""Statistics over seeds against SciPy's own tests, and by hand."""

import math
import warnings

import numpy as np
import pytest
from scipy import stats

from clearance.records.summary import compare_seeds, holm, summarise


def seeds(numbers):
    return dict(enumerate(numbers))


def random_pair(rng, count):
    return rng.uniform(0.01, 0.3, count), rng.uniform(0.01, 0.3, count)


def test_summary_by_hand():
    # 2, 4, 9: mean 5, variance (9 + 1 + 16) / 2 = 13, and t(p, 2) = (2p - 1) / sqrt(2p(1 - p)) in closed form
    over = summarise(seeds([2.0, 4.0, 9.0]))
    half = 0.95 / math.sqrt(2 * 0.975 * 0.025) * math.sqrt(13 / 3)
    assert over.mean == 5.0
    assert over.spread == pytest.approx(math.sqrt(13), rel=1e-14)
    assert (over.low, over.high) == pytest.approx((5 - half, 5 + half), rel=1e-9)  # SciPy 1.15 errs by 3e-11
    assert over.seeds == 3


def test_summary_of_one_seed_claims_nothing():
    over = summarise({7: 0.5})
    assert (over.mean, over.spread, over.low, over.high, over.seeds) == (0.5, None, None, None, 1)


def test_summary_of_no_seed_is_refused():
    with pytest.raises(ValueError, match="at least one seed"):
        summarise({})


def test_summary_with_a_number_that_is_not_finite_has_no_interval():
    over = summarise({0: 1.0, 1: math.nan})
    assert math.isnan(over.mean)
    assert over.low is None


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_comparison_is_the_paired_t_test(log, count):
    rng = np.random.default_rng(count)
    for _ in range(20):
        a, b = random_pair(rng, count)
        found = compare_seeds(seeds(a), seeds(b), log=log)
        oracle = stats.ttest_rel(np.log(a), np.log(b)) if log else stats.ttest_rel(a, b)
        interval = oracle.confidence_interval(0.95)
        assert found.p == pytest.approx(oracle.pvalue, rel=1e-9)
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
        expected = "inconclusive" if oracle.pvalue >= 0.05 else "better" if oracle.statistic < 0 else "worse"
        assert found.verdict == expected


def test_pairing_goes_by_seed_not_by_order():
    a = {0: 0.10, 1: 0.20, 2: 0.30}
    b = {2: 0.41, 0: 0.19, 1: 0.30}
    assert compare_seeds(a, b).difference == pytest.approx(-0.1)
    assert compare_seeds(a, b).verdict == "better"
    assert compare_seeds(a, {seed: b[(seed + 1) % 3] for seed in b}).verdict == "inconclusive"


def test_direction_decides_between_better_and_worse():
    a, b = seeds([0.9, 0.91, 0.92]), seeds([0.5, 0.52, 0.51])
    assert compare_seeds(a, b, better="higher").verdict == "better"
    assert compare_seeds(a, b, better="lower").verdict == "worse"


@pytest.mark.parametrize(("a", "b", "count"), [({0: 0.1}, {0: 0.9}, 1), ({0: 0.1}, {1: 0.9}, 0)])
def test_fewer_than_two_common_seeds_cannot_tell(a, b, count):
    found = compare_seeds(a, b)
    assert (found.verdict, found.p, found.low, found.seeds) == ("inconclusive", None, None, count)


def test_seeds_that_were_lost_are_counted():
    a = {0: 0.1, 1: 0.1, 2: math.nan, 3: 0.2}
    b = {0: 0.3, 1: 0.31, 2: 0.3, 4: 0.3}
    found = compare_seeds(a, b)
    assert (found.seeds, found.dropped) == (2, 3)


def test_equal_differences_leave_nothing_to_chance():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compare_seeds(seeds([1.0, 2.0]), seeds([1.0, 2.0])).verdict == "inconclusive"
        assert compare_seeds(seeds([1.0, 2.0]), seeds([2.0, 3.0])).verdict == "better"


def test_floor_stands_in_for_zero_errors():
    # half of one image in 100 is 0.005; the ratios are then 0.005 / 0.05 and 0.005 / 0.02
    found = compare_seeds(seeds([0.0, 0.001]), seeds([0.05, 0.02]), log=True, floor=0.005)
    assert found.difference == pytest.approx((math.log(0.1) + math.log(0.25)) / 2)
    with pytest.raises(ValueError, match="above 0"):
        compare_seeds(seeds([0.0, 0.001]), seeds([0.05, 0.02]), log=True)


def test_wrong_direction_is_refused():
    with pytest.raises(ValueError, match="`better`"):
        compare_seeds({0: 1.0}, {0: 2.0}, better="neither")  # type: ignore[arg-type]


def test_holm_by_hand():
    # sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1: 0.02, 0.03, 0.06, 0.04 and then never falling
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert found == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}


def test_equal_numbers_have_no_spread():
    found = summarise(dict.fromkeys(range(5), 6.9))
    assert (found.spread, found.low, found.high) == (0.0, found.mean, found.mean)
    tenth = summarise(dict.fromkeys(range(5), 5.75 * 1.2))
    assert tenth.spread == 0.0
