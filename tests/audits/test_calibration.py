"""Probabilities against scikit-learn, slow loops, and worlds whose true probabilities are known."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import log_softmax
from sklearn.metrics import brier_score_loss, log_loss
from torch import nn

from audits.draws import first_half
from clearance.audits import Calibration
from clearance.audits.calibration import binned, confidences, fitted_temperature, proper_scores, surplus
from clearance.data import ImageSet
from clearance.data.synthetic import GaussianClasses
from clearance.models import Classifier

WORLD = GaussianClasses(class_count=3, shape=(1, 4, 4), separation=2.0, noise=0.05)
TRAIN, TEST = WORLD.images(20, seed=0), WORLD.images(80, seed=1)


class Loud(nn.Module):
    """Minus squared distances to the true class means over the variance, times a constant; calibrated at 1."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.means = nn.Parameter(WORLD.means().flatten(1).float())

    def forward(self, features):
        squares = (features[:, None] - self.means).square().sum(dim=2)
        return -0.5 * self.factor * squares / WORLD.noise**2


def values(findings):
    return {(m.name, m.context.get("temperature")): m.value for m in findings.measurements}


def drawn(count, seed=0, sharpness=2.0):
    """Logits, and labels drawn from their very probabilities."""
    stream = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(count, 4, generator=stream, dtype=torch.float64)
    return logits, torch.multinomial(logits.softmax(dim=1), 1, generator=stream)[:, 0]


def test_proper_scores_are_those_of_scikit_learn():
    logits, labels = drawn(300)
    nll, brier = proper_scores(logits.float(), labels)
    p = logits.float().double().softmax(dim=1).numpy()
    assert float(nll.mean()) == pytest.approx(log_loss(labels, p), rel=1e-9)
    classes = [brier_score_loss(labels == k, p[:, k]) for k in range(p.shape[1])]
    assert float(brier.mean()) == pytest.approx(sum(classes), rel=1e-9)


def test_proper_scores_at_their_ends():
    logits = torch.tensor([[900.0, 0.0], [900.0, 0.0], [math.nan, 0.0], [math.inf, 0.0]])
    nll, brier = proper_scores(logits, torch.tensor([0, 1, 0, 0]))
    assert nll.tolist() == [0.0, 900.0, math.inf, math.inf]
    assert brier.tolist() == [0.0, 2.0, 2.0, 2.0]
    assert confidences(logits, torch.tensor([0, 1, 0, 0]))[1].tolist() == [True, False, False, False]


@pytest.mark.parametrize("bins", [1, 4, 15])
def test_ece_is_that_of_a_slow_loop(bins):
    logits, labels = drawn(200)
    confidence, right = confidences(logits, labels)
    expected = 0.0
    for b in range(bins):
        inside = [i for i in range(200) if b / bins < float(confidence[i]) <= (b + 1) / bins]
        if inside:
            gap = np.mean([float(right[i]) for i in inside]) - np.mean([float(confidence[i]) for i in inside])
            expected += len(inside) / 200 * abs(float(gap))
    found = binned(confidence, right, bins, "equal width")
    assert found.error == pytest.approx(expected, rel=1e-12)
    assert found.count.sum() == 200


def test_bins_of_equal_mass_hold_as_many_and_keep_ties_together():
    confidence, right = confidences(*drawn(300))
    assert binned(confidence, right, 15, "equal mass").count.tolist() == [20.0] * 15
    tied = torch.tensor([0.5] * 7 + [1.0] * 3, dtype=torch.float64)
    found = binned(tied, torch.ones(10, dtype=torch.bool), 5, "equal mass")
    assert found.count.tolist() == [7.0, 3.0]
    assert found.error == pytest.approx(0.35)


def test_the_debiased_error_is_what_drawing_gives():
    """Kumar et al. draw accuracies of bins from their normal approximation and take off what that adds."""
    bins = binned(*confidences(*drawn(400, seed=3)), 10, "equal width")
    gap, n = (bins.accuracy - bins.confidence).numpy(), bins.count.numpy()
    sigma = np.sqrt(bins.accuracy.numpy() * (1 - bins.accuracy.numpy()) / (n - 1))
    assert n.min() > 1
    noise = np.random.default_rng(0).standard_normal((200_000, len(n)))
    resampled = np.abs(gap + sigma * noise) @ (n / n.sum())
    expected = bins.error - (resampled.mean() - bins.error)
    assert bins.debiased_error == pytest.approx(expected, abs=6 * resampled.std() / math.sqrt(200_000))


def test_debiasing_takes_off_what_chance_adds_and_keeps_what_is_there():
    """Calibrated answers have error 0; at half the temperature, a large sample says what the error is."""
    truth = _halved(200_000, 9).error
    assert truth > 0.05
    plain = np.mean([binned(*confidences(*drawn(150, s)), 15, "equal mass").error for s in range(40)])
    less = np.mean([binned(*confidences(*drawn(150, s)), 15, "equal mass").debiased_error for s in range(40)])
    assert less < 0.7 * plain
    there = [_halved(150, s) for s in range(40)]
    assert abs(np.mean([one.debiased_error for one in there]) - truth) < 0.6 * abs(
        np.mean([one.error for one in there]) - truth
    )


def _halved(count, seed):
    logits, labels = drawn(count, seed)
    return binned(*confidences(2 * logits, labels), 15, "equal mass")


def test_a_bin_of_one_image_is_given_the_variance_of_a_calibrated_answer():
    one = binned(torch.tensor([0.8]), torch.tensor([True]), 10, "equal width")
    g, s = 0.2, 0.4
    noisy = s * math.sqrt(2 / math.pi) * math.exp(-(g**2) / (2 * s**2)) + g * math.erf(g / (s * math.sqrt(2)))
    assert one.debiased_error == pytest.approx(2 * g - noisy, rel=1e-6)


def test_p14_the_true_posterior_of_a_gaussian_world_needs_no_temperature():
    pixels = Classifier(nn.Flatten(), Loud(1.0))
    test = WORLD.images(2000, seed=1)
    found = values(Calibration()(pixels, TRAIN, test))
    assert found["temperature", None] == pytest.approx(1.0, rel=0.06)
    assert found["ece", "as trained"] < 0.02
    loud = values(Calibration()(Classifier(nn.Flatten(), Loud(5.0)), TRAIN, test))
    assert loud["temperature", None] == pytest.approx(5.0, rel=0.06)
    for name in ("nll", "brier", "ece", "ece_debiased"):
        assert loud[name, "as trained"] > found[name, "as trained"]
    for name in ("nll", "brier"):
        assert loud[name, "calibrated"] == pytest.approx(found[name, "as trained"], rel=0.01)


def test_temperature_is_a_minimum_and_follows_the_logits():
    stream = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (200,), generator=stream)
    logits = 3 * torch.randn(200, 4, generator=stream, dtype=torch.float64) + 4 * F.one_hot(labels, 4)
    found = fitted_temperature(logits, labels)

    assert (logits.argmax(dim=1) != labels).any()

    def slow(temperature):
        return -log_softmax(logits.numpy() / temperature, axis=1)[range(200), labels.numpy()].sum()

    assert slow(found) < min(slow(found * 0.999), slow(found * 1.001))
    assert fitted_temperature(40 * logits, labels) == pytest.approx(40 * found, rel=1e-5)


def test_temperature_undoes_a_known_one():
    stream = torch.Generator().manual_seed(1)
    logits = 2 * torch.randn(20_000, 5, generator=stream, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(dim=1), 1, generator=stream)[:, 0]
    assert fitted_temperature(7 * logits, labels) == pytest.approx(7.0, rel=0.03)


def test_temperature_is_that_of_sharp_probabilities_too():
    """A calibrated world in which nearly every image is sure: one imagined image would weigh more than all of them."""
    stream = torch.Generator().manual_seed(3)
    logits = 30 * torch.randn(5000, 10, generator=stream, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(dim=1), 1, generator=stream)[:, 0]
    assert 0 < (logits.argmax(dim=1) != labels).double().mean() < 0.05
    assert fitted_temperature(logits, labels) == pytest.approx(1.0, rel=0.2)


def test_a_temperature_beyond_float32_is_found_too():
    logits = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    data = ImageSet(logits.sigmoid().view(60, 1, 1, 3), torch.arange(60) % 3, ("a", "b", "c"))
    torch.manual_seed(1)
    head = nn.Linear(3, 3)
    with torch.no_grad():
        head.weight.mul_(1e36)
    numbers = Calibration()(Classifier(nn.Flatten(), head), data, data).measurements
    assert next(m.value for m in numbers if m.name == "temperature") > 3.5e38


def test_a_head_that_is_always_right_has_a_temperature():
    """Two classes, margin 1, n images right: sigmoid(1/T) = 1 - 1 / (2 (n + 1)), so T = 1 / log(2 n + 1)."""
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(25, 1)
    labels = torch.tensor([0, 1]).repeat(25)
    assert fitted_temperature(logits, labels) == pytest.approx(1 / math.log(101), rel=1e-6)


def test_no_image_helps_to_choose_its_own_temperature():
    """Each half of the held-out images is read at the temperature of the other."""
    model = Classifier(nn.Flatten(), Loud(3.0))
    half = first_half(TEST.labels, seed=0)
    with torch.no_grad():
        logits = model(TEST.images).double()
    of_half, of_rest = (fitted_temperature(logits[rows], TEST.labels[rows]) for rows in (half, ~half))
    assert abs(of_half - of_rest) > 0.01
    calm = torch.where(half[:, None], logits / of_rest, logits / of_half)
    nll, brier = (float(each.mean()) for each in proper_scores(calm, TEST.labels))
    found = values(Calibration()(model, TRAIN, TEST))
    assert found["nll", "calibrated"] == pytest.approx(nll, rel=1e-6)
    assert found["brier", "calibrated"] == pytest.approx(brier, rel=1e-6)


def test_images_for_the_temperature_may_be_given():
    model = Classifier(nn.Flatten(), Loud(3.0))
    kept = WORLD.images(60, seed=7)
    found = Calibration(validation=kept)(model, TRAIN, TEST)
    (temperature,) = [m for m in found.measurements if m.name == "temperature"]
    assert (temperature.n, temperature.spread, temperature.better) == (1, None, "neither")
    again = values(Calibration(validation=kept)(model, TRAIN, kept))
    assert temperature.value == again["temperature", None]
    with torch.no_grad():
        cooled = model(TEST.images).double() / temperature.value
    assert values(found)["nll", "calibrated"] == pytest.approx(
        float(proper_scores(cooled, TEST.labels)[0].mean())
    )


def test_the_picture_holds_the_bins():
    found = Calibration(bins=5)(Classifier(nn.Flatten(), Loud(2.0)), TRAIN, TEST)
    before, after = (each for each in found.exhibits if each.name == "reliability")
    assert (before.context["temperature"], after.context["temperature"]) == ("as trained", "calibrated")
    shown = before.columns
    gaps = [
        abs(a - c) * n
        for a, c, n in zip(*(shown[k] for k in ("accuracy", "confidence", "images")), strict=True)
    ]
    assert sum(gaps) / sum(shown["images"]) == pytest.approx(values(found)["ece", "as trained"])
    assert sum(shown["images"]) == len(TEST)


class TestOverconfidence:
    def measured(self, factor):
        found = Calibration()(Classifier(nn.Flatten(), Loud(factor)), TRAIN, TEST)
        by_state = {m.context["temperature"]: m for m in found.measurements if m.name == "overconfidence"}
        (images,) = [each for each in found.exhibits if each.kind == "per_image"]
        return by_state, images

    def test_true_probabilities_claim_as_much_as_is_right(self):
        gaps, _ = self.measured(1.0)
        assert gaps["as trained"].low < 0 < gaps["as trained"].high

    @pytest.mark.parametrize(("factor", "sign"), [(50.0, 1), (0.2, -1)])
    def test_loud_answers_claim_too_much_and_quiet_ones_too_little(self, factor, sign):
        gaps, _ = self.measured(factor)
        before, after = gaps["as trained"], gaps["calibrated"]
        assert min(sign * before.low, sign * before.high) > 0
        assert abs(after.value) < 0.5 * abs(before.value)
        assert before.context["interval"] == "Newcombe's hybrid 95 %"

    def test_each_image_adds_its_own_part(self):
        gaps, images = self.measured(3.0)
        model = Classifier(nn.Flatten(), Loud(3.0))
        p = model(TEST.images).double().softmax(dim=1)
        expected = p.max(dim=1).values - (p.argmax(dim=1) == TEST.labels).double()
        assert images.columns["value"] == pytest.approx(expected.tolist(), abs=1e-6)
        assert images.context == {
            "temperature": "as trained", "split": "test", "images": TEST.digest()[:16],
        }  # fmt: skip
        assert np.mean(images.columns["value"]) == pytest.approx(gaps["as trained"].value, abs=1e-9)

    @pytest.mark.parametrize(("n", "sharpness"), [(40, 3.0), (300, 1.0), (300, 6.0)])
    def test_the_interval_covers_nothing_where_probabilities_are_true(self, n, sharpness):
        """Labels drawn from the very probabilities: the truth is 0, and the interval is on the wide side."""
        inside = 0
        for seed in range(300):
            _, low, high = surplus(*confidences(*drawn(n, seed, sharpness)))
            inside += low <= 0 <= high
        assert inside / 300 > 0.93

    def test_without_a_mistake_the_interval_has_a_width(self):
        gap, low, high = surplus(torch.ones(50, dtype=torch.float64), torch.ones(50, dtype=torch.bool))
        assert (gap, low) == (0.0, 0.0)
        assert high == pytest.approx(1 - 50 / (50 + 1.959964**2), abs=1e-6)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="`bins` must be a whole number of at least 1; got 0"):
        Calibration(bins=0)
    with pytest.raises(ValueError, match="`binning` must be one of 'equal width', 'equal mass'; got 'equal'"):
        Calibration(binning="equal")  # type: ignore[arg-type]
    other = GaussianClasses(class_count=2, shape=(1, 4, 4)).images(5, seed=0)
    with pytest.raises(ValueError, match=r"`validation` must have the classes.*got 2 classes.*and 3 of"):
        Calibration(validation=other)(Classifier(nn.Flatten(), Loud(1.0)), TRAIN, TEST)


def test_with_one_image_of_each_class_one_part_still_chooses_the_temperature_of_the_other():
    one = TEST.per_class(1, seed=0)
    found = values(Calibration()(Classifier(nn.Flatten(), Loud(20.0)), TRAIN, one))
    assert found["nll", "calibrated"] < 0.5 * found["nll", "as trained"]


@pytest.mark.parametrize("mask", [-1e9, -1e20, -3.4e38])
def test_a_class_that_is_masked_changes_no_temperature(mask):
    stream = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(300, 5, generator=stream, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=stream)[:, 0]
    masked = torch.cat([logits, torch.full((300, 1), mask, dtype=torch.float64)], dim=1)
    assert fitted_temperature(masked, labels) == pytest.approx(fitted_temperature(logits, labels), rel=1e-6)
