"""On a linear model the strongest attack is known, pixel bounds included; every attack must find it."""

import math

import pytest
import torch
from torch import nn

from clearance.attacks import APGD, FGSM, IFGSM, PGD, SCALE_FREE

COUNT, PIXELS = 30, 64


class TwoClasses(nn.Module):
    """Logits (0, w . x + b): class 0 is left by going up w."""

    def __init__(self, seed=0):
        super().__init__()
        draws = torch.Generator().manual_seed(seed)
        self.weight = torch.randn(PIXELS, dtype=torch.float64, generator=draws)
        self.weight[:6] = 0.0
        self.bias = -0.5 * self.weight.sum()
        self.eval()

    def forward(self, images):
        rise = images.flatten(1) @ self.weight + self.bias
        return torch.stack([torch.zeros_like(rise), rise], dim=1)


def images():
    """A third of the pixels at a bound and many near one, so that the box matters."""
    draws = torch.Generator().manual_seed(1)
    wide = 1.6 * torch.rand(COUNT, 1, 8, 8, dtype=torch.float64, generator=draws) - 0.3
    return wide.clamp(0, 1)


def clipped(image, moved):
    return (image + moved).clamp(0, 1) - image


def bisected(image, weight, epsilon):
    """clip(x + t w) - x with the t that uses epsilon up: plain bisection on t."""
    low, high = 0.0, 1e6
    if clipped(image, high * weight).norm() <= epsilon:
        return clipped(image, high * weight)
    for _ in range(200):
        middle = (low + high) / 2
        if clipped(image, middle * weight).norm() <= epsilon:
            low = middle
        else:
            high = middle
    return clipped(image, low * weight)


def filled(image, weight, epsilon):
    """The pixel with the largest |w| first, one after the other."""
    delta, left = torch.zeros_like(image), epsilon
    for pixel in weight.abs().argsort(descending=True).tolist():
        if weight[pixel] == 0:
            break
        room = float(1 - image[pixel] if weight[pixel] > 0 else image[pixel])
        step = min(left, room)
        delta[pixel] = math.copysign(step, weight[pixel])
        left -= step
    return delta


def strongest(image, weight, epsilon, norm):
    if norm == math.inf:
        return clipped(image, epsilon * weight.sign())
    return (bisected if norm == 2 else filled)(image, weight, epsilon)


def oracle(model, labels, epsilon, norm):
    rows = zip(images().flatten(1), labels, strict=True)
    towards = [strongest(row, (1 - 2 * int(label)) * model.weight, epsilon, norm) for row, label in rows]
    return torch.stack(towards).view(COUNT, 1, 8, 8)


RADII = [(math.inf, 0.02), (math.inf, 0.3), (2, 0.2), (2, 2.0), (2, 5.0), (1, 0.5), (1, 6.0), (1, 40.0)]


@pytest.fixture
def labels():
    return torch.arange(COUNT) % 2


@pytest.mark.parametrize(("norm", "epsilon"), RADII)
@pytest.mark.parametrize("loss", ["cross_entropy", "logit_margin", "scaled_cross_entropy"])
def test_fgsm_is_the_closed_form(norm, epsilon, loss, labels):
    model = TwoClasses()
    found = FGSM(epsilon, norm, loss).perturbed(model, images(), labels) - images()
    torch.testing.assert_close(found, oracle(model, labels, epsilon, norm), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("norm", "epsilon"), RADII)
@pytest.mark.parametrize("kind", [IFGSM, PGD])
def test_many_steps_end_at_the_closed_form(kind, norm, epsilon, labels):
    """Exactly in norms inf and 1; in norm 2, where they go round on a sphere, by what is gained."""
    model = TwoClasses()
    found = kind(epsilon, norm, "logit_margin", steps=40).perturbed(model, images(), labels) - images()
    best = oracle(model, labels, epsilon, norm)
    if norm != 2:
        torch.testing.assert_close(found, best, rtol=0, atol=1e-9)
    gained, most = ((part.flatten(1) @ model.weight).abs() for part in (found, best))
    assert (gained <= most * (1 + 1e-9)).all()
    assert (gained >= most * 0.9999).all()


@pytest.mark.parametrize(("norm", "epsilon"), RADII)
def test_steps_that_adapt_come_near_the_closed_form(norm, epsilon, labels):
    model = TwoClasses()
    found = APGD(epsilon, norm, "logit_margin", steps=100).perturbed(model, images(), labels) - images()
    best = oracle(model, labels, epsilon, norm)
    gained, most = ((part.flatten(1) @ model.weight).abs() for part in (found, best))
    assert (gained <= most * (1 + 1e-9)).all()
    assert (gained >= most * 0.999).all()


@pytest.mark.parametrize(("norm", "epsilon"), RADII)
def test_an_image_breaks_exactly_where_the_closed_form_does(norm, epsilon, labels):
    model = TwoClasses()
    before = model(images()).argmax(dim=1) != labels
    expected = model(images() + oracle(model, labels, epsilon, norm)).argmax(dim=1) != labels
    hit = FGSM(epsilon, norm)(model, images(), labels)
    assert torch.equal(hit.success, expected | before)


def test_the_cases_above_are_not_all_alike(labels):
    model = TwoClasses()
    shares = [FGSM(epsilon, norm)(model, images(), labels).success_rate for norm, epsilon in RADII]
    assert min(shares) < 0.7
    assert max(shares) == 1.0


def ten_classes():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 10, bias=False)).double().eval()


@pytest.mark.parametrize("loss", ["logit_margin", "dlr", "cross_entropy", "scaled_cross_entropy"])
@pytest.mark.parametrize("norm", [math.inf, 2, 1])
def test_a_target_is_approached_and_scored(loss, norm):
    """A large radius reaches any target; success is the target, not just any wrong class."""
    model, x = ten_classes(), images()
    named = model(x).argmax(dim=1)
    targets = (named + 3) % 10
    radius = {math.inf: 1.0, 2: 8.0, 1: 64.0}[norm]
    hit = PGD(radius, norm, loss, step=radius / 10)(model, x, named, targets)
    assert hit.success.double().mean() > 0.9
    assert torch.equal(hit.success, model(hit.images).argmax(dim=1) == targets)


def test_a_rival_is_steered_at_one_after_the_other():
    """Two classes are near by gradient and one is near by logit; only steering at all three finds the nearest."""
    weight = torch.tensor([[0.0, 0.0], [0.2, 0.0], [0.0, 8.0]], dtype=torch.float64)
    bias = torch.tensor([0.0, -0.3, -5.0], dtype=torch.float64)

    def model(x):
        return x.flatten(1) @ weight.T + bias

    x, y = torch.full((1, 1, 1, 2), 0.5, dtype=torch.float64), torch.tensor([0])
    # the second class leads the third by logits at first, is farther away, and at a radius of 0.2 unreachable
    assert not PGD(0.2, 2, "logit_margin", targets=1)(model, x, y).success
    assert PGD(0.2, 2, "logit_margin", targets=2)(model, x, y).success
    assert PGD(0.2, 2, "logit_margin", targets=9)(model, x, y).success


@pytest.mark.parametrize("loss", SCALE_FREE)
def test_random_starts_help_where_the_image_has_no_gradient(loss):
    """A plateau in the middle: from the image no step leads anywhere."""

    def model(x):
        slope = (x.flatten(1) - 0.5).abs().sub(0.05).clamp(min=0).sum(dim=1)
        return torch.stack([torch.full_like(slope, 0.3), 2 * slope, slope - 1], dim=1)

    x, y = torch.full((4, 1, 2, 2), 0.5), torch.zeros(4, dtype=torch.long)
    assert not PGD(0.3, loss=loss, restarts=1)(model, x, y).success.any()
    assert PGD(0.3, loss=loss, restarts=3)(model, x, y).success.all()
