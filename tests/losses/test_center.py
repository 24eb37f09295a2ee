"""Center loss: the update rule of the paper, and a plain gradient."""

import math
import warnings

import pytest
import torch
from torch import nn

from clearance import Outputs
from clearance.losses import CenterLoss
from clearance.losses.center import centre_shift


def outputs_of(features, classes=3):
    return Outputs(features, torch.zeros(len(features), classes), nn.Identity())


def world(count=12, width=4, classes=3):
    draws = torch.Generator().manual_seed(0)
    return (
        torch.randn(count, width, generator=draws, dtype=torch.float64),
        torch.arange(count) % (classes - 1),  # the last class is absent
        torch.randn(classes, width, generator=draws, dtype=torch.float64),
    )


def loss_at(centres, **settings):
    loss = CenterLoss(centres.shape[1], len(centres), **settings).double()
    with torch.no_grad():
        loss.centres.copy_(centres)
    return loss


def test_the_shift_is_the_papers_sum_over_samples():
    features, labels, centres = world()
    for j in range(3):
        total, count = torch.zeros(4, dtype=torch.float64), 0
        for x, y in zip(features, labels, strict=True):
            if y == j:
                total, count = total + (centres[j] - x), count + 1
        torch.testing.assert_close(centre_shift(features, labels, centres)[j], total / (1 + count))


def test_a_sum_beyond_half_precision_leaves_no_sample_out():
    features, labels = torch.full((2, 4096), 20.0, dtype=torch.float16), torch.tensor([0, 1])
    assert features.sum(dim=1).isinf().all()
    assert centre_shift(features, labels, torch.zeros(2, 4096)).unique().tolist() == [-10.0]


@pytest.mark.parametrize("rate", [0.5, 1.0])
@pytest.mark.parametrize("weight", [0.01, 100.0])
def test_p19_one_sample_moves_its_centre_by_half_the_rate_and_no_other(rate, weight):
    _, _, centres = world()
    loss = loss_at(centres, weight=weight, rate=rate)
    x = torch.tensor([[1.0, -2.0, 0.5, 4.0]], dtype=torch.float64)
    loss.after_step(outputs_of(x), torch.tensor([1]))
    expected = centres.clone()
    expected[1] += rate / 2 * (x[0] - centres[1])
    torch.testing.assert_close(loss.centres, expected, rtol=1e-15, atol=0.0)


def test_p19_the_gradient_is_that_of_features_alone():
    features, labels, centres = world()
    leaf, loss = features.requires_grad_(), loss_at(centres, weight=0.3)
    loss(outputs_of(leaf), labels).terms["center"].backward()
    expected = 0.3 * (features - centres[labels]) / len(labels)
    torch.testing.assert_close(leaf.grad, expected.detach(), rtol=1e-12, atol=0.0)
    assert list(loss.parameters()) == []
    assert loss.centres.grad is None


def test_the_gradient_variant_is_moved_by_the_optimiser():
    features, labels, centres = world()
    loss = loss_at(centres, weight=0.3, update="gradient")
    loss(outputs_of(features), labels).terms["center"].backward()
    expected = torch.zeros_like(centres).index_add_(
        0, labels, 0.3 * (centres[labels] - features) / len(labels)
    )
    torch.testing.assert_close(loss.centres.grad, expected, rtol=1e-12, atol=1e-15)
    loss.after_step(outputs_of(features), labels)
    torch.testing.assert_close(loss.centres.detach(), centres, rtol=0.0, atol=0.0)


def test_the_value_is_a_mean_of_halves():
    features, labels, centres = world()
    found = loss_at(centres, weight=0.3)(outputs_of(features), labels).terms
    total = sum(((x - centres[y]) ** 2).sum().item() / 2 for x, y in zip(features, labels, strict=True))
    assert found["center"].item() == pytest.approx(0.3 * total / len(labels), rel=1e-12)
    assert found["cross_entropy"].item() == pytest.approx(1.0986, abs=1e-4)
    alone = loss_at(centres, cross_entropy_weight=0.0)(outputs_of(features), labels)
    assert list(alone.terms) == ["center"]


def test_centres_find_the_class_means_of_features_that_stay():
    features, labels, centres = world()
    loss = loss_at(centres)
    for _ in range(100):
        loss.after_step(outputs_of(features), labels)
    for k in range(2):
        torch.testing.assert_close(loss.centres[k], features[labels == k].mean(dim=0))


def test_narrow_features_move_float32_centres():
    loss = CenterLoss(2, 3)
    loss.after_step(outputs_of(torch.ones(3, 2, dtype=torch.bfloat16)), torch.arange(3))
    assert loss.centres.dtype == torch.float32
    assert loss.centres.flatten().tolist() == [0.25] * 6


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"in_features": 0}, "`in_features` must be a whole number"),
        ({"classes": 0}, "`classes` must be"),
        ({"weight": -1.0}, "`weight` must be a finite number of at least 0"),
        ({"rate": 0.0}, r"`rate` must lie in \(0, 1\]; got 0.0"),
        ({"update": "momentum"}, "`update` must be one of 'paper', 'gradient'"),
        ({"cross_entropy_weight": -1.0}, "`cross_entropy_weight` must be"),
    ],
)
def test_settings_out_of_range_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        CenterLoss(**{"in_features": 4, "classes": 3, **settings})


def test_features_of_another_width_are_refused():
    with pytest.raises(ValueError, match=r"features must be \(B, 4\); got \(2, 5\)"):
        CenterLoss(4, 3)(outputs_of(torch.zeros(2, 5)), torch.tensor([0, 1]))


def test_a_label_without_a_centre_is_refused():
    outputs = Outputs(torch.ones(1, 2), torch.zeros(1, 10), nn.Identity())
    with pytest.raises(ValueError, match=r"`labels` must lie in 0 .. 2, .*; got 7 .. 7"):
        CenterLoss(2, 3)(outputs, torch.tensor([7]))


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_sample_that_is_no_number_does_not_move_its_centre(broken):
    features, labels = torch.tensor([[1.0, 2.0], [broken, 0.0], [3.0, 4.0]]), torch.tensor([0, 0, 1])
    kept = torch.tensor([0, 2])
    centres = torch.zeros(2, 2)
    found = centre_shift(features, labels, centres)
    assert torch.equal(found, centre_shift(features[kept], labels[kept], centres))


def test_evaluation_counts_no_batches():
    loss = CenterLoss(2, 2).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(60):
            loss(outputs_of(torch.ones(2, 2)), torch.arange(2))


def test_centres_move_with_tensors_in_place_of_outputs():
    loss = CenterLoss(2, 3)
    loss.after_step(torch.ones(3, 2), torch.arange(3))
    assert loss.centres.flatten().tolist() == [0.25] * 6
