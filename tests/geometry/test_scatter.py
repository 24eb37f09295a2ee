"""Scatter within and between classes: slow loops, explicit pseudo-inverses, scikit-learn, Gaussian worlds."""

import math

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from clearance.data.synthetic import GaussianClasses
from clearance.geometry import class_scatter, nc1, within_between_ratio
from clearance.geometry.neural_collapse import nc2_equinorm, nc2_simplex
from clearance.geometry.scatter import class_distance_normalised_variances

CLASSES = 4


def cloud(D=6, seed=0, counts=(5, 9, 3, 7)):
    """Unbalanced classes, shuffled, spread differently in every direction."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=draws)]
    means = 3 * torch.randn(len(counts), D, generator=draws, dtype=torch.float64)
    spread = torch.linspace(0.2, 2.0, D, dtype=torch.float64)
    return means[labels] + spread * torch.randn(len(labels), D, generator=draws, dtype=torch.float64), labels


def rotation(D, seed=1):
    draws = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(D, D, generator=draws, dtype=torch.float64)).Q


def all_ratios(features, labels, classes=CLASSES):
    found = class_scatter(features, labels, classes)
    pairs = class_distance_normalised_variances(found)
    return torch.tensor([within_between_ratio(found), nc1(features, labels, classes), *pairs.tolist()])


def test_class_scatter_equals_a_loop():
    features, labels = cloud()
    found = class_scatter(features, labels, CLASSES)
    for c in range(CLASSES):
        own = features[labels == c]
        assert int(found.counts[c]) == len(own)
        torch.testing.assert_close(found.means[c], own.mean(dim=0))
        squares = [float(((row - own.mean(dim=0)) ** 2).sum()) for row in own]
        assert float(found.variances[c]) == pytest.approx(sum(squares) / len(own))
    torch.testing.assert_close(found.centred_means.sum(dim=0), torch.zeros(6, dtype=torch.float64))
    torch.testing.assert_close(
        found.centred_means[0] - found.centred_means[1], found.means[0] - found.means[1]
    )


def test_within_and_between_traces_equal_those_of_sklearns_discriminant():
    """Its covariance_ is S_W weighted by priors; its means_ give S_B."""
    features, labels = cloud()
    priors = np.full(CLASSES, 1 / CLASSES)
    fitted = LinearDiscriminantAnalysis(solver="lsqr", store_covariance=True, priors=priors)
    fitted.fit(features.numpy(), labels.numpy())
    centred = fitted.means_ - fitted.means_.mean(axis=0)
    expected = np.trace(fitted.covariance_) / np.trace(centred.T @ centred / CLASSES)
    assert within_between_ratio(class_scatter(features, labels, CLASSES)) == pytest.approx(
        expected, rel=1e-12
    )


def test_4_6_cdnv_equals_its_formula_pair_by_pair():
    features, labels = cloud()
    expected = []
    for c in range(CLASSES):
        for other in range(c + 1, CLASSES):
            a, b = features[labels == c], features[labels == other]
            variances = a.var(dim=0, correction=0).sum() + b.var(dim=0, correction=0).sum()
            expected.append(float(variances / (2 * (a.mean(dim=0) - b.mean(dim=0)).square().sum())))
    found = class_distance_normalised_variances(class_scatter(features, labels, CLASSES))
    assert found.shape == (CLASSES * (CLASSES - 1) // 2,)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("D", [1, 2, 3, 4, 6, 40])
def test_4_6_nc1_equals_the_explicit_pseudo_inverse(D):
    """Fewer dimensions than classes, as many, and more than samples."""
    features, labels = cloud(D)
    points, named = features.numpy(), labels.numpy()
    means = np.stack([points[named == c].mean(axis=0) for c in range(CLASSES)])
    deviations = points - means[named]
    within = deviations.T @ deviations / len(points)
    centred = means - means.mean(axis=0)
    between = centred.T @ centred / CLASSES
    expected = np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / CLASSES
    assert nc1(features, labels, CLASSES) == pytest.approx(expected, rel=1e-9)


def test_4_6_ratios_do_not_change_under_rotation_scale_and_shift():
    features, labels = cloud()
    expected = all_ratios(features, labels)
    for changed in (features @ rotation(6), -50 * features, 1e-6 * features, features + 3.0):
        torch.testing.assert_close(all_ratios(changed, labels), expected, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("shift", [1e2, 1e4, 1e6])
def test_4_6_ratios_do_not_change_far_from_the_origin(shift):
    """Rounding of the far means must not pass for a direction in which classes differ."""
    features, labels = cloud(D=10)
    found = all_ratios(features + shift, labels)
    torch.testing.assert_close(found, all_ratios(features, labels), rtol=1e-8, atol=0.0)


def test_4_6_ratios_do_not_change_when_classes_are_renamed():
    features, labels = cloud()
    renamed = torch.tensor([2, 0, 3, 1])[labels]
    before, after = all_ratios(features, labels), all_ratios(features, renamed)
    torch.testing.assert_close(after[:2], before[:2])
    torch.testing.assert_close(after[2:].sort().values, before[2:].sort().values)


def test_4_6_ratios_are_zero_for_points():
    """Exactly, with representable means, and to rounding otherwise."""
    labels = torch.arange(CLASSES).repeat(5)
    assert (all_ratios(torch.eye(CLASSES, 7)[labels], labels) == 0).all()
    means = torch.randn(CLASSES, 7, generator=torch.Generator().manual_seed(2))
    assert (all_ratios(means[labels], labels) < 1e-28).all()


def test_scatter_grows_with_the_square_of_the_spread():
    features, labels = cloud()
    means = class_scatter(features, labels, CLASSES).means
    wider = means[labels] + 3 * (features - means[labels])
    torch.testing.assert_close(all_ratios(wider, labels), 9 * all_ratios(features, labels))


def test_ratios_are_infinite_where_class_means_coincide():
    features = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
    assert (all_ratios(features, torch.tensor([0, 0, 1, 1]), 2) == math.inf).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ratios_are_infinite_where_all_features_are_one_point(dtype):
    labels = torch.arange(600) % 3
    labels[:100] = 0
    point = torch.full((600, 5), 0.1, dtype=dtype)
    assert (all_ratios(point, labels, 3) == math.inf).all()
    cloud = class_scatter(point, labels, 3)
    assert nc2_equinorm(cloud) == nc2_simplex(cloud) == math.inf


def test_features_that_are_not_finite_have_an_infinite_nc1():
    assert nc1(torch.tensor([[0.0], [math.nan], [2.0]]), torch.tensor([0, 0, 1]), 2) == math.inf


def test_float32_features_are_summed_in_float64():
    """A mean of 1e4 leaves float32 sums with errors near the variance of 1e-4."""
    draws = torch.Generator().manual_seed(3)
    labels = torch.arange(2).repeat(5000)
    features = (1e4 + labels[:, None] + 0.01 * torch.randn(10000, 1, generator=draws)).float()
    found = class_scatter(features, labels, 2)
    assert found.means.dtype == found.variances.dtype == torch.float64
    exact = [float(features.double()[labels == c].var(correction=0)) for c in range(2)]
    assert found.variances.tolist() == pytest.approx(exact, rel=1e-9)


def test_a_gaussian_world_has_its_exact_ratios():
    """Variance D s^2, means sep * s apart: every ratio in closed form, here within 3 % at 2,000 a class."""
    world = GaussianClasses(class_count=CLASSES, separation=5.0)
    features, labels = world.features(per_class=2000, seed=0)
    D = features.shape[1]
    found = class_scatter(features, labels, CLASSES)
    between = 5.0**2 / 2 * (1 - 1 / CLASSES)
    assert float(found.variances.mean()) == pytest.approx(D * world.noise**2, rel=0.03)
    assert class_distance_normalised_variances(found).tolist() == pytest.approx([D / 5.0**2] * 6, rel=0.03)
    assert within_between_ratio(found) == pytest.approx(D / between, rel=0.03)
    assert nc1(features, labels, CLASSES) == pytest.approx(2 * (CLASSES - 1) / 5.0**2, rel=0.03)


@pytest.mark.parametrize("function", [class_scatter, nc1])
def test_a_class_without_samples_is_refused(function):
    with pytest.raises(ValueError, match=r"`labels` must lie in 0 .. 2.*got 0 .. 5"):
        class_scatter(torch.zeros(4, 2), torch.tensor([0, 1, 2, 5]), 3)
    with pytest.raises(ValueError, match=r"every class needs a sample; got none of \[1, 3\]"):
        function(torch.zeros(3, 2), torch.tensor([0, 2, 0]), 4)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_features_that_are_no_numbers_are_not_perfectly_separated(broken):
    features, labels = cloud()
    features[0, 0] = broken
    assert within_between_ratio(class_scatter(features, labels, CLASSES)) == math.inf
