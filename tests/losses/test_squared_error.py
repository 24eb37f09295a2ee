"""Squared error against one-hot targets: the formula, its gradient, and its minimum."""

import pytest
import torch

from clearance import Outputs
from clearance.losses import SquaredErrorLoss
from clearance.losses.squared_error import squared_error


def random_logits(*shape, seed=0):
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_equals_the_formula_sample_by_sample(leading):
    logits, labels = random_logits(*leading, 5, 4), torch.tensor([0, 3, 1, 2, 3])
    found = squared_error(logits, labels)
    assert found.shape == (*leading, 5)
    for head, losses in zip(logits.reshape(-1, 5, 4), found.reshape(-1, 5), strict=True):
        for z, label, loss in zip(head.tolist(), labels.tolist(), losses.tolist(), strict=True):
            expected = sum((value - (c == label)) ** 2 for c, value in enumerate(z))
            assert loss == pytest.approx(expected, rel=1e-12)


def test_it_is_zero_exactly_at_the_target():
    labels = torch.tensor([0, 3, 1])
    targets = torch.eye(4)[labels]
    assert (squared_error(targets, labels) == 0).all()
    assert (squared_error(targets + 0.5, labels) == 1).all()


def test_gradient_is_twice_the_residual_over_the_batch():
    logits, labels = random_logits(5, 4).requires_grad_(), torch.tensor([0, 3, 1, 2, 3])
    SquaredErrorLoss()(Outputs(logits, logits, torch.nn.Identity()), labels).total.backward()
    torch.testing.assert_close(logits.grad, 2 * (logits.detach() - torch.eye(4)[labels]) / 5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_squared_in_float32(dtype):
    """300^2 is infinite in float16."""
    found = squared_error(torch.full((1, 4), 300.0, dtype=dtype), torch.tensor([2]))
    assert found.dtype == torch.float32
    assert float(found) == 3 * 300.0**2 + 299.0**2
