"""Distances to Gaussian classes against chi-square: identities on fitted features, known worlds, slow loops."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import nn
from torch.distributions import MultivariateNormal

from clearance.audits import GoodnessOfFit
from clearance.audits.goodness_of_fit import fitted_gaussians
from clearance.data import ImageSet
from clearance.heads import GaussianMixture
from clearance.models import Classifier

FORMS = ("scalar", "class_scalar", "diagonal", "class_diagonal", "full")
WIDTH = 6


def cloud(per_class, seed, spread=(0.03, 0.05, 0.02)):
    """Three Gaussian classes of images of six pixels, whose pixels hang together."""
    draws = torch.Generator().manual_seed(seed)
    mixing = torch.eye(WIDTH) + 0.4 * torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(5))
    labels = torch.arange(3).repeat_interleave(per_class)
    noise = torch.randn(len(labels), WIDTH, generator=draws) @ mixing
    means = 0.5 + 0.1 * torch.eye(3, WIDTH)
    pixels = (means[labels] + torch.tensor(spread)[labels, None] * noise).clamp(0, 1)
    return ImageSet(pixels.view(-1, 1, 2, 3), labels, ("a", "b", "c"))


def pixels(head=None):
    return Classifier(nn.Flatten(), nn.Linear(WIDTH, 3) if head is None else head)


def numbers(findings, statistics="refitted"):
    return {
        (m.name, m.context["class"]): m
        for m in findings.measurements
        if m.context["statistics"] == statistics
    }


@pytest.mark.parametrize("form", FORMS)
def test_on_the_fitted_features_the_ratio_is_one(form):
    data = cloud(40, seed=0)
    found = numbers(GoodnessOfFit(form)(pixels(), data, data))
    assert found["distance_ratio", "all"].value == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_after_fit_statistics_the_heads_own_ratio_is_one_too(form):
    data = cloud(40, seed=0)
    head = (
        GaussianMixture(WIDTH, 3, form, floor=1e-9)
        .double()
        .fit_statistics(data.images.flatten(1), data.labels)
    )
    found = GoodnessOfFit(form)(pixels(head), data, data)
    own, refitted = numbers(found, "own"), numbers(found)
    assert own["distance_ratio", "all"].value == pytest.approx(1.0, abs=1e-5)
    assert own.pop(("mean_offset", "all")).value == pytest.approx(0.0, abs=1e-9)
    for key, m in own.items():
        assert m.value == pytest.approx(refitted[key].value, rel=1e-4), key


@pytest.mark.parametrize("form", FORMS)
def test_distances_are_those_of_torch_distributions(form):
    train, test = cloud(40, seed=0), cloud(15, seed=1)
    fitted = fitted_gaussians(train.images.flatten(1), train.labels, 3, form)
    x, mine = train.images.flatten(1).double(), train.labels
    means = torch.stack([x[mine == k].mean(dim=0) for k in range(3)])
    off = x - means[mine]
    for k in range(3):
        part = off[mine == k] if form.startswith("class") else off
        matrix = part.T @ part / len(part)
        if "diagonal" in form:
            matrix = matrix.diagonal().diag()
        if "scalar" in form:
            matrix = matrix.diagonal().mean() * torch.eye(WIDTH, dtype=torch.float64)
        normal = MultivariateNormal(means[k], matrix)
        rows = test.images.flatten(1).double()
        peak = normal.log_prob(means[k])
        expected = 2 * (peak - normal.log_prob(rows))
        torch.testing.assert_close(fitted.squared(rows)[:, k], expected, rtol=1e-8, atol=1e-8)
        labels = torch.full((len(rows),), k)
        torch.testing.assert_close(fitted.squared_own(rows, labels), expected, rtol=1e-8, atol=1e-8)


def test_p14_gaussian_features_pass():
    train, test = cloud(20_000, seed=0), cloud(4000, seed=1)
    found = numbers(GoodnessOfFit("class_diagonal")(pixels(), train, test))
    alike = numbers(GoodnessOfFit("full")(pixels(), train, cloud(4000, seed=1, spread=(0.04, 0.04, 0.04))))
    assert found["distance_ratio", "a"].value == pytest.approx(1.0, abs=0.03)
    # one covariance for three spreads: classes are off by their own variance over the mean of all
    mean = (0.03**2 + 0.05**2 + 0.02**2) / 3
    assert alike["distance_ratio", "b"].value == pytest.approx(0.04**2 / mean, rel=0.05)


def test_numbers_are_those_of_slow_loops():
    train, test = cloud(30, seed=0), cloud(25, seed=1)
    found = numbers(GoodnessOfFit("full")(pixels(), train, test))
    fitted = fitted_gaussians(train.images.flatten(1), train.labels, 3, "full")
    squared = fitted.squared_own(test.images.flatten(1), test.labels)
    for k, name in enumerate("abc"):
        mine = sorted(squared[test.labels == k].tolist())
        steps = [
            max(abs(chi2.cdf(d, WIDTH) - i / 25), abs(chi2.cdf(d, WIDTH) - (i + 1) / 25))
            for i, d in enumerate(mine)
        ]
        assert found["ks_distance", name].value == pytest.approx(max(steps), rel=1e-9)
        within = np.mean([chi2.cdf(d, WIDTH) <= 0.95 for d in mine])
        assert found["coverage", name].value == pytest.approx(within)
        assert found["coverage", name].low <= within <= found["coverage", name].high
        assert found["distance_ratio", name].value == pytest.approx(np.mean(mine) / WIDTH, rel=1e-9)
        assert found["distance_ratio", name].n == 25


def test_the_picture_is_quantiles_over_those_of_chi_square():
    train, test = cloud(30, seed=0), cloud(100, seed=1)
    (shown,) = GoodnessOfFit("full")(pixels(), train, test).exhibits
    levels = (np.arange(200) + 0.5) / 200
    assert shown.columns["chi-square"] == pytest.approx(chi2.ppf(levels, WIDTH) / WIDTH)
    fitted = fitted_gaussians(train.images.flatten(1), train.labels, 3, "full")
    squared = fitted.squared_own(test.images.flatten(1), test.labels).numpy()
    assert shown.columns["features"] == pytest.approx(np.quantile(squared, levels) / WIDTH, rel=1e-6)


def test_the_picture_of_gaussian_features_lies_on_the_diagonal():
    train, test = (cloud(count, seed, spread=(0.03, 0.03, 0.03)) for count, seed in ((20_000, 0), (4000, 1)))
    (shown,) = GoodnessOfFit("full")(pixels(), train, test).exhibits
    assert shown.columns["features"][2:-2] == pytest.approx(shown.columns["chi-square"][2:-2], rel=0.1)


def test_directions_that_never_vary_are_left_out():
    train, test = cloud(40, seed=0), cloud(15, seed=1)

    def padded(data):  # two dead pixels, and one that repeats another
        rows = data.images.flatten(1)
        more = torch.cat([rows, torch.full((len(rows), 2), 0.25), rows[:, :1]], dim=1)
        return ImageSet(more.view(-1, 1, 3, 3), data.labels, data.classes)

    head = nn.Linear(9, 3)
    plain = numbers(GoodnessOfFit("full")(pixels(), train, test))
    wider = numbers(GoodnessOfFit("full")(pixels(head), padded(train), padded(test)))
    assert wider["distance_ratio", "all"].value == pytest.approx(
        plain["distance_ratio", "all"].value, rel=1e-5
    )
    diagonal = fitted_gaussians(padded(train).images.flatten(1), train.labels, 3, "diagonal")
    assert diagonal.width == 7


def test_classes_that_are_points_have_no_gaussian():
    labels = torch.arange(3).repeat_interleave(4)
    data = ImageSet(torch.eye(3)[labels].view(-1, 1, 1, 3), labels, ("a", "b", "c"))
    found = GoodnessOfFit()(pixels(nn.Linear(3, 3)), data, data)
    assert numbers(found)["distance_ratio", "all"].value == math.inf
    assert numbers(found)["coverage", "all"].value == 0.0
    assert found.exhibits == ()


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match=r"`covariance` must be one of 'scalar'.*got 'identity'"):
        GoodnessOfFit("identity")  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["identity", *FORMS])
def test_the_offset_of_learned_means_is_its_part_of_the_distance(form):
    data = cloud(40, seed=0)
    features = data.images.flatten(1).double()
    head = GaussianMixture(WIDTH, 3, form, floor=1e-9).double().fit_statistics(features, data.labels)
    fitted = numbers(GoodnessOfFit()(pixels(head), data, data), "own")["mean_offset", "all"]
    assert fitted.value == pytest.approx(0.0, abs=1e-9)
    with torch.no_grad():
        head.means.add_(torch.tensor([0.1, 0.0, 0.0, -0.2, 0.0, 0.05]))
        found = numbers(GoodnessOfFit()(pixels(head), data, data), "own")["mean_offset", "all"]
        off, whole = 0.0, 0.0
        for k in range(3):
            own = features[data.labels == k]
            labels = torch.full((len(own),), k)
            middle = own.mean(dim=0, keepdim=True)
            off += len(own) * float(head.own_half_distance(middle, labels[:1]))
            whole += float(head.own_half_distance(own, labels).sum())
    assert 0 < found.value < 1
    assert found.value == pytest.approx(off / whole, rel=1e-6)
    assert found.n == len(data)


def test_without_learned_means_there_is_no_offset():
    data = cloud(40, seed=0)
    assert "mean_offset" not in {m.name for m in GoodnessOfFit()(pixels(), data, data).measurements}
