"""A stack of heads gives what its heads give one by one, and begins as they do."""

import pytest
import torch
from torch import nn

from clearance.heads import MLP, HeadStack


@pytest.fixture
def inputs():
    draws = torch.Generator().manual_seed(5)
    shared = torch.randn(4, 6, generator=draws, dtype=torch.float64)
    return shared, torch.randn(3, 4, 6, generator=draws, dtype=torch.float64)


def one_by_one(stack, features):
    own = features.ndim == 3
    return torch.stack([stack[k](features[k] if own else features) for k in range(len(stack))])


def test_forward_equals_each_module(any_head, fresh, inputs):
    stack = fresh(any_head(6, 6))
    for features in inputs:
        assert stack(features).shape == (3, 4, 6)
        torch.testing.assert_close(stack(features), one_by_one(stack, features), rtol=1e-12, atol=1e-12)


def test_gradient_with_respect_to_features_equals_each_module(any_head, fresh, inputs):
    stack = fresh(any_head(6, 6))
    for features in inputs:
        weights = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
        gradients = []
        for logits_of in (stack, lambda z: one_by_one(stack, z)):
            leaf = features.clone().requires_grad_()
            (logits_of(leaf) * weights).sum().backward()
            gradients.append(leaf.grad)
        torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


def test_second_derivatives_reach_features(any_head, fresh, inputs):
    """Losses that divide by a gradient's norm differentiate a stack twice."""
    stack = fresh(any_head(6, 6))
    leaf = inputs[0].clone().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda z: stack(z).square(), leaf)


def test_a_head_is_a_frozen_module_of_its_own(any_head, fresh):
    stack = fresh(any_head(6, 6))
    head = stack[1]
    assert type(head) is type(stack.architecture)
    assert not any(p.requires_grad for p in head.parameters())
    for name, value in head.named_parameters():
        assert torch.equal(value, stack.parameters[name][1])
        value.add_(1)
        assert not torch.equal(value, stack.parameters[name][1])
    assert all(p.requires_grad for p in stack.architecture.parameters())


def test_heads_are_counted_and_iterated(fresh):
    stack = fresh(nn.Linear(6, 3).double(), count=4)
    assert len(stack) == 4
    assert [torch.equal(h.weight, stack.parameters["weight"][k]) for k, h in enumerate(stack)] == [True] * 4
    with pytest.raises(IndexError):
        stack[4]


@pytest.mark.parametrize("chosen", [torch.tensor([2, 0]), torch.tensor([True, False, True])])
def test_select_takes_heads_by_number_or_mask(chosen, fresh, inputs):
    stack = fresh(MLP((6, 4, 3)).double())
    torch.testing.assert_close(stack.select(chosen)(inputs[0]), stack(inputs[0])[chosen])


def test_a_stack_of_one_is_a_copy(any_head, inputs):
    head = any_head(6, 6)
    stack = HeadStack.of(head)
    expected = head(inputs[0]).detach()
    torch.testing.assert_close(stack(inputs[0])[0], expected, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        next(head.parameters()).zero_()
    torch.testing.assert_close(stack(inputs[0])[0], expected, rtol=1e-12, atol=1e-12)


def test_predictions_are_the_largest_logits_whatever_the_chunk(any_head, fresh, inputs):
    stack = fresh(any_head(6, 6))
    expected = one_by_one(stack, inputs[0]).argmax(dim=-1)
    for elements in (1, 40, 2**24):
        assert torch.equal(stack.predictions(inputs[0], chunk_elements=elements), expected)


def test_a_chunk_bounds_the_hidden_layer_of_all_heads(fresh):
    """3 heads with 8 hidden units: 24 elements a sample, so 50 elements are 2 samples."""
    sizes = []

    class Watched(nn.Module):
        def forward(self, features):
            sizes.append(len(features))
            return features

    stack = fresh(nn.Sequential(Watched(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double())
    stack.predictions(torch.zeros(7, 6, dtype=torch.float64), chunk_elements=50)
    assert sizes == [2, 2, 2, 1]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_not_finite_predict_no_class(bad, fresh, inputs):
    stack = fresh(nn.Linear(6, 3).double())
    stack.parameters["bias"][1, 2] = bad
    found = stack.predictions(inputs[0])
    assert (found[1] == -1).all()
    assert (found[[0, 2]] >= 0).all()
    features = inputs[0].clone()
    features[3, 0] = torch.nan
    assert (fresh(nn.Linear(6, 3).double()).predictions(features) == -1).tolist() == [
        [False] * 3 + [True]
    ] * 3


def test_buffers_are_refused():
    for head in (MLP((4, 5, 3), norm="batch"), nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))):
        with pytest.raises(ValueError, match=r"must not hold buffers; got .*running_mean.*nn\.LayerNorm"):
            HeadStack.initialised(head, 2, torch.Generator())


def test_a_layer_that_is_there_twice_is_refused():
    shared = nn.Linear(4, 4)
    head = nn.Sequential(shared, nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), shared)
    with pytest.raises(ValueError, match=r"must not hold one layer twice; got Linear at \['0', '4'\]"):
        HeadStack.of(head)


@pytest.mark.filterwarnings(
    "ignore"
)  # that weight_norm is deprecated, and that vmap runs it one head after the other
def test_a_layer_whose_weight_is_computed_is_not_taken_for_a_linear_one(fresh, inputs):
    stack = fresh(nn.utils.weight_norm(nn.Linear(6, 4)))
    size, direction, bias = (stack.parameters[name] for name in ("weight_g", "weight_v", "bias"))
    weight = size * direction / direction.norm(dim=2, keepdim=True)
    torch.testing.assert_close(stack(inputs[0]), inputs[0] @ weight.mT + bias[:, None])


@pytest.mark.parametrize("part", ["0", ""])
def test_a_hook_on_a_head_or_on_a_layer_of_it_runs(part, fresh, inputs):
    head = MLP((6, 5, 3))
    stack = fresh(head)
    before = stack(inputs[0])
    handle = head.get_submodule(part).register_forward_hook(lambda _module, _args, out: 2 * out)
    assert not torch.equal(stack(inputs[0]), before)
    torch.testing.assert_close(stack(inputs[0]), one_by_one(stack, inputs[0]), rtol=1e-12, atol=1e-12)
    handle.remove()
    assert torch.equal(stack(inputs[0]), before)


def test_a_tensor_that_two_layers_share_is_drawn_once():
    head = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    head[2].weight = head[0].weight
    stack = HeadStack.initialised(head, 2, torch.Generator().manual_seed(0))
    assert set(stack.parameters) == {"0.weight", "0.bias", "2.bias"}


def test_a_head_without_parameters_is_refused():
    with pytest.raises(ValueError, match=r"must have parameters; got Identity\(\)"):
        HeadStack(nn.Identity(), {})


@pytest.mark.parametrize(
    ("weight", "bias", "named"),
    [
        ((2, 3, 5), (2, 3), "weight"),
        ((2, 3, 4), (2, 4), "bias"),
        ((3, 4), (2, 3), "weight"),
        ((2, 3, 4), (5, 3), "bias"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(weight, bias, named):
    with pytest.raises(ValueError, match=f"parameter '{named}' must have shape .K, 3.*; got "):
        HeadStack(nn.Linear(4, 3), {"weight": torch.zeros(weight), "bias": torch.zeros(bias)})


@pytest.mark.parametrize("names", [("weight",), ("weight", "bias", "scale"), ()])
def test_names_that_do_not_fit_are_refused(names):
    with pytest.raises(ValueError, match=r"`parameters` must name \['bias', 'weight'\]; got "):
        HeadStack(nn.Linear(4, 3), {name: torch.zeros(2, 3, 4) for name in names})


# Fresh heads: N(0, std^2) weights, zero biases, the same for the same seed (sheet, 1.4: init 0.1).


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


class Cosine(nn.Module):
    """A head with a matrix of its own."""

    def __init__(self):
        super().__init__()
        self.directions = nn.Parameter(torch.ones(3, 6))

    def forward(self, features):
        return nn.functional.normalize(features, dim=-1) @ nn.functional.normalize(self.directions, dim=-1).T


@pytest.mark.parametrize("make", [Cosine, lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))])
def test_no_matrix_of_a_trained_head_is_kept(make):
    head = make()
    stack = HeadStack.initialised(head, 2, torch.Generator().manual_seed(0), std=0.1)
    for name, value in head.named_parameters():
        if value.ndim > 1:
            drawn = stack.parameters[name]
            assert not torch.equal(drawn[0], drawn[1])
            assert bool((drawn != value).all())


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


def test_a_head_of_a_stack_has_the_precision_in_which_it_was_trained():
    trained = HeadStack(
        nn.Linear(3, 2),
        {"weight": torch.full((1, 2, 3), 0.1).double() / 3, "bias": torch.zeros(1, 2).double()},
    )
    assert torch.equal(trained[0].get_parameter("weight"), trained.parameters["weight"][0])


@pytest.mark.parametrize(("count", "std", "named"), [(0, 0.1, "count"), (-1, 0.1, "count"), (2, -0.1, "std")])
def test_settings_out_of_range_are_refused(count, std, named):
    with pytest.raises(ValueError, match=f"`{named}` must .*; got -?0?"):
        HeadStack.initialised(nn.Linear(3, 2), count, torch.Generator(), std)
