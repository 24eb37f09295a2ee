"""Heads that stop early are gradient heads of twenty steps."""

from dataclasses import replace

import pytest
import torch

from clearance.heads import (
    EarlyStoppedHeads,
    GradientHeads,
    HeadTraining,
)
from clearance.losses.squared_error import squared_error
from heads.weak_cases import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    CASES,
    same,
)


def test_early_stopped_heads_are_gradient_heads_of_twenty_steps():
    case = CASES["early stopped"]
    features, labels = case.batches()
    twenty = GradientHeads(replace(GradientHeads().training, steps=20))
    assert same(case.draw(features, labels), case.draw(features, labels, twenty))
    own = (HeadTraining(steps=7, lr=0.02), 0.3, squared_error)
    stopped, gradient = (
        case.draw(features, labels, heads, least_unit=torch.tensor(9.0))
        for heads in (EarlyStoppedHeads(*own), GradientHeads(*own))
    )
    assert same(stopped, gradient)
    assert not same(stopped, case.draw(features, labels))


def test_early_stopped_heads_share_the_checks_of_gradient_heads():
    with pytest.raises(ValueError, match="`init_std` must be a finite number above 0"):
        EarlyStoppedHeads(init_std=0.0)
