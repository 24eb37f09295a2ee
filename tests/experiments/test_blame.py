"""A model fed with the wrong input is found out, and the right one named."""

import pytest
import torch
from torch import nn

from clearance.data import ImageSet
from clearance.data.digits import read_digits
from clearance.experiments.outside import AccuracyMissedError, check_accuracy
from clearance.models import Classifier

IMAGENET = "--mean 0.485,0.456,0.406 --std 0.229,0.224,0.225"


class Reader(nn.Module):
    """Compares its input with what it should be for each of four classes; the nearest wins."""

    def __init__(self, way):
        super().__init__()
        self.means: torch.Tensor
        self.register_buffer("means", torch.stack([way(image[None]).flatten() for image in COLOURS]))
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, features):
        return -torch.cdist(features, self.means) * self.weight


generator = torch.Generator().manual_seed(0)
COLOURS = 0.4 + 0.2 * torch.rand(6, 3, 1, 1, generator=generator).expand(6, 3, 2, 2)


def world():
    labels = torch.arange(6).repeat(40)
    noise = 0.01 * torch.randn(240, 3, 2, 2, generator=torch.Generator().manual_seed(1))
    return ImageSet((COLOURS[labels] + noise).clamp(0, 1), labels, tuple("abcdef"))


def imagenet(x):
    mean, std = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    return (x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)


WAYS = {
    "ImageNet's": (imagenet, f"ImageNet's mean and std gives .* {IMAGENET}"),
    "0.5": (lambda x: 2 * x - 1, "mean 0.5 and std 0.5 gives .*Give --mean 0.5 --std 0.5"),
    "bytes": (lambda x: 255 * x, "values up to 255 gives .*--mean 0 --std 0.003921569"),
    "blue first": (lambda x: x.flip(1), "channels in the order blue, green, red gives .*x.flip"),
}


@pytest.mark.parametrize(("way", "blamed"), WAYS.values(), ids=WAYS.keys())
def test_the_input_that_it_was_trained_with_is_named(way, blamed):
    model = Classifier(nn.Flatten(), Reader(way))
    with pytest.raises(
        AccuracyMissedError, match=f"expected 95.0%. No other audit .* probably wrong: on 240 images {blamed}"
    ):
        check_accuracy(model, world(), 0.95)


def test_a_normalisation_that_should_not_be():
    model = Classifier(nn.Flatten(), Reader(lambda x: x), mean=[0.9, 0.1, 0.5], std=0.1)
    with pytest.raises(
        AccuracyMissedError, match=r"no normalisation gives (9|100).*Leave out --mean and --std"
    ):
        check_accuracy(model, world(), 0.95)


def test_classes_in_another_order():
    reader = Reader(lambda x: x)
    reader.means = reader.means[torch.tensor([3, 4, 5, 0, 1, 2])]
    with pytest.raises(AccuracyMissedError, match=r"classes in another order .* Rename the folders"):
        check_accuracy(Classifier(nn.Flatten(), reader), world(), 0.95)


def test_wrong_names_of_the_outputs():
    reader = Reader(lambda x: x)
    reader.means = reader.means[torch.tensor([3, 4, 5, 0, 1, 2])]
    model = Classifier(nn.Flatten(), reader)
    model.order = (3, 4, 5, 0, 1, 2)
    with pytest.raises(
        AccuracyMissedError, match=r"classes in another order .* Correct the names of classes"
    ):
        check_accuracy(model, world(), 0.95)


def test_where_nothing_helps_all_suspects_are_named():
    reader = Reader(lambda x: 0 * x)  # every class alike
    with pytest.raises(
        AccuracyMissedError, match=r"most likely reason: .*--size, --crop, --interpolation and --weights"
    ):
        check_accuracy(Classifier(nn.Flatten(), reader), world(), 0.95)


def test_what_helps_too_little_is_not_all_that_is_wrong():
    """Half of the images are right once they have ImageNet's mean and std; something else is wrong, too."""
    data = world()
    labels = torch.where(torch.arange(240) // 6 % 2 == 0, data.labels, (data.labels + 1) % 6)
    half = ImageSet(data.images, labels, tuple("abcdef"))
    model = Classifier(nn.Flatten(), Reader(imagenet))
    with pytest.raises(
        AccuracyMissedError, match=r"gives 50.*still too low: check --size, --crop and --interp"
    ):
        check_accuracy(model, half, 0.95)


def test_what_was_expected_is_told_in_a_line():
    line = check_accuracy(Classifier(nn.Flatten(), Reader(lambda x: x)), world(), 0.9)
    assert line.endswith("240 images), expected 90.0%")


@pytest.mark.parametrize("expected", [0, 91.5, -1])
def test_an_accuracy_is_a_share(expected):
    with pytest.raises(ValueError, match=r"`expect_accuracy` must lie in \(0, 1\]"):
        check_accuracy(Classifier(nn.Flatten(), Reader(lambda x: x)), world(), expected)


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_the_classes_is_not_blamed_for_a_network_that_knows_nothing(seed):
    torch.manual_seed(seed)
    model = Classifier(nn.Flatten(), nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    with pytest.raises(AccuracyMissedError) as caught:
        check_accuracy(model, read_digits("test"), 0.95)
    assert "another order" not in str(caught.value)
