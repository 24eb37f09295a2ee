"""Ridge heads in closed form, against autograd, scikit-learn, and each other."""

import pytest
import torch
from sklearn.linear_model import Ridge

from clearance.heads.ridge import solve_ridge
from heads.numbers import close, drawn

K, C = 4, 3


def eq_4(weight, bias, features, targets, lambda_):
    """mean_i ||W f_i + b - y_i||^2 + lambda ||W||^2, summed over heads."""
    residual = features @ weight.mT + bias[:, None] - targets
    return (residual.square().sum(dim=2).mean(dim=1) + lambda_ * weight.square().sum(dim=(1, 2))).sum()


def algorithm_1(weight, bias, features, targets, lambda_):
    residual = features @ weight.mT + bias[:, None] - targets
    return residual.square().sum() + lambda_ * weight.square().sum()


def c5(weight, bias, features, targets, lambda_):
    residual = features @ weight.mT + bias[:, None] - targets
    return residual.square().sum() + 0.5 * lambda_ * weight.square().sum()


@pytest.mark.parametrize(
    ("loss", "share"),
    [(eq_4, lambda n: 1), (algorithm_1, lambda n: 1 / n), (c5, lambda n: 1 / (2 * n))],
    ids=["eq 4", "alg 1", "c5"],
)
@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (6, 6), (1, 3), (7, 1)], ids=str)
def test_4_3_the_solution_is_stationary_for_the_loss_of_each_convention(shape, loss, share):
    features, targets = 3 + drawn(K, *shape), drawn(K, shape[0], C, seed=1)
    solution = solve_ridge(features, targets, 0.3 * share(shape[0]))
    weight, bias = (part.requires_grad_() for part in solution)
    gradients = torch.autograd.grad(loss(weight, bias, features, targets, 0.3), [weight, bias])
    for gradient in gradients:
        close(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("shape", [(5, 9), (9, 5)], ids=str)
def test_it_equals_scikit_learn(shape):
    features, targets = 3 + drawn(K, *shape), drawn(K, shape[0], C, seed=1)
    weight, bias = solve_ridge(features, targets, 0.3)
    for k in range(K):
        other = Ridge(alpha=shape[0] * 0.3).fit(features[k].numpy(), targets[k].numpy())
        close(weight[k], torch.as_tensor(other.coef_))
        close(bias[k], torch.as_tensor(other.intercept_))


def test_a_penalty_that_is_lost_in_rounding_gives_nan_and_not_some_number():
    """Three equal features: without its penalty the system is singular, exactly."""
    column = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    features = torch.stack([column.expand(4, 3), torch.eye(4)[:, :3]])
    targets = torch.eye(2).repeat(2, 1).expand(2, 4, 2)
    weight, bias = solve_ridge(features, targets, 1e-30)
    assert weight[0].isnan().all()
    assert bias[0].isnan().all()
    assert weight[1].isfinite().all()


def test_4_3_batched_equals_a_loop_with_a_penalty_each():
    features, targets = drawn(K, 5, 9), drawn(K, 5, C, seed=1)
    penalties = torch.tensor([0.01, 0.1, 1.0, 10.0], dtype=torch.float64)
    weight, bias = solve_ridge(features, targets, penalties)
    for k in range(K):
        alone = solve_ridge(features[k : k + 1], targets[k : k + 1], float(penalties[k]))
        close(weight[k], alone.weight[0])
        close(bias[k], alone.bias[0])


@pytest.mark.parametrize("shape", [(8, 40), (40, 8)], ids=str)
def test_float32_features_far_from_the_origin_lose_nothing_in_the_solving(shape):
    features, targets = (1000 + drawn(K, *shape)).float(), drawn(K, shape[0], C, seed=1).float()
    weight, _ = solve_ridge(features, targets, 1e-4)
    other = Ridge(alpha=shape[0] * 1e-4, solver="svd").fit(features[0].double().numpy(), targets[0].numpy())
    close(weight[0], torch.as_tensor(other.coef_).double(), 1e-6)


def test_a_head_that_is_not_finite_leaves_its_neighbours_alone():
    features, targets = drawn(K, 5, 9), drawn(K, 5, C, seed=1)
    expected = solve_ridge(features, targets, 0.1)
    spoilt = features.clone()
    spoilt[1, 2, 3], spoilt[2, 0, 0] = torch.inf, torch.nan
    weight, bias = solve_ridge(spoilt, targets, 0.1)
    assert weight.isfinite().flatten(1).all(dim=1).tolist() == [True, False, False, True]
    close(weight[[0, 3]], expected.weight[[0, 3]])
    close(bias[[0, 3]], expected.bias[[0, 3]])


def test_features_that_are_all_equal_give_weight_zero_and_the_mean_target():
    features = torch.full((1, 6, 4), 0.1, dtype=torch.float64)
    targets = torch.eye(3, dtype=torch.float64).repeat(2, 1)[None]
    weight, bias = solve_ridge(features, targets, 1e-9)
    assert torch.equal(weight, torch.zeros(1, 3, 4, dtype=torch.float64))
    close(bias, torch.full((1, 3), 1 / 3, dtype=torch.float64))


@pytest.mark.parametrize(
    ("features", "targets", "penalty", "message"),
    [
        ((2, 5, 4), (2, 5, 3), 0.0, "`penalty` must be a finite number above 0; got 0.0"),
        ((2, 5, 4), (2, 5, 3), -1.0, "`penalty` must be a finite number above 0; got -1.0"),
        ((2, 5, 4), (2, 5, 3), torch.tensor([1.0, 0.0]), "`penalty` must be above 0 for every head"),
        ((2, 5, 4), (2, 4, 3), 1.0, r"same K and n, none of them 0; got \(2, 5, 4\) and \(2, 4, 3\)"),
        ((5, 4), (5, 3), 1.0, r"`features` must be \(K, n, D\)"),
        ((2, 0, 4), (2, 0, 3), 1.0, "none of them 0"),
    ],
)
def test_what_has_no_solution_is_refused(features, targets, penalty, message):
    with pytest.raises(ValueError, match=message):
        solve_ridge(torch.zeros(features), torch.zeros(targets), penalty)
