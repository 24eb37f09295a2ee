"""A network that is fed wrongly is found out by what it gains when fed otherwise, and no other is."""

import dataclasses
import re

import pytest
import torch
from torch import nn

from clearance.audits import PreprocessingMismatch
from clearance.audits.preprocessing import input_ways, right_when
from clearance.data import ImageSet
from clearance.models import Classifier

pytestmark = pytest.mark.filterwarnings("error")

LEVELS = torch.linspace(0.3, 0.7, 4)  # of grey, one for each class


class Nearest(nn.Module):
    """Names the class whose level, prepared as in training, is nearest to the mean pixel."""

    def __init__(self, prepared):
        super().__init__()
        self.levels: torch.Tensor
        self.register_buffer("levels", prepared(LEVELS.view(-1, 1, 1, 1)).flatten())
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, features):
        return -self.weight * (features.mean(dim=1, keepdim=True) - self.levels).abs()


def world(channels=1, seed=0, per_class=60):
    labels = torch.arange(4).repeat(per_class)
    noise = 0.02 * torch.randn(len(labels), channels, 2, 2, generator=torch.Generator().manual_seed(seed))
    return ImageSet((LEVELS[labels, None, None, None] + noise).clamp(0, 1), labels, tuple("abcd"))


TRAIN, TEST = world(seed=0), world(seed=1)
WAYS = {
    "no normalisation": lambda x: x,
    "mean 0.5 and std 0.5": lambda x: 2 * x - 1,
    "values up to 255": lambda x: 255 * x,
    "normalised twice": lambda x: ((x - 0.8) / 0.9 - 0.8) / 0.9,
    "the images' own mean and std": lambda x: (x - TRAIN.images.mean()) / TRAIN.images.std(),
}


def found(prepared, mean=0.0, std=1.0, images=200):
    model = Classifier(nn.Flatten(), Nearest(prepared), mean=mean, std=std)
    findings = PreprocessingMismatch(images=images)(model, TRAIN, TEST)
    return findings.measurements[0], findings.exhibits[0].columns


@pytest.mark.parametrize("name", WAYS)
def test_the_way_that_it_was_trained_with_is_named(name):
    gain, columns = found(WAYS[name], mean=0.8, std=0.9)  # fed with something else
    assert columns["way"][0] == name
    assert gain.low > 0.4
    assert gain.n == 200
    assert columns["share right"][0] - columns["share right"][-1] == pytest.approx(gain.value)


def test_the_remedy_for_the_images_own_numbers_says_them():
    _, columns = found(WAYS["the images' own mean and std"], mean=0.8, std=0.9)
    mean, std = re.findall(r"--(?:mean|std) ([\d.]+\d)", columns["remedy"][0])
    assert float(mean) == pytest.approx(float(TRAIN.images.mean()), abs=0.01)
    assert float(std) == pytest.approx(float(TRAIN.images.std()), abs=0.01)


def test_test_images_that_alone_are_prepared_otherwise_show_on_the_training_images():
    model = Classifier(nn.Flatten(), Nearest(lambda x: x))
    dark = dataclasses.replace(TEST, images=TEST.images / 255)
    gain, on_train = PreprocessingMismatch()(model, TRAIN, dark).measurements
    assert (gain.name, on_train.name) == ("gain", "train_gain")
    assert gain.low is not None
    assert gain.low > 0.4
    assert on_train.high is not None
    assert on_train.high < -0.4
    gain, on_train = PreprocessingMismatch()(
        Classifier(nn.Flatten(), Nearest(WAYS["values up to 255"])), TRAIN, TEST
    ).measurements
    assert on_train.low is not None
    assert on_train.low > 0.4


@pytest.mark.parametrize(
    ("prepared", "mean", "std"), [(WAYS["mean 0.5 and std 0.5"], 0.5, 0.5), (lambda x: x, 0, 1)]
)
def test_one_that_is_fed_rightly_gains_nothing(prepared, mean, std):
    gain, columns = found(prepared, mean, std)
    assert gain.high <= 0.02
    assert columns["way"][-1] == "as it is fed now"
    assert columns["share right"][-1] > 0.95


def test_a_network_that_ignores_its_images_gains_nothing():
    gain, _ = found(lambda x: 0 * x)
    assert gain.value == 0.0
    assert gain.low == -gain.high < 0


def test_what_chooses_is_not_what_measures():
    """Where every way is luck, the best of them gains nothing on average over draws of the luck."""

    class Luck(nn.Module):
        def __init__(self, seed):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))
            self.seed = seed

        def forward(self, features):  # a hash of the pixels names the class
            mixed = torch.sin(
                features.sum(dim=1, keepdim=True) * 9973 + torch.arange(4) * (self.seed + 1) * 1.7
            )
            return torch.frac(mixed * 43758.5453).abs()

    gains = [
        PreprocessingMismatch(images=80)(
            Classifier(nn.Flatten(), Luck(seed)), TRAIN, TEST, seed=seed
        ).measurements[0]
        for seed in range(40)
    ]
    mean = sum(gain.value for gain in gains) / len(gains)
    assert abs(mean) < 0.04  # chosen and measured on the same half it is 0.1
    assert sum(gain.low is not None and gain.low > 0 for gain in gains) <= 4


def test_colours_have_three_more_ways_and_no_normalisation_is_no_other_way_where_there_is_none():
    model = Classifier(nn.Flatten(), nn.Linear(12, 4))
    names = [way.name for way in input_ways(model, world(channels=3).images)]
    assert len(names) == 6
    assert names[-1] == "the images' own mean and std"
    with torch.no_grad():
        blue_first = next(
            way for way in input_ways(model, TEST.images.expand(-1, 3, 2, 2)) if "blue" in way.name
        )
        images = torch.rand(2, 3, 2, 2)
        torch.testing.assert_close(blue_first.prepared(images), images.flip(1))


def test_logits_that_are_not_finite_are_wrong():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, features):
            return torch.full((len(features), 4), torch.nan)

    assert not right_when(Classifier(nn.Flatten(), Broken()), TEST).any()


def test_a_model_that_refuses_what_another_way_makes_is_right_on_none_of_it():
    class Strict(Nearest):
        def forward(self, features):
            if features.min() < 0 or features.max() > 1:
                raise RuntimeError("images must lie in [0, 1]")
            return super().forward(features)

    model = Classifier(nn.Flatten(), Strict(lambda x: x))
    gain = PreprocessingMismatch()(model, TRAIN, TEST).measurements[0]
    assert gain.value <= 0


def test_images_is_a_count():
    with pytest.raises(ValueError, match="`images`"):
        PreprocessingMismatch(images=0)


def test_with_one_image_of_each_class_too_the_best_way_is_named():
    colours = torch.rand(300, 3, 1, 1, generator=torch.Generator().manual_seed(0)).expand(300, 3, 2, 2)

    class Nearest(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, features):
            return -torch.cdist(features, colours.flip(1).flatten(1)) * self.weight

    data = ImageSet(colours.clone(), torch.arange(300), tuple(map(str, range(300))))
    found = PreprocessingMismatch()(Classifier(nn.Flatten(), Nearest()), data, data)
    gain = next(one for one in found.measurements if one.name == "gain")
    assert gain.value > 0.9
    assert found.exhibits[0].columns["way"][0] == "channels in the order blue, green, red"
