"""The temperature at which a head is as sure as it is right, in closed form and under rescaled logits."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from scipy.special import log_softmax

from clearance.audits import geodesic
from clearance.audits.calibration import fitted_temperature
from clearance.heads import MLP, HeadStack


def test_temperature_is_a_minimum_and_follows_the_logits():
    stream = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (200,), generator=stream)
    logits = 3 * torch.randn(200, 4, generator=stream, dtype=torch.float64) + 4 * F.one_hot(labels, 4)
    found = fitted_temperature(logits, labels)

    assert (logits.argmax(dim=1) != labels).any()

    def slow(temperature):
        return -log_softmax(logits.numpy() / temperature, axis=1)[range(200), labels.numpy()].sum()

    assert slow(found) < min(slow(found * 0.999), slow(found * 1.001))
    assert fitted_temperature(40 * logits, labels) == pytest.approx(40 * found, rel=1e-5)


def test_temperature_undoes_a_known_one():
    stream = torch.Generator().manual_seed(1)
    logits = 2 * torch.randn(20_000, 5, generator=stream, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(dim=1), 1, generator=stream)[:, 0]
    assert fitted_temperature(7 * logits, labels) == pytest.approx(7.0, rel=0.03)


def test_temperature_is_that_of_sharp_probabilities_too():
    """A calibrated world in which nearly every image is sure: one imagined image would weigh more than all of them."""
    stream = torch.Generator().manual_seed(3)
    logits = 30 * torch.randn(5000, 10, generator=stream, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(dim=1), 1, generator=stream)[:, 0]
    assert 0 < (logits.argmax(dim=1) != labels).double().mean() < 0.05
    assert fitted_temperature(logits, labels) == pytest.approx(1.0, rel=0.2)


def test_a_head_that_is_always_right_has_a_temperature():
    """Two classes, margin 1, n images right: sigmoid(1/T) = 1 - 1 / (2 (n + 1)), so T = 1 / log(2 n + 1)."""
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(25, 1)
    labels = torch.tensor([0, 1]).repeat(25)
    assert fitted_temperature(logits, labels) == pytest.approx(1 / math.log(101), rel=1e-6)


def test_calibration_does_not_see_how_sure_the_heads_were(train):
    """Heads of which each has a best temperature, that is, is right more often than by chance."""
    stream = torch.Generator().manual_seed(2)
    full = HeadStack.initialised(MLP((16, 8, 3)), 1, stream, std=0.5)
    few = HeadStack.initialised(MLP((16, 8, 3)), 2, stream, std=0.5)
    features = (train.images.flatten(1) - 0.5) / 0.05
    labels = full.predictions(features)[0]
    few = few.holding({n: v + 2 * full.parameters[n] for n, v in few.parameters.items()})
    ends = geodesic._Ends(full, few, torch.zeros(2, dtype=torch.bool))

    def surer(stack, factor):
        return stack.holding(
            {n: factor * v if n.startswith("2.") else v for n, v in stack.parameters.items()}
        )

    found = geodesic._calibrated(ends, features, labels)
    again = geodesic._calibrated(
        dataclasses.replace(ends, full=surer(full, 9.0), few=surer(few, 0.3)), features, labels
    )
    for before, after in ((found.full, again.full), (found.few, again.few)):
        for name, value in before.parameters.items():
            torch.testing.assert_close(after.parameters[name], value, rtol=1e-4, atol=1e-7, check_dtype=False)
