"""Fresh heads: N(0, std^2) weights, zero biases, the same for the same seed (sheet, 1.4: init 0.1)."""

import pytest
import torch
from torch import nn

from clearance.heads import MLP, HeadStack


def weights(count=40, std=0.1, seed=0, dtype=torch.float32):
    head = nn.Linear(60, 25).to(dtype)
    return HeadStack.initialised(head, count, torch.Generator().manual_seed(seed), std).parameters["weight"]


@pytest.mark.parametrize("std", [0.1, 2.0])
def test_moments_are_those_of_the_normal_distribution(std):
    """60,000 weights; every bound is 4.5 standard errors wide."""
    z = weights(std=std).double().flatten() / std
    error = 4.5 / len(z) ** 0.5
    assert abs(z.mean()) < error
    assert abs(z.square().mean() - 1) < error * 2**0.5
    assert abs(z.pow(3).mean()) < error * 15**0.5
    assert abs(z.pow(4).mean() - 3) < error * 96**0.5


def test_heads_units_and_inputs_are_independent():
    """Covariances between heads, between units and between inputs are 0 within 5 standard errors."""
    z = weights().double() / 0.1
    for axis in range(3):
        rows = z.movedim(axis, 0).flatten(1)
        covariance = rows @ rows.T / rows.shape[1]
        off_diagonal = covariance - covariance.diagonal().diag()
        assert off_diagonal.abs().max() < 5 / rows.shape[1] ** 0.5


def test_the_default_size_is_the_papers():
    head = nn.Linear(60, 25)
    default = HeadStack.initialised(head, 40, torch.Generator().manual_seed(0)).parameters["weight"]
    assert torch.equal(default, weights(std=0.1))


def test_biases_are_zero_in_every_layer():
    stack = HeadStack.initialised(MLP((6, 5, 4, 3)), 4, torch.Generator().manual_seed(0))
    for name, value in stack.parameters.items():
        assert value.count_nonzero() == (0 if name.endswith("bias") else value.numel())


def test_convolutions_are_drawn_and_other_layers_keep_their_values():
    norm, convolution = nn.LayerNorm(6), nn.Conv1d(1, 2, 3)
    nn.init.constant_(norm.weight, 1.5)
    nn.init.constant_(norm.bias, 0.5)
    head = nn.Sequential(norm, nn.Unflatten(1, (1, 6)), convolution, nn.Flatten(), nn.Linear(8, 3))
    stack = HeadStack.initialised(head, 2, torch.Generator().manual_seed(0), std=0.1)
    assert stack.parameters["0.weight"].tolist() == [[1.5] * 6] * 2
    assert stack.parameters["0.bias"].tolist() == [[0.5] * 6] * 2
    assert stack.parameters["2.bias"].tolist() == [[0.0] * 2] * 2
    drawn = stack.parameters["2.weight"]
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], convolution.weight)
    stack.parameters["0.weight"][0] = 7.0
    assert stack.parameters["0.weight"][1].tolist() == norm.weight.tolist() == [1.5] * 6


def test_a_seed_is_its_heads_and_the_next_draw_is_others():
    assert torch.equal(weights(seed=3), weights(seed=3))
    assert not torch.equal(weights(seed=3), weights(seed=4))
    stream = torch.Generator().manual_seed(3)
    first, second = (
        HeadStack.initialised(nn.Linear(60, 25), 2, stream).parameters["weight"] for _ in range(2)
    )
    assert not torch.equal(first, second)


def test_the_architectures_own_weights_do_not_matter():
    stacks = [HeadStack.initialised(MLP((6, 5, 3)), 2, torch.Generator().manual_seed(0)) for _ in range(2)]
    assert all(torch.equal(stacks[0].parameters[n], stacks[1].parameters[n]) for n in stacks[0].parameters)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_seed_is_the_same_heads_in_every_dtype(dtype):
    found = weights(dtype=dtype)
    assert found.dtype == dtype
    assert torch.equal(found, weights().to(dtype))


def test_draws_are_made_on_the_cpu_whatever_the_default_device():
    """The meta device has no generator: a draw on it would raise."""
    head = nn.Linear(60, 25)
    with torch.device("meta"):
        found = HeadStack.initialised(head, 40, torch.Generator().manual_seed(0)).parameters["weight"]
    assert torch.equal(found, weights())


def test_the_callers_random_numbers_and_default_dtype_are_untouched():
    head = nn.Linear(60, 25)
    before = torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        found = HeadStack.initialised(head, 40, torch.Generator().manual_seed(0)).parameters["weight"]
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(found, weights())


@pytest.mark.parametrize(("count", "std", "named"), [(0, 0.1, "count"), (-1, 0.1, "count"), (2, -0.1, "std")])
def test_settings_out_of_range_are_refused(count, std, named):
    with pytest.raises(ValueError, match=f"`{named}` must .*; got -?0?"):
        HeadStack.initialised(nn.Linear(3, 2), count, torch.Generator(), std)
