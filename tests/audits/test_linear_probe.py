"""What a new last layer gains: against a layer whose damage is known."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import Tensor, nn

from clearance.audits import Accuracy, LinearProbe
from clearance.audits.linear_probe import paired_interval
from clearance.data import ImageSet
from clearance.data.synthetic import GaussianClasses
from clearance.models import Classifier

pytestmark = pytest.mark.filterwarnings("error")

WORLD = GaussianClasses(class_count=3, shape=(1, 4, 4), separation=6.0, noise=0.05)


def sets() -> tuple[ImageSet, ImageSet]:
    return WORLD.images(per_class=40, seed=0), WORLD.images(per_class=50, seed=1)


def nearest_mean(order: tuple[int, ...] = (0, 1, 2)) -> Classifier:
    """The classifier of the nearest class mean, which is a linear layer."""
    train, _ = sets()
    means = torch.stack([train.images[train.labels == k].flatten(1).mean(dim=0) for k in range(3)])
    means = means[list(order)]
    return linear(means, -0.5 * means.square().sum(dim=1))


def linear(weight: Tensor, bias: Tensor) -> Classifier:
    layer = nn.Linear(16, 3)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return Classifier(nn.Flatten(), layer)


def found(model: Classifier, **settings):
    train, test = sets()
    return {m.name: m for m in LinearProbe(**settings)(model, train, test).measurements}


def test_a_sound_layer_has_nothing_to_gain():
    gain = found(nearest_mean())["gain"]
    assert abs(gain.value) < 0.02
    assert gain.low <= 0.0 <= gain.high


def test_a_layer_that_takes_two_classes_for_each_other_gains_their_images_back():
    """Two of three classes are swapped: two thirds of the images are wrong, and a new layer is right on them."""
    model = nearest_mean(order=(1, 0, 2))
    gain = found(model)["gain"]
    assert gain.value == pytest.approx(2 / 3, abs=0.03)
    assert gain.low > 0.5


def test_gain_is_the_own_error_less_that_of_the_new_layers():
    model = Classifier(nn.Flatten(), nn.Linear(16, 3))
    found_by_accuracy = Accuracy()(model, *sets()).measurements
    (own,) = [m.value for m in found_by_accuracy if (m.name, m.context["split"]) == ("error", "test")]
    numbers = found(model)
    assert numbers["gain"].value == pytest.approx(own - numbers["error"].value, abs=1e-12)
    assert numbers["error"].n == 5
    assert numbers["gain"].n == 150


def test_the_interval_is_that_of_paired_images():
    """One fresh layer that is right everywhere: differences are the own errors, a sample of zeros and ones."""
    train, test = sets()
    model = nearest_mean()
    wrong = torch.zeros(len(test))
    wrong[:15] = 1
    flipped = torch.where(wrong.bool(), (test.labels + 1) % 3, test.labels)
    numbers = {
        m.name: m
        for m in LinearProbe(heads=1)(model, train, ImageSet(test.images, flipped, test.classes)).measurements
    }
    # own layer and new one are wrong on the same relabelled images: nothing is gained
    assert numbers["gain"].value == pytest.approx(0.0, abs=0.02)
    damaged = linear(torch.zeros(3, 16), torch.tensor([1.0, 0.0, 0.0]))  # calls everything the first class
    gain = {m.name: m for m in LinearProbe(heads=1)(damaged, train, test).measurements}["gain"]
    share = 2 / 3 - 0.0
    half = 1.96 * math.sqrt(share * (1 - share) / 149)
    assert gain.value == pytest.approx(share, abs=0.02)
    assert gain.high is not None
    assert gain.low is not None
    assert gain.high - gain.low == pytest.approx(2 * half, rel=0.05)


@pytest.mark.parametrize("wrong", [{"heads": 0}, {"lr": 0.0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}`"):
        LinearProbe(**wrong)


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


def test_it_covers_what_it_says():
    stream = np.random.default_rng(0)
    chances, images, draws = (0.04, 0.01, 0.95), 150, 2000
    covered = 0
    for _ in range(draws):
        gained, lost, same = stream.multinomial(images, chances)
        _, low, high = paired_interval(differences(gained, lost, same))
        covered += low <= chances[0] - chances[1] <= high
    assert covered / draws > 0.94
