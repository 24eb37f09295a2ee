"""The interval of paired differences: against the sign test, the closed form of the gate, and no claim from nothing."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from clearance.audits.linear_probe import paired_interval
from clearance.gate.ruling import paired_fractions


def differences(gained: int, lost: int, same: int) -> torch.Tensor:
    return torch.tensor([1.0] * gained + [-1.0] * lost + [0.0] * same, dtype=torch.float64)


@pytest.mark.parametrize("images", [1, 10, 160, 5000])
def test_images_that_do_not_differ_leave_a_width(images):
    mean, low, high = paired_interval(torch.zeros(images))
    assert mean == 0.0
    assert low == -high
    assert high == pytest.approx(1.96 * 2**0.5 / (images + 2), rel=1e-3)


@pytest.mark.parametrize("gained", range(1, 12))
def test_a_few_images_on_one_side_claim_no_more_than_the_sign_test(gained):
    _, low, _ = paired_interval(differences(gained, 0, 300))
    assert (low > 0) == (binomtest(gained, gained, 0.5).pvalue < 0.05)


@pytest.mark.parametrize(("gained", "lost", "same"), [(4, 1, 20), (0, 0, 9), (30, 12, 400)])
def test_it_is_the_interval_by_which_the_gate_rules(gained, lost, same):
    last = np.array([0] * gained + [1] * lost + [0] * same)
    now = np.array([1] * gained + [0] * lost + [0] * same)
    _, low, high = paired_interval(differences(gained, lost, same))
    assert (low, high) == pytest.approx(paired_fractions(last, now), abs=1e-12)


def test_it_covers_what_it_says():
    stream = np.random.default_rng(0)
    chances, images, draws = (0.04, 0.01, 0.95), 150, 2000
    covered = 0
    for _ in range(draws):
        gained, lost, same = stream.multinomial(images, chances)
        _, low, high = paired_interval(differences(gained, lost, same))
        covered += low <= chances[0] - chances[1] <= high
    assert covered / draws > 0.94
