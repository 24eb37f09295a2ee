"""Telling abnormal scores from normal ones: slow loops over pairs, and thresholds whose guarantee can be counted."""

import math

import pytest
import torch

from clearance.audits.rejection import detection, p_values, rejection_threshold


def drawn(seed=0, normal=37, abnormal=23):
    """Scores with ties."""
    stream = torch.Generator().manual_seed(seed)
    return (
        (3 * torch.randn(normal, generator=stream) + 2).round(),
        (3 * torch.randn(abnormal, generator=stream)).round(),
    )


def slow(normal, abnormal):
    normal, abnormal = normal.tolist(), abnormal.tolist()
    pairs = [(a < n) + 0.5 * (a == n) for a in abnormal for n in normal]
    # average precision: walk thresholds from the most abnormal score up, each adds recall at its precision
    precision_sum, found = 0.0, 0
    for limit in sorted(set(normal + abnormal)):
        hits = sum(a <= limit for a in abnormal)
        precision_sum += (hits - found) * hits / (hits + sum(n <= limit for n in normal))
        found = hits
    passing = [t for t in normal + abnormal if sum(n >= t for n in normal) >= 0.95 * len(normal)]
    return {
        "auroc": sum(pairs) / len(pairs),
        "aupr": precision_sum / len(abnormal),
        "fpr95": sum(a >= max(passing) for a in abnormal) / len(abnormal),
    }


@pytest.mark.parametrize("seed", range(5))
def test_all_three_are_those_of_slow_loops(seed):
    assert detection(*drawn(seed)) == pytest.approx(slow(*drawn(seed)), rel=1e-12)


def test_no_unit_matters():
    normal, abnormal = drawn()
    assert detection((normal / 7).exp(), (abnormal / 7).exp()) == detection(normal, abnormal)
    assert detection(1e30 * normal, 1e30 * abnormal) == detection(normal, abnormal)


def test_what_is_no_number_is_the_least_likely():
    normal, abnormal = torch.tensor([1.0, 2.0]), torch.tensor([math.nan, -math.inf])
    assert detection(normal, abnormal) == {"auroc": 1.0, "aupr": 1.0, "fpr95": 0.0}
    assert detection(torch.tensor([math.nan]), torch.tensor([-math.inf]))["auroc"] == 0.5
    assert detection(abnormal, normal)["auroc"] == 0.0


@pytest.mark.parametrize("count", [1, 18, 19, 20, 39, 50, 199])
def test_a_threshold_rejects_at_most_one_in_twenty_of_what_is_drawn_alike(count):
    """Leave each of n + 1 exchangeable scores out in turn: the rest's threshold rejects it in at most 5 % of cases."""
    scores = torch.randn(count + 1, generator=torch.Generator().manual_seed(count))
    rejected = [
        float(scores[i]) < rejection_threshold(torch.cat([scores[:i], scores[i + 1 :]]))
        for i in range(count + 1)
    ]
    assert sum(rejected) == math.floor(0.05 * (count + 1) + 1e-9)


def test_with_ties_it_rejects_fewer():
    assert rejection_threshold(torch.zeros(100)) == 0.0
    assert not (torch.zeros(5) < rejection_threshold(torch.zeros(100))).any()


def test_p_values_are_counted_and_agree_with_the_threshold():
    held_out, scores = drawn(3, normal=79, abnormal=60)
    found = p_values(held_out, scores)
    slow_values = [(1 + sum(h <= s for h in held_out.tolist())) / 80 for s in scores.tolist()]
    assert found.tolist() == pytest.approx(slow_values)
    assert torch.equal(found <= 0.05, scores < rejection_threshold(held_out))


def test_another_share_may_be_lost():
    scores = torch.arange(99.0)
    assert [rejection_threshold(scores, share) for share in (0.01, 0.1, 0.5)] == [0.0, 9.0, 49.0]
    assert rejection_threshold(scores[:8], 0.1) == -math.inf
    assert rejection_threshold(torch.tensor([math.nan, 3.0, 4.0]), 0.5) == 3.0
    assert rejection_threshold(torch.tensor([2.0]), 1 - 1e-12) == 2.0


def test_what_gives_no_threshold_is_refused():
    for scores in (torch.zeros(0), torch.zeros(4, 3)):
        with pytest.raises(
            ValueError, match=r"`held_out` must be the scores of at least one image, \(n,\); got"
        ):
            rejection_threshold(scores)
    for share in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"`rejected` must lie in \(0, 1\)"):
            rejection_threshold(torch.zeros(4), share)
