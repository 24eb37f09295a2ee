"""Each corruption does what it says, more so at a higher severity, and the errors are those of corrupted images."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from clearance.audits import CommonCorruptions
from clearance.audits._audit import right_after
from clearance.audits.common_corruptions import CORRUPTIONS, SEVERITIES, strength_in_words
from clearance.data import ImageSet
from clearance.models import Classifier

pytestmark = pytest.mark.filterwarnings("error")


def stream():
    return torch.Generator().manual_seed(0)


def photograph(count=4, channels=3, side=32):
    """Smooth random colours, not near black or white."""
    coarse = torch.rand(count, channels, 6, 6, generator=stream())
    return 0.2 + 0.6 * torch.nn.functional.interpolate(coarse, size=(side, side), mode="bicubic").clamp(0, 1)


def applied(name, severity, images):
    corruption = CORRUPTIONS[name]
    return corruption.apply(images, corruption.strengths[severity - 1], stream())


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_higher_severity_changes_more(name):
    images = photograph()
    changes = [float((applied(name, severity, images) - images).square().mean()) for severity in SEVERITIES]
    assert all(0 < low < high for low, high in itertools.pairwise(changes))


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 8, 8), (1, 1, 1), (3, 5, 9), (2, 4, 4), (4, 6, 6)])
def test_any_shape_stays_what_it_is(name, shape):
    if shape[0] != 3 and CORRUPTIONS[name].colours:
        return
    images = torch.rand(2, *shape, generator=stream())
    found = applied(name, 5, images)
    assert found.shape == images.shape
    assert found.dtype == torch.float32
    assert found.isfinite().all()


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_how_many_images_are_changed_at_once_changes_none(name):
    images, at_once = photograph(6, side=5), stream()
    corruption = CORRUPTIONS[name]
    whole = corruption.apply(images, corruption.strengths[2], at_once)
    in_parts = stream()
    parts = [corruption.apply(part, corruption.strengths[2], in_parts) for part in images.split([1, 3, 2])]
    assert torch.equal(torch.cat(parts), whole)


def test_noise_has_the_standard_deviation_that_it_says():
    grey = torch.full((1, 3, 200, 200), 0.5)
    assert float(applied("noise", 5, grey).std()) == pytest.approx(0.10, rel=0.02)


def test_contrast_keeps_the_mean_and_scales_the_deviation():
    images = photograph()
    found = applied("contrast", 2, images)
    torch.testing.assert_close(found.mean(dim=(2, 3)), images.mean(dim=(2, 3)))
    torch.testing.assert_close(found.std(dim=(2, 3)), 0.5 * images.std(dim=(2, 3)))


def test_brightness_raises_the_value_and_keeps_hue_and_saturation():
    from matplotlib.colors import rgb_to_hsv

    images = photograph().clamp(max=0.6)
    before, after = (
        rgb_to_hsv(some.permute(0, 2, 3, 1).double().numpy())
        for some in (images, applied("brightness", 3, images))
    )
    np.testing.assert_allclose(after[..., :2], before[..., :2], atol=1e-5)
    np.testing.assert_allclose(after[..., 2], before[..., 2] + 0.15, atol=1e-5)
    assert float(applied("brightness", 3, torch.zeros(1, 3, 4, 4)).mean()) == pytest.approx(0.15)


def test_grey_at_five_has_no_colour():
    found = applied("grey", 5, photograph())
    torch.testing.assert_close(found[:, 0], found[:, 2])


def test_blur_equals_a_sum_with_a_gaussian():
    point = torch.zeros(1, 1, 33, 33)
    point[0, 0, 16, 16] = 1
    found = applied("blur", 5, point)[0, 0]
    width = 33 / 32
    weights = torch.exp(-(torch.arange(-16, 17).double() ** 2) / (2 * width**2))
    weights /= weights.sum()
    torch.testing.assert_close(found.double(), weights[:, None] * weights, atol=2e-4, rtol=0)


def test_a_rotation_turns_by_its_angle_also_in_a_wide_image():
    height, width = 65, 97
    y, x = torch.meshgrid(torch.arange(height) - 32.0, torch.arange(width) - 48.0, indexing="ij")
    image = torch.exp(-((x - 16) ** 2 + y**2) / 20)[None, None]
    found = applied("rotation", 5, image)[0, 0]
    middle = [float((found * place).sum() / found.sum()) for place in (x, y)]
    assert math.hypot(*middle) == pytest.approx(16, abs=0.2)
    assert abs(math.degrees(math.atan2(middle[1], middle[0]))) == pytest.approx(16, abs=0.5)


def test_a_shift_moves_by_its_share_of_the_side():
    y, x = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    images = torch.exp(-((x - 32) ** 2 + (y - 32) ** 2) / 20).expand(20, 1, 64, 64)
    found = applied("shift", 5, images)[:, 0]
    middles = torch.stack(
        [(found * place).sum(dim=(1, 2)) / found.sum(dim=(1, 2)) for place in (x, y)], dim=1
    )
    lengths = (middles - 32).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full((20,), 12.0), atol=0.1, rtol=0)
    assert float((middles - 32).mean(dim=0).norm()) < 8  # in all directions


def test_pixelation_makes_squares():
    assert len(applied("pixelation", 5, torch.rand(1, 1, 30, 30))[0, 0].unique()) <= 19**2


class Bright(nn.Module):
    """Class 1 where the mean pixel is above a half."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, features):
        mean = features.mean(dim=1, keepdim=True) - 0.5
        return self.weight * torch.cat([-mean, mean], dim=1)


def found(images=40, **settings):
    levels = torch.tensor([0.45, 0.55]).repeat(30)
    data = ImageSet(
        levels[:, None, None, None].expand(-1, 1, 8, 8).contiguous(), torch.arange(60) % 2, ("dark", "light")
    )
    return CommonCorruptions(images=images, **settings)(Classifier(nn.Flatten(), Bright()), data, data)


def test_errors_are_those_of_the_corrupted_images():
    findings = found()
    errors = {
        (m.context["corruption"], m.context["severity"]): m
        for m in findings.measurements
        if m.name == "error"
    }
    assert errors["none", 0].value == 0
    assert errors["none", 0].n == 40
    assert errors["brightness", 1].value == pytest.approx(0.0)  # up to 0.50, which is not above a half
    assert errors["brightness", 2].value == errors["brightness", 5].value == 0.5
    assert errors["blur", 5].value == errors["contrast", 1].value == 0
    (mean,) = [m for m in findings.measurements if m.name == "mean_error"]
    assert mean.value == pytest.approx(np.mean([m.value for key, m in errors.items() if key[1]]))
    assert mean.low < mean.value < mean.high
    curves = {exhibit.name: exhibit.columns for exhibit in findings.exhibits}
    assert curves["curves"]["brightness"][2:] == [0.5] * 4
    assert "grey" not in curves["curves"]
    assert len(curves["strengths"]["accuracy"]) == 40


def test_logits_that_are_not_finite_are_wrong():
    model = Classifier(nn.Flatten(), nn.Linear(4, 2))
    nn.init.constant_(next(model.head.parameters()), math.nan)
    data = ImageSet(torch.rand(6, 1, 2, 2), torch.arange(6) % 2, ("a", "b"))
    assert not right_after(model, data, lambda images: images).any()


def test_strengths_are_those_of_cifar10_c():
    assert strength_in_words("contrast", 5) == "x0.15"
    assert strength_in_words("JPEG", 5) == "quality 40"
    assert strength_in_words("shift", 1) == "3.1 % of the side"
    with pytest.raises(ValueError, match="`images`"):
        CommonCorruptions(images=0)


def test_two_images_without_an_error_do_not_prove_that_there_are_none():
    class BrightOrDark(nn.Module):
        def forward(self, images):
            mean = images.mean(dim=(1, 2, 3))
            return torch.stack([0.5 - mean, mean - 0.5], dim=1)

    images = torch.stack([torch.full((1, 8, 8), 0.1), torch.full((1, 8, 8), 0.9)])
    data = ImageSet(images, torch.arange(2), ("dark", "bright"))
    model = Classifier(BrightOrDark(), nn.Identity())
    (mean,) = [m for m in CommonCorruptions()(model, data, data).measurements if m.name == "mean_error"]
    assert (mean.value, mean.low) == (0, 0)
    assert mean.high is not None
    assert mean.high > 0.5


def test_few_images_that_are_wrong_under_one_change_leave_much_open():
    """Of 40 images a few are wrong once: how many are wrong under every change, 40 images do not tell."""
    shares = torch.zeros(40, dtype=torch.float64)
    shares[:4] = 1 / 45
    high = CommonCorruptions()._mean(shares).high
    assert high is not None
    assert high > 0.05


@pytest.mark.parametrize("count", [40, 200])
def test_the_interval_of_the_mean_covers_it(count):
    draws = torch.Generator().manual_seed(0)
    wrong = (torch.rand(1000, count, generator=draws) < 0.02).double()  # under every change alike
    made = [CommonCorruptions()._mean(row) for row in wrong]
    ends = [(m.low, m.high) for m in made if m.low is not None and m.high is not None]
    assert sum(low <= 0.02 <= high for low, high in ends) > 930
