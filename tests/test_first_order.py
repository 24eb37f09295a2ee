"""Dual norms and first-order distances as pure functions."""

import math

import pytest
import torch

from clearance._first_order import dual_exponent, dual_norm, first_order_distance

NORMS = [1.0, 1.2, 1.5, 2.0, 3.0, 10.0, math.inf]


def draws(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("norm", NORMS)
def test_exponents_are_dual_in_both_directions(norm):
    q = dual_exponent(norm)
    assert 1 / norm + 1 / q == pytest.approx(1.0, abs=1e-15)
    assert dual_exponent(q) == pytest.approx(norm, rel=1e-12)


@pytest.mark.parametrize("norm", [0.99, 0.0, -2.0, math.nan])
def test_below_one_there_is_no_norm(norm):
    with pytest.raises(ValueError, match=r"`norm` must be at least 1 .* got"):
        dual_exponent(norm)


@pytest.mark.parametrize("norm", NORMS)
def test_the_dual_norm_is_the_most_that_a_unit_displacement_can_gain(norm):
    """Hoelder with equality at the norming direction, |g|^(q-1) sign(g) up to scale."""
    g = draws(7)
    found = dual_norm(g[None], norm).item()
    q = dual_exponent(norm)
    best = torch.zeros_like(g)
    if math.isinf(q):
        best[g.abs().argmax()] = g[g.abs().argmax()].sign()
    else:
        best = g.sign() * g.abs() ** (q - 1)
    best = best / torch.linalg.vector_norm(best, ord=norm)
    assert (g @ best).item() == pytest.approx(found, rel=1e-12)
    others = draws(500, 7, seed=1)
    others = others / torch.linalg.vector_norm(others, ord=norm, dim=1, keepdim=True)
    assert (others @ g).max().item() <= found


def test_leading_axes_are_kept_whatever_follows():
    g = draws(2, 3, 4, 5)
    assert dual_norm(g, 2, leading=2).shape == (2, 3)
    torch.testing.assert_close(dual_norm(g, 2, leading=2), g.square().sum(dim=(2, 3)).sqrt())
    torch.testing.assert_close(dual_norm(g[:, :, 0, 0], 1, leading=2), g[:, :, 0, 0].abs())


def test_channels_last_gives_the_same_numbers():
    g = draws(2, 3, 4, 5)
    torch.testing.assert_close(dual_norm(g.to(memory_format=torch.channels_last), 3), dual_norm(g, 3))


def test_halves_are_added_up_in_float32():
    """100,000 ones leave float16's range; in bfloat16 a sum of ones stops at 256."""
    for dtype in (torch.float16, torch.bfloat16):
        found = dual_norm(torch.ones(1, 100_000, dtype=dtype), math.inf)
        assert found.dtype == torch.float32
        assert found.item() == 100_000


@pytest.mark.parametrize("norm", NORMS)
def test_the_derivative_at_zero_is_zero(norm):
    g = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    dual_norm(g, norm).sum().backward()
    assert g.grad is not None
    assert torch.equal(g.grad, torch.zeros_like(g))


def test_distances_keep_their_sign():
    gap, slope = torch.tensor([6.0, -6.0, 1.0, -1.0, 0.0]), torch.tensor([2.0, 3.0, 0.0, 0.0, 0.0])
    assert first_order_distance(gap, slope).tolist() == [3.0, -2.0, math.inf, -math.inf, 0.0]


def test_a_flat_gap_spoils_no_other_gradient():
    gap = torch.tensor([1.0, 4.0], requires_grad=True)
    slope = torch.tensor([0.0, 2.0], requires_grad=True)
    first_order_distance(gap, slope)[1].backward()
    assert gap.grad is not None
    assert slope.grad is not None
    assert gap.grad.tolist() == [0.0, 0.5]
    assert slope.grad.tolist() == [0.0, -1.0]


@pytest.mark.parametrize("norm", [1.0001, 1.001, 1.01])
def test_just_above_one_powers_do_not_leave_the_range_of_numbers(norm):
    """There q is in the hundreds and thousands; with entries (3, 4) the norm is 4 (1 + (3 / 4)^q)^(1 / q)."""
    q = norm / (norm - 1)
    for scale in (1e-4, 1.0, 1e4):
        given = (scale * torch.tensor([[3.0, -4.0]], dtype=torch.float64)).requires_grad_()
        found = dual_norm(given, norm)
        assert found.item() == pytest.approx(scale * 4 * (1 + 0.75**q) ** (1 / q), rel=1e-12)
        (slope,) = torch.autograd.grad(found.sum(), given)
        assert slope[0].tolist() == pytest.approx([0.75 ** (q - 1), -1.0], abs=1e-2)
    assert dual_norm(torch.zeros(1, 2), norm).item() == 0
