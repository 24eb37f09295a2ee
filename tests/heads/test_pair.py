"""The head of one sample of each of two classes in closed form, against autograd and the ridge solution."""

import pytest
import torch

from clearance.heads.ridge import pair_head, solve_ridge
from heads.numbers import close, drawn


def pairs(count=6, D=5):
    return 2 + drawn(count, D), drawn(count, D, seed=1)


def test_4_3_the_pair_formula_is_stationary_and_solves_eq_11():
    f1, f2 = pairs()
    weight, bias = (part.requires_grad_() for part in pair_head(f1, f2, 1.0, -1.0, 0.7))
    outputs = [(weight * f).sum(dim=1) + bias for f in (f1, f2)]
    data = (outputs[0] - 1).square() + (outputs[1] + 1).square()
    loss = (data + 0.35 * weight.square().sum(dim=1)).sum()
    for gradient in torch.autograd.grad(loss, [weight, bias]):
        close(gradient, torch.zeros_like(gradient))
    # Eq. 11 with the bias eliminated: (Delta Delta^T + lambda I) theta_bar = tau Delta
    difference = f1 - f2
    residual = difference * (difference * weight).sum(dim=1, keepdim=True) + 0.7 * weight - 2 * difference
    close(residual.detach(), torch.zeros_like(f1))


@pytest.mark.parametrize("lambda_", [1e-6, 0.7, 100.0])
def test_4_3_the_pair_formula_is_ridge_with_r_half_lambda(lambda_):
    f1, f2 = pairs()
    weight, bias = pair_head(f1, f2, 3.0, -1.0, lambda_)
    targets = torch.tensor([[3.0], [-1.0]]).double().expand(6, 2, 1)
    solved = solve_ridge(torch.stack([f1, f2], dim=1), targets, lambda_ / 4)
    close(solved.weight[:, 0], weight, 1e-8)
    close(solved.bias[:, 0], bias, 1e-8)


def test_4_3_translation_rotation_swap_and_scale():
    f1, f2 = pairs()
    weight, bias = pair_head(f1, f2, 1.0, -1.0, 0.7)
    shift = drawn(5, seed=2)
    moved = pair_head(f1 + shift, f2 + shift, 1.0, -1.0, 0.7)
    close(moved.weight, weight)
    close(moved.bias, bias - weight @ shift)
    rotation = torch.linalg.qr(drawn(5, 5, seed=3)).Q
    turned = pair_head(f1 @ rotation, f2 @ rotation, 1.0, -1.0, 0.7)
    close(turned.weight, weight @ rotation)
    close(turned.bias, bias)
    swapped = pair_head(f2, f1, -1.0, 1.0, 0.7)
    close(swapped.weight, weight)
    close(swapped.bias, bias)
    scaled = pair_head(50 * f1, 50 * f2, 1.0, -1.0, 2500 * 0.7)
    close(50 * scaled.weight, weight)
    close(scaled.bias, bias)


def test_4_3_shrinkage():
    f1, f2 = pairs()
    weight, bias = pair_head(f1, f2, 3.0, -1.0, 0.7)
    squared = (f1 - f2).square().sum(dim=1)
    close((weight * f1).sum(dim=1) + bias - 1, 2 * squared / (squared + 0.7))
    close((weight * f2).sum(dim=1) + bias - 1, -2 * squared / (squared + 0.7))


def test_4_3_all_pairs_at_once_equal_a_loop():
    f, g = drawn(4, 3), drawn(5, 3, seed=1)
    weight, bias = pair_head(f[:, None], g[None], 1.0, -1.0, 0.7)
    assert weight.shape == (4, 5, 3)
    for i in range(4):
        for j in range(5):
            alone = pair_head(f[i], g[j], 1.0, -1.0, 0.7)
            close(weight[i, j], alone.weight)
            close(bias[i, j], alone.bias)


def test_4_3_coinciding_samples_give_the_mean_target():
    weight, bias = pair_head(torch.ones(3), torch.ones(3), 3.0, -1.0, 1e-12)
    assert torch.equal(weight, torch.zeros(3))
    assert float(bias) == 1.0
    assert pair_head(torch.ones(3), torch.ones(3), 1.0, -1.0, 0.0).weight.isnan().all()
    with pytest.raises(ValueError, match="`penalty` must be a finite number of at least 0; got -1"):
        pair_head(torch.ones(3), torch.zeros(3), 1.0, -1.0, -1.0)


def test_without_penalty_it_is_the_smallest_head_that_fits():
    f1, f2 = pairs(count=1)
    weight, bias = pair_head(f1, f2, 1.0, -1.0, 0.0)
    close(weight[0], 2 * torch.linalg.pinv(f1 - f2)[:, 0])
    close((weight * f1).sum() + bias, torch.ones(1, dtype=torch.float64))


def test_targets_keep_their_last_digits():
    three, one = torch.tensor([[3.0], [1.0]], dtype=torch.float64)
    weight, bias = pair_head(three, one, 0.3, 0.1, 0.0)
    assert float(weight) == pytest.approx(0.1, abs=1e-15)
    assert float(bias) == pytest.approx(0.0, abs=1e-15)
