"""Eigenvalues of a cloud: NumPy, scikit-learn, closed forms."""

import math

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from clearance.geometry.spectrum import covariance_spectrum, effective_rank, first_axis_share, principal_axes

SHAPES = [(40, 7), (7, 7), (8, 7), (9, 30), (1, 5), (5, 1)]


def cloud(N, D, seed=0):
    draws = torch.Generator().manual_seed(seed)
    spread = torch.linspace(0.5, 3.0, D, dtype=torch.float64)
    return 2.0 + spread * torch.randn(N, D, generator=draws, dtype=torch.float64)


@pytest.mark.parametrize(("N", "D"), SHAPES)
def test_4_6_spectrum_is_that_of_numpys_covariance(N, D):
    features = cloud(N, D)
    expected = np.linalg.eigvalsh(np.cov(features.numpy().T, bias=True).reshape(D, D))[::-1]
    found = covariance_spectrum(features)
    assert found.shape == (min(N, D),)
    np.testing.assert_allclose(found.numpy(), expected[: min(N, D)], rtol=1e-9, atol=1e-12)
    assert float(expected[min(N, D) :].sum()) == pytest.approx(0.0, abs=1e-12)


def test_4_6_first_share_is_scikit_learns_explained_variance():
    features = cloud(50, 6)
    expected = PCA().fit(features.numpy()).explained_variance_ratio_[0]
    assert first_axis_share(covariance_spectrum(features)) == pytest.approx(expected, rel=1e-12)


def test_4_6_ranks_do_not_change_under_rotation_scale_and_shift():
    features = cloud(60, 6)
    draws = torch.Generator().manual_seed(1)
    Q = torch.linalg.qr(torch.randn(6, 6, generator=draws, dtype=torch.float64)).Q

    def ranks(points):
        spectrum = covariance_spectrum(points)
        return [first_axis_share(spectrum), effective_rank(spectrum)]

    for changed in (features @ Q, -50 * features, 1e-6 * features, features + 1e4):
        assert ranks(changed) == pytest.approx(ranks(features), rel=1e-9)


@pytest.mark.parametrize("equal", [1, 2, 5])
def test_4_6_equal_eigenvalues_count_as_what_they_are(equal):
    spectrum = torch.tensor([3.0] * equal + [0.0] * 4)
    assert effective_rank(spectrum) == pytest.approx(equal, rel=1e-12)
    assert first_axis_share(spectrum) == pytest.approx(1 / equal)


def test_4_6_effective_rank_of_two_axes_is_its_formula():
    """Shares 0.9 and 0.1."""
    spectrum = torch.tensor([9.0, 1.0], dtype=torch.float64)
    expected = math.exp(-0.9 * math.log(0.9) - 0.1 * math.log(0.1))
    assert effective_rank(spectrum) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("N", "D"), [(300, 4), (4, 30)])
def test_4_6_a_point_has_no_dimension(N, D):
    """Also one that sits where its mean must be rounded."""
    place = torch.rand(D, generator=torch.Generator().manual_seed(0))
    spectrum = covariance_spectrum(place.repeat(N, 1))
    assert not bool(spectrum.any())
    assert effective_rank(spectrum) == 0.0
    assert first_axis_share(spectrum) == 1.0


def test_4_6_the_last_digit_of_float32_is_no_dimension_and_spread_is():
    steps = torch.randint(2, (50, 6), generator=torch.Generator().manual_seed(0))
    rounded = torch.where(steps > 0, torch.nextafter(torch.ones(()), torch.tensor(2.0)), 1.0)
    assert not bool(covariance_spectrum(rounded).any())
    assert bool((covariance_spectrum(rounded.double()) > 0).all())
    assert bool((covariance_spectrum(1 + 1e-5 * steps) > 0).all())


def test_a_large_constant_hides_no_dimension():
    features = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    beside = torch.cat([features, torch.full((50, 1), 1e8)], dim=1)
    torch.testing.assert_close(
        covariance_spectrum(beside)[:4], covariance_spectrum(features), rtol=1e-6, atol=0
    )


def test_4_6_a_ray_is_a_line():
    lengths = torch.linspace(1, 9, 30, dtype=torch.float64)
    spectrum = covariance_spectrum(lengths[:, None] * cloud(1, 6))
    assert first_axis_share(spectrum) == effective_rank(spectrum) == 1.0
    assert (spectrum > 0).tolist() == [True] + [False] * 5


@pytest.mark.parametrize(("N", "D"), [(40, 7), (9, 30)])
def test_axes_are_those_of_scikit_learn_up_to_sign(N, D):
    features = cloud(N, D)
    axes = principal_axes(features, 3).numpy()
    expected = PCA(3, svd_solver="full").fit(features.numpy()).components_
    np.testing.assert_allclose(np.abs((axes * expected).sum(axis=1)), 1.0, atol=1e-9)
    np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-9)
    assert (np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1) > 0).all()


def test_axes_that_are_not_there_are_zero():
    assert principal_axes(cloud(9, 1), 2).tolist() == [[1.0], [0.0]]
    with pytest.raises(ValueError, match="`count` must be a whole number of at least 1"):
        principal_axes(cloud(9, 3), 0)


def test_along_axes_on_which_nothing_varies_no_point_has_a_place():
    """Two points, each many times: with more features than rows the second axis is of rounding errors alone."""
    ends = 100 * torch.randn(2, 200, generator=torch.Generator().manual_seed(0))
    features = ends.repeat_interleave(20, dim=0)
    first, second = principal_axes(features, 2)
    assert float(first.norm()) == pytest.approx(1.0)
    assert not bool(second.any())
