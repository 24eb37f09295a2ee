"""One covariance matrix for all classes where features do not fill their space, and where they hardly do."""

import math
from typing import Any

import pytest
import torch

from clearance.heads import GaussianMixture
from heads.mixtures import samples  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml

close = torch.testing.assert_close


def flat(scale, rank=8, width=32, count=400):
    """Features of a lower rank than their width, with labels."""
    features, labels = samples(count, rank, 3)
    turn = samples(rank, width, seed=9)[0]
    return scale * (features @ turn + labels[:, None]), labels


def twice(scale):
    """Every feature stored twice."""
    features, labels = samples(400, 16, 3)
    return scale * torch.cat([features, features], dim=1), labels


CASES = [(flat, scale) for scale in (1.0, 10.0, 30.0, 100.0, 1e3, 1e6)] + [(twice, 30.0), (twice, 100.0)]


@pytest.mark.parametrize(("build", "scale"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features_of_a_lower_rank_are_fitted_told_and_trained_on(build, scale, dtype):
    features, labels = (given.to(dtype) if given.is_floating_point() else given for given in build(scale))
    head: Any = GaussianMixture(32, 3, "full").to(dtype)
    with pytest.warns(UserWarning, match="% of the mixture's variances lie on their floor"):
        head.fit_statistics(features, labels)
    assert {value.dtype for value in head.parameters()} == {dtype}
    for found in (head(features), head.log_density(features), head.own_half_distance(features, labels)):
        assert found.dtype == dtype
        assert found.isfinite().all()
    (head.log_prob(features).gather(1, labels[:, None]).mean() - head.excess_log_variance().sum()).backward()
    assert head.covariance_root.grad.isfinite().all()


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_the_floor_is_kept_below_large_variances(scale):
    """log|Sigma| has a closed form: floor in 24 directions, floor + s^2 in those of the 8 singular values s."""
    root = scale * samples(32, 8, seed=2)[0]
    square = torch.cat([root, torch.zeros(32, 24, dtype=root.dtype)], dim=1)
    for dtype, tolerance in ((torch.float64, 1e-7), (torch.float32, 1e-6)):
        head: Any = GaussianMixture(32, 3, "full").to(dtype)
        with torch.no_grad():
            head.covariance_root.copy_(square)
        s = torch.linalg.svdvals(square.to(dtype).double()[:, :8])
        expected = 24 * math.log(1e-4) + (s.square() + 1e-4).log().sum()
        found = 2 * head.half_log_determinant()[0].detach()
        assert found.dtype == dtype
        assert float(found) == pytest.approx(float(expected), rel=tolerance)


def test_densities_and_their_slope_are_those_of_cholesky():
    head: Any = GaussianMixture(6, 3, "full", floor=0.1).double()
    with torch.no_grad():
        head.covariance_root.copy_(samples(6, 6, seed=4)[0])
    features, _ = samples(5, 6)
    covariance = head.covariance_root @ head.covariance_root.T + 0.1 * torch.eye(6, dtype=torch.float64)
    normals = torch.distributions.MultivariateNormal(head.means, covariance)
    expected, found = normals.log_prob(features[:, None]), head.log_prob(features)
    close(found, expected, rtol=1e-12, atol=1e-12)
    slopes = [torch.autograd.grad(one.square().sum(), head.covariance_root)[0] for one in (found, expected)]
    close(*slopes, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("width", [8, 64])
def test_a_direction_without_variance_is_told_though_no_single_feature_lacks_it(width):
    features, labels = samples(400, width, 3)
    features = features - features.mean(dim=1, keepdim=True)
    head: Any = GaussianMixture(width, 3, "full")
    with pytest.warns(UserWarning, match=f"{math.ceil(100 / width)} % of the mixture's variances lie"):
        head.fit_statistics(features, labels)
    assert head.share_at_floor() == pytest.approx(1 / width)


def test_full_rank_features_are_not_told_however_they_correlate():
    features, labels = samples(400, 8, 3)
    turn = torch.eye(8, dtype=torch.float64) + 0.9
    head = GaussianMixture(8, 3, "full").fit_statistics(100 * features @ turn, labels)
    assert head.share_at_floor() == 0.0


def test_a_root_that_diverged_gives_nan_and_no_error():
    head: Any = GaussianMixture(4, 3, "full")
    torch.nn.init.constant_(head.covariance_root, math.nan)
    assert head(torch.zeros(2, 4)).isnan().all()
    assert head.share_at_floor() == 0.0


@pytest.mark.parametrize("floor", [0.4, 0.5, 0.7, 2.0, 3.3])
def test_a_head_that_has_just_been_made_is_not_at_its_floor(floor):
    """It begins at twice a floor above 1/2, which rounding of a root must not call the floor."""
    for width in (3, 16):
        assert GaussianMixture(width, 2, "full", floor=floor).share_at_floor() == 0
