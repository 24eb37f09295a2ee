"""One class against the rest: scipy, scikit-learn, regression, Gaussian worlds, points."""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import eigh
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from clearance.data.synthetic import GaussianClasses
from clearance.geometry.discriminant import pooled_scatter, scatter_ratio, versus_rest

CLASSES = 4


def cloud(D=6, seed=0, counts=(15, 29, 13, 17)):
    """Unbalanced classes, shuffled, spread differently in every direction."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=draws)]
    means = torch.randn(len(counts), D, generator=draws, dtype=torch.float64)
    spread = torch.linspace(0.2, 2.0, D, dtype=torch.float64)
    return means[labels] + spread * torch.randn(len(labels), D, generator=draws, dtype=torch.float64), labels


def slow(features, positive, regulariser):
    """Largest generalised eigenvalue and its vector, from D x D matrices of the two groups."""
    points, own = features.numpy(), positive.numpy()
    groups = [points[own], points[~own]]
    within = sum((g - g.mean(axis=0)).T @ (g - g.mean(axis=0)) for g in groups)
    offsets = [g.mean(axis=0) - points.mean(axis=0) for g in groups]
    between = sum(len(g) * np.outer(m, m) for g, m in zip(groups, offsets, strict=True))
    D = points.shape[1]
    values, vectors = eigh(between, within + regulariser * np.trace(within) / D * np.eye(D))
    vector = vectors[:, -1] / np.linalg.norm(vectors[:, -1])
    return values[-1], vector * np.sign(vector @ offsets[0])


@pytest.mark.parametrize("D", [1, 2, 6, 73, 74, 75, 200])
@pytest.mark.parametrize("regulariser", [1e-8, 1e-3, 1e-1, 10.0])
def test_2_5_eigenvalue_and_direction_are_those_of_scipy(D, regulariser):
    """More samples than dimensions, as many (N = 74), and fewer."""
    features, labels = cloud(D)
    pooled = pooled_scatter(features, labels, CLASSES)
    for chosen in range(CLASSES):
        found = versus_rest(pooled, chosen, regulariser)
        value, vector = slow(features, labels == chosen, regulariser)
        # scipy's own rounding, relative to the regulariser, where S_W is singular
        assert found.eigenvalue == pytest.approx(value, rel=1e-6 if D > 70 and regulariser < 1e-6 else 1e-9)
        np.testing.assert_allclose(found.direction.numpy(), vector, atol=1e-6)


def test_2_5_direction_is_that_of_scikit_learn():
    features, labels = cloud()
    pooled = pooled_scatter(features, labels, CLASSES)
    for chosen in range(CLASSES):
        fitted = LinearDiscriminantAnalysis(solver="lsqr").fit(features.numpy(), labels.numpy() == chosen)
        expected = fitted.coef_[0] / np.linalg.norm(fitted.coef_[0])
        found = versus_rest(pooled, chosen, 1e-14).direction
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-10)


def test_4_6_eigenvalue_is_r_squared_over_1_minus_r_squared():
    features, labels = cloud()
    pooled = pooled_scatter(features, labels, CLASSES)
    design = np.column_stack([features.numpy(), np.ones(len(features))])
    for chosen in range(CLASSES):
        member = (labels == chosen).double().numpy()
        weights = np.linalg.lstsq(design, member, rcond=None)[0]
        unexplained = ((member - design @ weights) ** 2).sum() / ((member - member.mean()) ** 2).sum()
        found = versus_rest(pooled, chosen, 1e-14).eigenvalue
        assert found == pytest.approx((1 - unexplained) / unexplained, rel=1e-9)


def test_4_6_rotation_scale_and_shift_do_not_matter():
    features, labels = cloud()
    Q = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q
    before = versus_rest(pooled_scatter(features, labels, CLASSES), 2, 1e-2)
    changes = {
        "rotated": features @ Q,
        "large": 50 * features,
        "small": 1e-6 * features,
        "far": features + 1e4,
    }
    for name, changed in changes.items():
        after = versus_rest(pooled_scatter(changed, labels, CLASSES), 2, 1e-2)
        assert after.eigenvalue == pytest.approx(before.eigenvalue, rel=1e-8), name
        expected = before.direction @ Q if name == "rotated" else before.direction
        torch.testing.assert_close(after.direction, expected, rtol=0.0, atol=1e-8)


def test_2_5_ratio_along_the_direction_is_the_eigenvalue_without_regulariser():
    features, labels = cloud()
    pooled = pooled_scatter(features, labels, CLASSES)
    exact, strong = versus_rest(pooled, 0, 1e-14), versus_rest(pooled, 0, 1.0)
    assert scatter_ratio(features @ exact.direction, labels == 0) == pytest.approx(exact.eigenvalue, rel=1e-9)
    ratio = scatter_ratio(features @ strong.direction, labels == 0)
    assert strong.eigenvalue < ratio < exact.eigenvalue


def test_2_5_a_gaussian_world_has_its_exact_eigenvalue():
    """lambda = p (1 - p) ||d||^2 / noise^2 with ||d||^2 = separation^2 / 2 C / (C - 1) noise^2, p = 1 / C."""
    world = GaussianClasses(class_count=4, shape=(1, 3, 3), separation=5.0)
    features, labels = world.features(per_class=3000, seed=0)
    found = versus_rest(pooled_scatter(features, labels, 4), 1, 1e-8)
    assert found.eigenvalue == pytest.approx(5.0**2 / (2 * 4), rel=0.03)
    means = world.means().flatten(1)
    expected = means[1] - means[[0, 2, 3]].mean(dim=0)
    assert float(found.direction @ expected / expected.norm()) > 0.99


@pytest.mark.parametrize("spread", [1e-3, 1e-6])
def test_4_6_nearly_points_lose_no_digits(spread):
    """Means 0 and 1, deviations +- spread: lambda = (n / 4) / (n spread^2 (1 + eps))."""
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(4)
    labels = torch.arange(2).repeat_interleave(4)
    features = (labels + spread * signs)[:, None]
    found = versus_rest(pooled_scatter(features, labels, 2), 0, 1e-2)
    assert found.eigenvalue == pytest.approx(0.25 / spread**2 / 1.01, rel=1e-8)
    assert found.direction.tolist() == [-1.0]


@pytest.mark.parametrize("D", [3, 30])
def test_4_6_two_points_are_infinitely_apart(D):
    points = torch.randn(2, D, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(2).repeat(7)
    found = versus_rest(pooled_scatter(points[labels], labels, 2), 1, 1e-3)
    assert found.eigenvalue == math.inf
    between = (points[1] - points[0]).double()
    torch.testing.assert_close(found.direction, between / between.norm())


def test_4_6_four_points_are_a_cloud_against_the_rest():
    """S_W of the two groups is then the other means alone; the regulariser stands for all else."""
    labels = torch.arange(4).repeat(5)
    found = versus_rest(pooled_scatter(torch.eye(4)[labels], labels, 4), 0, 1e-3)
    value, _ = slow(torch.eye(4, dtype=torch.float64)[labels], labels == 0, 1e-3)
    assert found.eigenvalue == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("features", [torch.full((6, 4), 0.3), torch.tensor([[-1.0], [1.0]]).repeat(3, 1)])
def test_where_means_coincide_there_is_nothing_between(features):
    labels = torch.tensor([0, 0, 1, 1, 1, 1])
    found = versus_rest(pooled_scatter(features, labels, 2), 0, 1e-3)
    assert found.eigenvalue == pytest.approx(0.0, abs=1e-30)
    assert scatter_ratio(features[:, 0], labels == 0) == 0.0


def test_scatter_ratio_by_hand_and_of_points():
    named = torch.tensor([True, False, False])
    # means 3 and 1, n1 n2 / n = 2 / 3, within 2
    assert scatter_ratio(torch.tensor([3.0, 0.0, 2.0]), named) == pytest.approx(2 / 3 * 4 / 2)
    assert scatter_ratio(torch.tensor([3.0, 2.0, 2.0]), named) == math.inf


def test_what_does_not_make_two_groups_is_refused():
    features, labels = cloud()
    with pytest.raises(ValueError, match="`classes` must be at least 2"):
        pooled_scatter(features, torch.zeros_like(labels), 1)
    with pytest.raises(ValueError, match=r"every class needs a sample; got none of \[4\]"):
        pooled_scatter(features, labels, 5)
    with pytest.raises(ValueError, match="`regulariser` must be a finite number above 0"):
        versus_rest(pooled_scatter(features, labels, CLASSES), 0, 0.0)
    with pytest.raises(ValueError, match="both groups need a sample; got 0 of one and 74"):
        scatter_ratio(features[:, 0], labels < 0)
