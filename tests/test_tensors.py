"""What travels between classifier and loss."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from clearance import LossTerms, Outputs


@pytest.fixture
def outputs():
    images = torch.randn(4, 5, requires_grad=True)
    features = 2 * images
    head = nn.Linear(5, 3)
    return Outputs(features, head(features), head, {"input": images})


def test_another_head_reads_the_same_features_and_graph(outputs):
    other = nn.Linear(5, 2)
    seen = outputs.with_head(other)
    assert seen.features is outputs.features
    assert seen.activations is outputs.activations
    assert seen.head is other
    assert torch.equal(seen.logits, other(outputs.features))
    seen.logits.sum().backward()
    expected = 2 * other.weight.sum(dim=0).expand(4, 5)
    torch.testing.assert_close(outputs.activations["input"].grad, expected)


def test_what_another_head_reads_leaves_the_first_alone(outputs):
    logits, head = outputs.logits, outputs.head
    outputs.with_head(nn.Linear(5, 2))
    assert outputs.logits is logits
    assert outputs.head is head
    with pytest.raises(dataclasses.FrozenInstanceError):
        outputs.logits = None


def test_total_is_the_sum_and_carries_the_gradient_of_every_term():
    a, b = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    loss = LossTerms({"first": a**2, "second": 5 * b})
    assert loss.total.ndim == 0
    assert loss.total.item() == 19.0
    gradients = torch.autograd.grad(loss.total, (a, b))
    assert [gradient.item() for gradient in gradients] == [4.0, 5.0]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_term_that_is_not_finite_shows_in_the_total(bad):
    assert not LossTerms({"good": torch.tensor(1.0), "bad": torch.tensor(bad)}).total.isfinite()


def test_what_a_tensor_has_and_terms_do_not_names_the_total():
    terms: Any = LossTerms({"cross_entropy": torch.tensor(1.0)})
    for calculate in (lambda: terms / 2, lambda: 2 * terms, lambda: terms + terms, lambda: float(terms)):
        with pytest.raises(TypeError, match=r"no number to calculate with; the number is \.total"):
            calculate()
    with pytest.raises(ValueError, match="at least one term"):
        LossTerms({})
    with pytest.raises(AttributeError, match=r"no 'backward'; the number is .total"):
        terms.backward()
