"""A stack of heads gives what its heads give one by one."""

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
