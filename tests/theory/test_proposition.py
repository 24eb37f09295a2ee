"""Sato et al. (2019), Proposition 3.2, on free features: the features themselves are the parameters."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clearance.heads.ridge import pair_head
from theory.clouds import N, clouds, descend, pull, spread


@pytest.fixture(scope="module")
def trajectory():
    """The two clouds in the plane after 100, 300, 1000 and 3000 steps, lambda = 1e-6."""
    states, done, state = {}, 0, clouds(2)
    for steps in (100, 300, 1000, 3000):
        state = descend(*state, 1e-6, steps - done)
        states[steps], done = state, steps
    return states


@pytest.mark.parametrize("d", [2, 5])
def test_q01_with_the_heads_fixed_one_exact_step_makes_each_class_a_point(d):
    """f = A^-1 v_t does not depend on the sample; afterwards all heads are one, and A has rank 1."""
    f, g = clouds(d)
    pulled = pull(f, g, 1e-6)
    inverse = torch.linalg.inv(2 * pulled.A)
    of_f, of_g = pulled.gradients(f, g)
    f, g = f - of_f @ inverse, g - of_g @ inverse
    after = spread(f, g)
    assert after.D > 0.1
    assert (f - f.mean(dim=0)).abs().max() < 1e-12 * after.D
    assert (g - g.mean(dim=0)).abs().max() < 1e-12 * after.D
    assert torch.linalg.matrix_rank(pulled.A) == d
    assert torch.linalg.matrix_rank(pull(f, g, 1e-6).A, rtol=1e-10) == 1


@pytest.mark.parametrize("lambda_", [1e-6, 0.3, 10.0])
def test_q02_on_point_like_features_all_heads_are_one_and_only_push_apart(lambda_):
    """|g| = tau^2 lambda D / (D^2 + lambda)^2 along Delta, loss = (lambda / (D^2 + lambda))^2, tau = 2."""
    centre = torch.tensor([[1.0, 2.0, -0.5], [0.2, -0.4, 0.7]], dtype=torch.float64)
    f, g = centre[0].expand(N, 3), centre[1].expand(N, 3)
    delta = centre[0] - centre[1]
    D = float(delta.norm())
    pulled = pull(f, g, lambda_)
    torch.testing.assert_close(pulled.theta, pulled.theta[:1].expand(N * N, 3), rtol=1e-13, atol=0.0)
    of_f, of_g = pulled.gradients(f, g)
    expected = 4 * lambda_ * delta / (D**2 + lambda_) ** 2
    torch.testing.assert_close(of_f[0], -expected, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(of_g[0], expected, rtol=1e-10, atol=1e-13)
    weight, bias = pair_head(centre[0], centre[1], 1.0, -1.0, lambda_)
    loss = float(weight @ centre[0] + bias - 1) ** 2
    assert loss == pytest.approx((lambda_ / (D**2 + lambda_)) ** 2, rel=1e-9, abs=1e-13)


def test_q03_separable_features_that_are_not_point_like_are_not_stationary():
    """lambda = 0, 300 sets in 2 to 5 dimensions; point-like ones are stationary."""
    largest = []
    for seed in range(300):
        f, g = clouds(2 + seed % 4, seed=seed, std=0.3, distance=4.0)
        largest.append(max(float(each.abs().max()) for each in pull(f, g, 0.0).gradients(f, g)))
    assert min(largest) > 0.05
    f, g = (cloud.mean(dim=0, keepdim=True).expand(N, -1) for cloud in clouds(3))
    assert max(float(each.abs().max()) for each in pull(f, g, 0.0).gradients(f, g)) < 1e-12


def test_q04_off_axis_scatter_over_distance_falls_as_one_over_the_root_of_the_steps(trajectory):
    """(rms off-axis scatter) / D -> sqrt((d - 1) / (4 d k)) after k steps, whatever the start."""
    found = {(2, k): spread(*trajectory[k]) for k in (300, 1000, 3000)}
    for d in (3, 5):
        found[d, 1000] = spread(*descend(*clouds(d, n=20), 1e-9, 1000))
    for (d, k), after in found.items():
        assert after.off / after.D == pytest.approx(math.sqrt((d - 1) / (4 * d * k)), rel=0.03), (d, k)


def test_q05_distance_times_off_axis_scatter_is_conserved(trajectory):
    products = [after.D * after.off for after in (spread(*trajectory[k]) for k in (100, 300, 1000, 3000))]
    assert products == pytest.approx([products[0]] * 4, rel=2e-3)
    assert [spread(*trajectory[k]).D for k in (100, 300, 1000, 3000)] == pytest.approx(
        [2.48, 3.18, 4.26, 5.59], rel=5e-3
    )


def test_q05_scatter_along_the_axis_vanishes_fast_and_the_classes_move_apart():
    """Plain steps, lambda = 1e-3."""
    states = [clouds(2)]
    for steps, size in ((100, 0.05), (1980, 0.25)):  # up to the times 5 and 500
        states.append(descend(*states[-1], 1e-3, steps, size))
    start, early, late = (spread(*state) for state in states)
    assert start.along > 0.4
    assert early.along < 1e-3
    assert late.along < 5e-6
    assert late.off > 0.1
    assert start.D < early.D < late.D


def test_q05_under_a_large_penalty_the_distance_grows_as_the_fourth_root_of_time():
    """D ~ (8 tau^2 lambda t)^(1/4), tau = 2, lambda = 1: the features grow without end."""
    middle = descend(*clouds(2), 1.0, 2000, 0.25)
    late = descend(*middle, 1.0, 3800, 2.5)
    distances = [spread(*state).D for state in (middle, late)]
    assert distances == pytest.approx([(32 * t) ** 0.25 for t in (500, 1e4)], rel=0.06)


def test_q06_in_the_end_all_heads_agree(trajectory):
    def least_cosine(state: tuple[Tensor, Tensor]) -> float:
        theta = pull(*state, 1e-6).theta
        return float(F.cosine_similarity(theta, theta.mean(dim=0, keepdim=True)).min())

    assert least_cosine(clouds(2)) < 0.9
    assert least_cosine(trajectory[1000]) > 0.998
