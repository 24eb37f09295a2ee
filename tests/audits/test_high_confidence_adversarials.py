"""The way to a high-confidence mistake: on linear networks, where it ends at the mirror image of the median image."""

import math

import pytest
import torch
from torch import nn

from class_planes import class_plane
from clearance.audits import HighConfidenceAdversarials
from clearance.data import ImageSet
from clearance.linear.hyperplane import signed_distances
from clearance.models import Classifier

pytestmark = pytest.mark.filterwarnings("error")

STEP = 0.002  # in the unit of pixels
SETTINGS = {"grey_levels": 255 * STEP, "steps": 400, "search": 60}


def images(count=41, seed=0):
    """Sixteen pixels about the middle, so that no step leaves [0, 1]; labelled by the network of `network`."""
    draws = torch.Generator().manual_seed(seed)
    pixels = 0.5 + 0.06 * torch.randn(count, 1, 4, 4, generator=draws).clamp(-4, 4)
    labels = network()(pixels).argmax(dim=1)
    return ImageSet(pixels, labels, ("dark", "light"))


def network(scale=1.0, classes=2):
    """Straight, with the boundary through the grey image."""
    head = nn.Linear(16, classes)
    weight = torch.randn(classes, 16, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        head.weight.copy_(scale * weight)
        head.bias.copy_(-scale * weight.sum(dim=1) / 2)
    return Classifier(nn.Flatten(), head).eval()


def found(model, data, **settings):
    made = HighConfidenceAdversarials(**{**SETTINGS, **settings})(model, data, data)
    return {m.name: m for m in made.measurements}, made.exhibits[0].columns


def median_distance(data):
    plane = class_plane(network().head, 0, 1)
    return float(signed_distances(plane, data.images.flatten(1)).abs().median())


@pytest.mark.parametrize("confidence", [0.95, 0.7])
def test_a_straight_network_is_sure_at_the_mirror_image_of_the_median_image(confidence):
    """The median image has the wanted confidence, and its mirror image the same in the other class: 2 |d| away."""
    data = images()
    numbers, _ = found(network(), data, confidence=confidence)
    middle = median_distance(data)
    assert middle > 10 * STEP
    assert 0 <= numbers["confident_distance"].value - 2 * middle <= STEP + 1e-6
    assert numbers["nearest_distance"].value == pytest.approx(middle, rel=1e-3)
    assert numbers["reached"].value == 1.0
    margins = (network()(data.images).detach() @ torch.tensor([1.0, -1.0])).abs()
    wanted = float(margins.median()) / math.log(confidence / (1 - confidence))
    assert numbers["temperature"].value == pytest.approx(wanted, rel=1e-4)


def test_outputs_that_are_no_class_are_no_target():
    head = nn.Linear(16, 4)
    with torch.no_grad():
        head.weight.copy_(torch.cat([network().head.weight, torch.zeros(2, 16)]))
        head.bias.copy_(torch.cat([network().head.bias, torch.full((2,), -1000.0)]))
    numbers, _ = found(Classifier(nn.Flatten(), head).eval(), images())
    assert numbers["reached"].value == 1.0


def test_p03_how_loud_the_logits_are_does_not_matter():
    data = images()
    small, _ = found(network(), data)
    large, _ = found(network(scale=50.0), data)
    assert large["confident_distance"].value == pytest.approx(small["confident_distance"].value, rel=1e-5)
    assert large["temperature"].value == pytest.approx(50 * small["temperature"].value, rel=1e-4)


def test_the_sheet_shows_what_was_measured():
    data = images()
    _, sheet = found(network(), data)
    assert sheet["label"] == ["dark", "light"]
    assert sheet["target"] == ["light", "dark"]
    rows = [int((data.labels == k).nonzero()[0]) for k in (0, 1)]
    torch.testing.assert_close(torch.tensor(sheet["image"]), data.images[rows], atol=1e-4, rtol=0)
    moved = torch.tensor(sheet["adversarial"])
    length = (moved - data.images[rows]).flatten(1).norm(dim=1)
    torch.testing.assert_close(torch.tensor(sheet["norm"]), length, atol=1e-3, rtol=0)
    assert all(value >= 0.95 - 1e-4 for value in sheet["target_confidence"])
    own = network()(data.images[rows]) / found(network(), data)[0]["temperature"].value
    assert sheet["confidence"] == pytest.approx(own.softmax(dim=1)[[0, 1], [0, 1]].tolist(), abs=1e-3)
    assert sheet["arrived"] == [True, True]


def test_large_pictures_are_made_smaller_in_their_own_shape():
    draws = torch.Generator().manual_seed(0)
    data = ImageSet(torch.rand(4, 3, 96, 128, generator=draws), torch.tensor([0, 1, 0, 1]), ("a", "b"))
    head = nn.Linear(3, 2)
    model = Classifier(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), head).eval()
    _, sheet = found(model, data, steps=2, search=2)
    shown = torch.tensor(sheet["image"])
    assert shown.shape == (2, 3, 48, 64)
    assert shown.mean() == pytest.approx(float(data.images[:2].mean()), abs=1e-3)


def test_where_steps_end_too_soon_nothing_is_said_to_have_arrived():
    numbers, sheet = found(network(), images(), steps=1)
    assert numbers["confident_distance"].value == math.inf
    assert numbers["reached"].value == 0.0
    assert sheet["arrived"] == [False, False]
    assert sheet["norm"] == pytest.approx([STEP, STEP], abs=1e-4)


def test_answers_that_tie_have_no_temperature_and_no_way():
    silent = network()
    with torch.no_grad():
        for parameter in silent.parameters():
            parameter.zero_()
    numbers, sheet = found(silent, images())
    assert numbers["temperature"].value == 0.0
    assert numbers["confident_distance"].value == math.inf
    assert numbers["reached"].value == 0.0
    assert sheet["image"] == sheet["adversarial"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"confidence": 1.0}, "`confidence`"),
        ({"grey_levels": 0.0}, "`grey_levels`"),
        ({"images": 0}, "`images`"),
        ({"steps": 0}, "`steps`"),
        ({"search": 0}, "`search`"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        HighConfidenceAdversarials(**settings)


def test_a_confidence_that_guessing_reaches_is_refused():
    with pytest.raises(ValueError, match=r"`confidence` must be above 1/2.*got 0.5"):
        found(network(), images(), confidence=0.5)


def test_one_image_whose_logits_are_no_numbers_is_one_that_is_wrong_unchanged():
    class Standardised(nn.Module):
        def forward(self, x):
            return torch.where((x == 0).all(dim=(1, 2, 3), keepdim=True), math.nan, x).flatten(1)

    data, model = images(), Classifier(Standardised(), network().head).eval()
    black = ImageSet(
        torch.cat([data.images, torch.zeros(1, 1, 4, 4)]),
        torch.cat([data.labels, data.labels[:1]]),
        data.classes,
    )
    whole, _ = found(model, data)
    numbers, _ = found(model, black)
    assert numbers["confident_distance"].value == pytest.approx(whole["confident_distance"].value, rel=0.1)
    assert numbers["temperature"].value == pytest.approx(whole["temperature"].value)
