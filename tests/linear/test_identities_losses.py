"""Identities of scaled losses, of both their limits, and of temperature."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from clearance.linear import Hyperplane, error_rate
from clearance.linear.hyperplane import margins, scores
from clearance.linear.loss_scaling import large_scale_limit, scaled_loss, small_scale_limit
from clearance.linear.temperature import calibrated_temperature
from linear.worlds import clouds, some_plane  # on pytest's path

SCALES = (1e-3, 0.1, 1.0, 10.0, 1e3)


@pytest.fixture
def distances():
    x, y = clouds()
    return margins(some_plane(), x, y)


def error_distance_of(z):
    return float((-z).clamp_min(0).mean())


@pytest.mark.parametrize("scale", SCALES)
def test_i04_hinge_at_large_scale(distances, scale):
    excess = float(scaled_loss("hinge", distances, scale).mean()) - scale * error_distance_of(distances)
    wrong = float((distances <= 0).double().mean())
    between = (distances > 0) & (distances < 1 / scale)
    exact = wrong + float(torch.where(between, 1 - scale * distances, 0.0).mean())
    assert excess == pytest.approx(exact, abs=1e-9)
    assert -1e-9 <= excess <= 1 + 1e-9
    assert float(large_scale_limit("hinge", distances, scale).mean()) == pytest.approx(
        scale * error_distance_of(distances)
    )


@pytest.mark.parametrize("scale", SCALES)
def test_i04_softplus_at_large_scale(distances, scale):
    excess = scaled_loss("softplus", distances, scale) - large_scale_limit("softplus", distances, scale)
    assert_close(excess, torch.log1p(torch.exp(-scale * distances.abs())), atol=1e-9, rtol=0)
    assert 0 < float(excess.mean()) <= math.log(2)


def test_i05_hinge_at_small_scale(distances):
    scale = 1 / float(distances.max())
    linear = 1 - scale * float(distances.mean())
    assert float(scaled_loss("hinge", distances, scale).mean()) == pytest.approx(linear)
    assert float(small_scale_limit("hinge", distances, scale).mean()) == pytest.approx(linear)
    assert (
        float(scaled_loss("hinge", distances, 3 * scale).mean())
        > 1 - 3 * scale * float(distances.mean()) + 1e-3
    )


@pytest.mark.parametrize("scale", SCALES)
def test_i05_softplus_at_small_scale(distances, scale):
    excess = float(scaled_loss("softplus", distances, scale).mean()) - float(
        small_scale_limit("softplus", distances, scale).mean()
    )
    assert -1e-12 <= excess <= scale**2 * float(distances.square().mean()) / 8 + 1e-12


def test_a_scaled_loss_is_the_loss_of_the_scores():
    x, y = clouds()
    plane = some_plane()
    signed = torch.as_tensor(y) * scores(plane, x)
    assert_close(scaled_loss("softplus", margins(plane, x, y), plane.scale), nn.functional.softplus(-signed))
    assert_close(scaled_loss("hinge", margins(plane, x, y), plane.scale), nn.functional.relu(1 - signed))


def test_no_scale_changes_the_zero_one_loss(distances):
    expected = (distances <= 0).double()
    for scale in SCALES:
        assert_close(scaled_loss("zero_one", distances, scale), expected)
        assert_close(large_scale_limit("zero_one", distances, scale), expected)
    with pytest.raises(ValueError, match="no scale makes the 0-1 loss linear"):
        small_scale_limit("zero_one", distances, 1.0)


@pytest.fixture
def logits():
    return torch.randn(41, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("confidence", [0.3, 0.5, 0.95, 0.999])
def test_i18_the_calibrated_temperature_makes_the_median_that_sure(logits, confidence):
    t = calibrated_temperature(logits, confidence)
    top = [float((logits / (t * factor)).softmax(dim=1).amax(dim=1).median()) for factor in (0.9, 1, 1.1)]
    assert top[0] > top[1] > top[2]
    assert top[1] == pytest.approx(confidence, abs=1e-9)
    for factor in (50, 1e-300):
        assert calibrated_temperature(factor * logits, confidence) / factor == pytest.approx(t)


@pytest.mark.parametrize("mask", [-1e9, -1e30, -3.4e38])
def test_a_class_that_is_masked_changes_no_calibrated_temperature(logits, mask):
    masked = torch.cat([logits, torch.full((41, 1), mask, dtype=torch.float64)], dim=1)
    assert calibrated_temperature(masked) == pytest.approx(calibrated_temperature(logits))


def test_i18_weights_times_c_are_a_temperature_of_c_to_minus_the_layers():
    torch.manual_seed(0)
    widths, factor = (6, 5, 5, 3), 1.7
    layers = [nn.Linear(a, b, bias=False, dtype=torch.float64) for a, b in itertools.pairwise(widths)]
    net = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    x = torch.randn(8, 6, dtype=torch.float64)
    before = net(x).detach()
    with torch.no_grad():
        for layer in layers:
            layer.weight *= factor
    assert calibrated_temperature(net(x)) == pytest.approx(factor**3 * calibrated_temperature(before))


def test_refusals_of_temperatures():
    with pytest.raises(ValueError, match=r"`confidence` must lie in \(1/2, 1\); got 0.5"):
        calibrated_temperature([[1.0, 0.0]], 0.5)
    with pytest.raises(ValueError, match="tie for the largest"):
        calibrated_temperature([[1.0, 1.0, 0.0]] * 3, 0.9)
    with pytest.raises(ValueError, match="two columns"):
        calibrated_temperature([[1.0]], 0.9)
    with pytest.raises(ValueError, match="`scale` must be"):
        scaled_loss("hinge", [1.0], -1.0)
    with pytest.raises(ValueError, match="Did you mean 'hinge'"):
        scaled_loss("hinges", [1.0], Hyperplane.of([1.0]).scale)


def test_nothing_has_no_error_and_no_risk():
    plane = Hyperplane.of([1.0])
    with pytest.raises(ValueError, match="at least one point"):
        error_rate(plane, torch.zeros(0, 1), [])


@pytest.mark.parametrize("loss", ["zero_one", "hinge", "softplus"])
@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_distances_that_are_no_numbers_are_refused(loss, broken):
    for ask in (scaled_loss, large_scale_limit):
        with pytest.raises(ValueError, match="`z` must be finite; got"):
            ask(loss, [broken, 1.0], 1.0)
