"""The change that flips half of the images: on linear networks, where every distance is known."""

import math

import pytest
import torch
from scipy.stats import binom
from torch import nn

from clearance.audits import MinimalPerturbation, Subject
from clearance.audits.minimal_perturbation import median_interval
from clearance.audits.robustness import Target
from clearance.data import ImageSet
from clearance.models import Classifier

pytestmark = pytest.mark.filterwarnings("error")


def two_pixels(distances: torch.Tensor) -> ImageSet:
    """Images of four equal pixels 0.5 + d or 0.5 - d, alternating; the boundary of `network` is at 0.5."""
    sides = torch.where(torch.arange(len(distances)) % 2 == 0, 1.0, -1.0)
    pixels = (0.5 + sides * distances)[:, None, None, None].expand(-1, 1, 2, 2).contiguous()
    return ImageSet(pixels, (sides < 0).long(), ("bright", "dark"))


def network(scale: float = 1.0, steps: int | None = None) -> Classifier:
    """Calls an image bright where its mean is above 0.5; with `steps`, after rounding pixels to that many."""
    head = nn.Linear(4, 2)
    with torch.no_grad():
        head.weight.copy_(scale * torch.tensor([[1.0], [-1.0]]).expand(2, 4))
        head.bias.copy_(scale * torch.tensor([-2.0, 2.0]))
    front = nn.Flatten() if steps is None else nn.Sequential(nn.Flatten(), Rounding(steps))
    return Classifier(front, head)


class Rounding(nn.Module):
    """Rounds pixels; the gradient is that of nothing."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, pixels):
        return torch.round(pixels * self.steps) / self.steps


def found(model: Classifier, data: ImageSet, **settings):
    measured = MinimalPerturbation(**settings)(model, data, data).measurements
    return {m.name: m for m in measured if m.name != "accuracy_under_attack"}


def under_attack(data: ImageSet, **settings):
    """Accuracy by radius."""
    measured = MinimalPerturbation(**settings)(network(), data, data).measurements
    return {m.context["epsilon"]: m for m in measured if m.name == "accuracy_under_attack"}


DISTANCES = torch.linspace(0.01, 0.21, 41)


def test_the_median_of_known_distances():
    numbers = found(network(), two_pixels(DISTANCES))
    assert numbers["median_flip"].value == pytest.approx(0.11, abs=2e-4)
    assert numbers["median_flip"].n == 41
    assert numbers["missed_flips"].value == 0.0
    assert numbers["no_gradient"].value == 0.0
    # the mean of four uniform numbers of radius 0.11 rarely reaches an image's own distance
    assert numbers["noise_flipped"].value < 0.3


def test_accuracy_under_attack_counts_images_farther_than_the_usual_radii():
    at = under_attack(two_pixels(DISTANCES))
    assert {radius: round(m.value * 41) for radius, m in at.items()} == {0.1: 23, 0.3: 0}
    assert all(m.n == 41 and m.low <= m.value <= m.high for m in at.values())
    data = two_pixels(DISTANCES)
    wrong = ImageSet(data.images, 1 - data.labels, data.classes)
    assert [m.value for m in under_attack(wrong).values()] == [0.0, 0.0]
    (length,) = under_attack(data, norm="2").values()  # twice as long: none is 0.5 away
    assert (length.context["epsilon"], length.value) == (0.5, 0.0)


def test_in_norm_two_the_distance_is_twice_as_long_for_four_pixels():
    numbers = found(network(), two_pixels(DISTANCES), norm="2")
    assert numbers["median_flip"].value == pytest.approx(0.22, abs=4e-4)


def test_only_images_that_are_right_are_asked():
    data = two_pixels(DISTANCES)
    labels = data.labels.clone()
    labels[20:] = 1 - labels[20:]
    numbers = found(network(), ImageSet(data.images, labels, data.classes))
    assert numbers["median_flip"].n == 20
    assert numbers["median_flip"].value == pytest.approx(float(DISTANCES[9]), abs=2e-4)


@pytest.mark.parametrize("count", [5, 6])
def test_fewer_than_six_images_have_no_interval_of_95_per_cent(count):
    size = found(network(), two_pixels(DISTANCES).subset(torch.arange(count)))["median_flip"]
    assert (size.low is None) is (count < 6)


def test_the_scale_of_logits_changes_nothing():
    data = two_pixels(DISTANCES)
    quiet, loud = found(network(), data), found(network(scale=64.0), data)
    assert {name: m.value for name, m in quiet.items()} == {name: m.value for name, m in loud.items()}


def test_a_network_that_hides_its_gradients_rings_the_alarm():
    """Rounded pixels have no gradient: every image is blind, and yet the nearest wrong ones are found."""
    numbers = found(network(steps=8), two_pixels(DISTANCES))
    assert numbers["no_gradient"].value == 1.0
    plain = found(network(), two_pixels(DISTANCES))["median_flip"].value
    assert numbers["median_flip"].value == pytest.approx(plain, abs=1 / 16)  # half a step of rounding


def test_what_the_search_misses_is_counted():
    """Past rounding the search stops short on some images, which the one without gradients then flips."""
    data = two_pixels(DISTANCES)
    assert found(network(), data)["missed_flips"].value == 0.0
    assert found(network(steps=8), data)["missed_flips"].value > 0.0


def test_a_network_that_is_always_wrong_has_nothing_left_to_flip():
    data = two_pixels(DISTANCES)
    numbers = found(network(scale=-1.0), data)
    assert numbers["median_flip"].value == 0.0
    assert numbers["noise_flipped"].value == 1.0
    assert all(math.isfinite(m.value) for m in numbers.values())


def test_where_nothing_flips_noise_may_change_everything(monkeypatch):
    """The largest change of four pixels is 2 long, not 1."""
    radii = []

    def under_noise(target, norm, radius):
        radii.append(radius)
        return target.right

    monkeypatch.setattr(Target, "under_noise", under_noise)
    head = nn.Linear(4, 2)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor([0.0, 2.0]))
    constant = Classifier(nn.Flatten(), head)
    for norm in ("inf", "2"):
        assert found(constant, two_pixels(DISTANCES), norm=norm)["median_flip"].value == math.inf
    assert radii == [1.0, 2.0]


@pytest.mark.parametrize("count", [1, 5, 6, 40, 101])
def test_the_interval_of_the_median_covers_as_often_as_it_says(count):
    """P(j-th value <= median <= (n + 1 - j)-th) = P(j <= Binomial(n, 1/2) <= n - j)."""
    _, low, high = median_interval(torch.arange(1.0, count + 1.0))
    j = int(low)
    assert high == count + 1 - j
    covered = binom.cdf(count - j, count, 0.5) - binom.cdf(j - 1, count, 0.5)
    narrower = binom.cdf(count - j - 1, count, 0.5) - binom.cdf(j, count, 0.5)
    if count >= 6:
        assert covered >= 0.95 > narrower
    else:
        assert j == 1


@pytest.mark.parametrize("wrong", [{"norm": "1"}, {"images": 0}, {"steps": 0}, {"queries": 0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}`"):
        MinimalPerturbation(**wrong)


def test_each_image_keeps_its_distance_and_wrong_ones_have_none():
    data = two_pixels(DISTANCES)
    labels = data.labels.clone()
    labels[:5] = 1 - labels[:5]
    mislabelled = ImageSet(data.images, labels, data.classes)
    findings = MinimalPerturbation()(network(), mislabelled, mislabelled)
    (shown,) = findings.exhibits
    assert (shown.name, shown.kind) == ("median_flip", "per_image")
    assert shown.context == {
        "norm": "inf", "steps": 100, "statistic": "median", "images": mislabelled.digest()[:16],
    }  # fmt: skip
    values = shown.columns["value"]
    assert values[:5] == [None] * 5
    assert values[5:] == pytest.approx(DISTANCES[5:].tolist(), abs=2e-4)
    assert findings.measurements[0].value == sorted(values[5:])[17]
    (none,) = MinimalPerturbation()(network(scale=-1.0), data, data).exhibits
    assert none.columns["value"] == [None] * 41


def test_who_waits_is_told_how_far_the_search_is():
    data, said = two_pixels(DISTANCES), []
    subject = Subject(network(), data, data)
    subject.on_progress = lambda done, of: said.append(done / of)
    MinimalPerturbation(steps=10).examine(subject)
    assert said == sorted(said)
    assert len(set(said)) > 10
    assert 0 < said[0] < said[-1] < 1
