"""Softmax cross-entropy against the plain formula and its closed forms."""

import math

import pytest
import torch

from clearance import Outputs
from clearance.losses import CrossEntropyLoss
from clearance.losses.cross_entropy import cross_entropy


def random_logits(*shape, seed=0):
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_equals_the_formula_sample_by_sample(leading):
    logits, labels = random_logits(*leading, 5, 4), torch.tensor([0, 3, 1, 2, 3])
    found = cross_entropy(logits, labels)
    assert found.shape == (*leading, 5)
    for head, losses in zip(logits.reshape(-1, 5, 4), found.reshape(-1, 5), strict=True):
        for z, label, loss in zip(head.tolist(), labels.tolist(), losses.tolist(), strict=True):
            assert loss == pytest.approx(math.log(sum(math.exp(value) for value in z)) - z[label], rel=1e-12)


def test_two_logits_are_the_softplus_of_the_margin():
    margin = torch.tensor([-800.0, -3.0, 0.0, 3.0, 800.0], dtype=torch.float64)
    logits = torch.stack([margin, torch.zeros_like(margin)], dim=1)
    expected = torch.nn.functional.softplus(-margin)
    torch.testing.assert_close(cross_entropy(logits, torch.zeros(5, dtype=torch.long)), expected)


def test_a_constant_added_to_all_logits_changes_nothing():
    logits, labels = random_logits(5, 4), torch.tensor([0, 3, 1, 2, 3])
    torch.testing.assert_close(cross_entropy(logits + 1000, labels), cross_entropy(logits, labels))


def test_gradient_is_probability_minus_one_hot_over_the_batch():
    logits, labels = random_logits(5, 4).requires_grad_(), torch.tensor([0, 3, 1, 2, 3])
    CrossEntropyLoss()(Outputs(logits, logits, torch.nn.Identity()), labels).total.backward()
    expected = (logits.detach().softmax(dim=1) - torch.eye(4, dtype=torch.float64)[labels]) / 5
    torch.testing.assert_close(logits.grad, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_lose_no_more_than_they_have_lost(dtype):
    logits, labels = random_logits(5, 4).to(dtype), torch.tensor([0, 3, 1, 2, 3])
    found = cross_entropy(logits, labels)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), cross_entropy(logits.double(), labels), rtol=1e-6, atol=1e-6)


def test_a_label_of_minus_100_is_not_passed_over_where_labels_are_not_checked():
    """As in compiled code and on a GPU; torch's own function would count its loss as 0."""
    with pytest.raises(IndexError, match="-100 is out of bounds"):
        cross_entropy(torch.zeros(2, 3), torch.tensor([0, -100]))
