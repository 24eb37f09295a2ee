"""The best threshold, against every threshold there is."""

import itertools
import math

import numpy as np
import pytest
import torch

from clearance.audits.low_dimension import Threshold, best_threshold


def slow(scores, positive):
    """The smallest error over every cut between distinct scores, in both orientations."""
    places = sorted(set(scores))
    cuts = [-math.inf, *[(a + b) / 2 for a, b in itertools.pairwise(places)], math.inf]
    errors = []
    for cut in cuts:
        called = [score > cut for score in scores]
        wrong = sum(c != p for c, p in zip(called, positive, strict=True))
        errors += [wrong, len(scores) - wrong]
    return min(errors) / len(scores)


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_4_6_error_is_the_smallest_of_all(levels):
    """With many equal scores, some, and none."""
    draws = torch.Generator().manual_seed(levels)
    for count in range(1, 40):
        scores = torch.randint(levels, (count,), generator=draws).double() - levels / 2
        positive = torch.rand(count, generator=draws) < 0.3 + 0.4 * (scores > 0)
        found = best_threshold(scores, positive)
        assert found.error == slow(scores.tolist(), positive.tolist())
        assert found.error_on(scores, positive) == found.error
        assert found.error <= float(min(positive.double().mean(), 1 - positive.double().mean())) + 1e-12


def test_either_side_may_be_positive():
    scores = torch.tensor([0.0, 1.0, 3.0, 7.0])
    above = torch.tensor([False, False, True, True])
    assert best_threshold(scores, above) == Threshold(2.0, True, 0.0)
    assert best_threshold(scores, ~above) == Threshold(2.0, False, 0.0)


def test_a_line_that_says_nothing_calls_all_alike():
    found = best_threshold(torch.zeros(5), torch.tensor([True, False, False, False, True]))
    assert found.error == 0.4
    assert math.isinf(found.value)
    assert best_threshold(torch.arange(3.0), torch.ones(3, dtype=torch.bool)).error == 0.0


def test_neighbouring_floats_are_parted():
    lower = torch.tensor(0.1, dtype=torch.float64)
    scores = torch.stack([lower, torch.nextafter(lower, lower + 1)])
    found = best_threshold(scores, torch.tensor([False, True]))
    assert found.error == found.error_on(scores, torch.tensor([False, True])) == 0.0


def test_huge_scores_have_a_finite_middle():
    scores = torch.tensor([-1.0e308, 1.0e308], dtype=torch.float64)
    found = best_threshold(scores, torch.tensor([False, True]))
    assert found.error_on(scores, torch.tensor([False, True])) == 0.0


def test_error_on_other_scores_is_a_count():
    rng = np.random.default_rng(0)
    scores, positive = rng.normal(size=50), rng.random(50) < 0.5
    expected = np.mean((scores <= 0.2) != positive)
    found = Threshold(0.2, False, 0.0).error_on(torch.tensor(scores), torch.tensor(positive))
    assert found == pytest.approx(expected)
