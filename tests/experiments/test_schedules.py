"""The course of a run's step size: in epochs, or in updates where the recipe counts those."""

import math

import pytest
import torch

from clearance.experiments.build import build_schedule
from clearance.experiments.recipe import Recipe


def rates(recipe, length):
    build = build_schedule(recipe)
    assert build is not None
    stepper = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule, found = build(stepper), []
    for _ in range(length):
        found.append(stepper.param_groups[0]["lr"])
        stepper.step()
        schedule.step()
    return found


@pytest.mark.parametrize("counted", [{"epochs": 8}, {"steps": 8}])
def test_a_tenth_after_half_and_after_three_quarters(counted):
    found = rates(Recipe(schedule="tenths", **counted), 8)
    assert found == pytest.approx([1, 1, 1, 1, 0.1, 0.1, 0.01, 0.01])


@pytest.mark.parametrize("counted", [{"epochs": 1}, {"steps": 1}])
def test_the_shortest_run_begins_with_its_own_step_size(counted):
    assert rates(Recipe(schedule="tenths", **counted), 1) == [1.0]
    assert rates(Recipe(schedule="cosine", **counted), 1) == [1.0]


@pytest.mark.parametrize("counted", [{"epochs": 5}, {"steps": 5}])
def test_half_a_cosine(counted):
    expected = [(1 + math.cos(math.pi * k / 5)) / 2 for k in range(5)]
    assert rates(Recipe(schedule="cosine", **counted), 5) == pytest.approx(expected)
    assert build_schedule(Recipe(schedule="constant", **counted)) is None
