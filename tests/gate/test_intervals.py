"""Paired intervals: against formulas written out, coverage of the truth, and SciPy's bootstrap."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from clearance.gate.results import bootstrapped, over_seeds, paired_fractions


def test_the_interval_of_bonett_and_price():
    """Their formula, written out for 100 images of which 3 were gained and 10 lost."""
    last, now = np.zeros(100), np.zeros(100)
    now[:3] = 1
    last[3:13] = 1
    last[50:90] = now[50:90] = 1
    p01, p10 = 4 / 102, 11 / 102
    half = 1.959963984540054 * math.sqrt((p01 + p10 - (p01 - p10) ** 2) / 102)
    assert paired_fractions(last, now) == pytest.approx((p01 - p10 - half, p01 - p10 + half), abs=1e-12)


@pytest.mark.parametrize(("n", "gain", "loss"), [(20, 0.05, 0.1), (200, 0.01, 0.03), (1000, 0.002, 0.002)])
def test_it_covers_the_truth(n, gain, loss):
    generator = np.random.default_rng(0)
    drawn = generator.choice(4, (3000, n), p=[gain, loss, 0.3, 0.7 - gain - loss])
    inside = [
        low <= gain - loss <= high
        for row in drawn
        for low, high in [
            paired_fractions(np.isin(row, (1, 2)).astype(float), np.isin(row, (0, 2)).astype(float))
        ]
    ]
    assert np.mean(inside) > 0.94  # the adjusted interval errs on the wide side


def of_both(last, now):
    """Fieller's quadratic written out for the pairs and two more: the shares at which a t ratio is 1.96."""
    pairs = np.concatenate([np.stack([last, now], 1), [[0, 1], [1, 0]]])

    def excess(r):
        residual = pairs[:, 1] - (1 + r) * pairs[:, 0]
        return abs(residual.mean()) / (residual.std() / math.sqrt(len(residual))) - 1.959963984540054

    best = pairs[:, 1].mean() / pairs[:, 0].mean() - 1
    return optimize.brentq(excess, -3, best), optimize.brentq(excess, best, 9)


def test_a_relative_change_is_fiellers():
    generator = np.random.default_rng(0)
    for _ in range(20):
        last = (generator.random(60) < 0.7).astype(float)
        now = np.where(generator.random(60) < 0.2, 1 - last, last)
        assert paired_fractions(last, now, relative=True) == pytest.approx(of_both(last, now), abs=1e-6)


@pytest.mark.parametrize(
    ("before", "after", "tolerated", "n"),
    [(1.0, 0.93, 0.02, 10), (1.0, 0.96, 0.02, 20), (1.0, 0.97, 0.01, 50), (0.99, 0.975, 0.01, 100)],
)
def test_a_relative_drop_is_not_excluded_by_few_images(before, after, tolerated, n):
    """The older model right on a share of images, and the newer one wrong on some of these."""
    generator = np.random.default_rng(0)
    last = (generator.random((2000, n)) < before).astype(float)
    now = last * (generator.random((2000, n)) < after / before)
    ends = [paired_fractions(*pair, relative=True) for pair in zip(last, now, strict=True)]
    assert np.mean([low >= -tolerated for low, _ in ends]) <= 0.025


def test_overconfidence_is_not_excluded_by_few_images():
    generator = np.random.default_rng(0)
    last, wrong = np.zeros((2000, 20)), generator.random((2000, 20)) < 0.04
    now = np.where(wrong, 1.0, last)
    ends = [paired_fractions(*pair) for pair in zip(last, now, strict=True)]
    assert np.mean([high <= 0.02 for _, high in ends]) <= 0.025


@pytest.mark.parametrize("statistic", ["mean", "median"])
def test_the_bootstrap_is_that_of_scipy(statistic):
    generator = np.random.default_rng(1)
    last = generator.lognormal(size=301)
    now = 0.8 * last + 0.1 * generator.lognormal(size=301)
    measure: Any = {"mean": np.mean, "median": np.median}[statistic]
    expected = stats.bootstrap(
        (last, now),
        lambda a, b, axis: measure(b, axis=axis) / measure(a, axis=axis) - 1,
        paired=True,
        vectorized=True,
        n_resamples=4000,
        method="percentile",
        rng=np.random.default_rng(2),
    ).confidence_interval
    found = bootstrapped(last, now, statistic, relative=True)
    width = expected.high - expected.low
    assert found == pytest.approx((expected.low, expected.high), abs=0.15 * width)


def test_infinite_distances_have_a_median_and_shares_of_nothing_have_none():
    last = np.array([1.0, 2.0, 3.0, math.inf, 2.5] * 20)
    low, high = bootstrapped(last, 0.5 * last, "median", relative=True)
    assert (low, high) == (-0.5, -0.5)
    assert all(math.isnan(end) for end in bootstrapped(np.zeros(9), np.ones(9), relative=True))
    assert all(math.isnan(end) for end in paired_fractions(np.zeros(9), np.ones(9), relative=True))
    assert math.isnan(bootstrapped(np.full(9, math.inf), np.full(9, math.inf), "median")[1])


def test_over_seeds_it_is_the_paired_t_interval():
    last, now = np.array([0.10, 0.12, 0.11, 0.13]), np.array([0.13, 0.14, 0.15, 0.14])
    seeds = [dict(enumerate(values)) for values in (last, now)]
    expected = stats.ttest_rel(now, last).confidence_interval(0.95)
    assert over_seeds(*seeds, relative=False) == pytest.approx((expected.low, expected.high))
    logs = stats.ttest_rel(np.log(now), np.log(last)).confidence_interval(0.95)
    assert over_seeds(*seeds, relative=True) == pytest.approx(
        (math.exp(logs.low) - 1, math.exp(logs.high) - 1)
    )
    assert over_seeds({0: 1.0}, {0: 2.0}, relative=False) is None
    assert over_seeds({0: 0.0, 1: 1.0}, {0: 1.0, 1: 1.0}, relative=True) is None
