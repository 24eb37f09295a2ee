"""Normalisation goes into the classifier, and what seems to normalise twice is warned of."""

import warnings

import pytest
import torch
from torch import nn

from clearance.models import wrap
from models.wrap_modules import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    ResNet,
    cnn,
)

pytestmark = pytest.mark.usefixtures("seeded")


def test_normalisation_inside(images):
    module = ResNet().eval()
    mean, std = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]
    model = wrap(module, example=images, mean=mean, std=std, verbose=False)
    normalised = torch.stack([(images[:, c] - mean[c]) / std[c] for c in range(3)], dim=1)
    torch.testing.assert_close(model(images), module(normalised))


class NormalizeLayer(nn.Module):
    def forward(self, x):
        return (x - 0.5) / 0.5


class Remembering(ResNet):
    """Keeps a mean and a std that are no normalisation."""

    def __init__(self, mean, std):
        super().__init__()
        self.mean, self.std = mean, std


class Whitened(ResNet):
    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1))
        self.std = std

    def forward(self, x):
        return super().forward((x - self.mean) / torch.as_tensor(self.std).reshape(-1, 1, 1))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Sequential(NormalizeLayer(), cnn()), "its first layer is a NormalizeLayer"),
        (lambda: Whitened([0.5, 0.4, 0.3], 0.25), "it keeps mean"),
        (lambda: nn.Sequential(Whitened([0.0], [0.2, 0.2, 0.3])), "submodule '0' keeps mean"),
    ],
)
def test_normalising_twice_is_warned_of(make, words, images):
    with pytest.warns(UserWarning, match=f"seems to normalise by itself .{words}") as caught:
        wrap(make(), example=images, mean=0.5, std=0.5, verbose=False)
    assert caught[0].filename == __file__
    wrap(make(), example=images, verbose=False)  # without mean and std: no warning, which would be an error


@pytest.mark.parametrize(
    "make",
    [
        ResNet,
        lambda: Whitened([0.0], [1.0]),
        lambda: Remembering(0.5, 0.0),  # no scale of a normalisation
        lambda: Remembering(0.5, [0.5, 0.5]),  # neither one value nor one a channel
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 4), NormalizeLayer(), nn.Linear(4, 5)),
    ],
)
def test_no_false_alarm_about_normalising_twice(make, images):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrap(make(), example=images, mean=0.5, std=0.5, verbose=False)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mean": [0.5, 0.5]}, r"`mean` must be one value or one a channel \(3 in the example\)"),
        ({"std": [0.5, 0.5]}, "`std` must be one value"),
        ({"std": 0.0}, "`std` must be above 0"),
    ],
)
def test_normalisation_must_fit_the_images(options, reason, images):
    with pytest.raises(ValueError, match=reason):
        wrap(cnn(), example=images, **options)
    with pytest.raises(ValueError, match="`std` must be above 0"):
        wrap(cnn(), example=images, std=-1.0)
