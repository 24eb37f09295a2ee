"""Distances under one scale of each dimension: one pass and one back say what single operations say."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from clearance.heads import _class_blocks, half_distances
from clearance.heads._class_rows import joined_rows
from clearance.heads._shared_scale import shared_scale_pass


@pytest.fixture(params=[1, 3 * 7 * 8, 2**21], ids=["one row a block", "three rows", "one block"])
def blocks(request, monkeypatch):
    """Blocks so small that several of them make a table, and one that holds all."""
    monkeypatch.setattr(_class_blocks, "CPU_BLOCK", request.param)


def inputs_of(width=7, classes=4, count=11, scaled=True):
    draws = torch.Generator().manual_seed(3)
    x, means, root = (
        torch.randn(*shape, generator=draws, dtype=torch.float64).requires_grad_()
        for shape in ((count, width), (classes, width), (width,))
    )
    return [x, means, root] if scaled else [x, means]


def in_one_pass(x, means, root=None):
    """Distances, and something of rows that gives its gradient to the pass."""
    made = shared_scale_pass(x, means, root)
    labels = torch.arange(len(x)) % len(means)
    return made.half_distances, (x - joined_rows(made.means, labels)).square().sum(dim=1)


def by_hand(x, means, root=None):
    scale = torch.ones(()) if root is None else root
    offsets = x[:, None] - means
    own = offsets[torch.arange(len(x)), torch.arange(len(x)) % len(means)]
    return 0.5 * (offsets * scale).square().sum(dim=2), own.square().sum(dim=1)


WANTED = [(True, wanted) for wanted in ((0, 1, 2), (0,), (1,), (2,), (0, 2))]
WANTED += [(False, wanted) for wanted in ((0, 1), (0,), (1,))]
CASES = [(*case, parts) for case in WANTED for parts in ((0,), (0, 1))] + [(False, (0, 1), (1,))]


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(("scaled", "wanted", "parts"), CASES)
def test_values_and_gradients_are_those_of_the_definition(scaled, wanted, parts):
    inputs = inputs_of(scaled=scaled)
    for k, one in enumerate(inputs):
        one.requires_grad_(k in wanted)
    gradients = []
    for way in (in_one_pass, by_hand):
        found = way(*inputs)
        draws = torch.Generator().manual_seed(5)
        weights = [torch.randn(one.shape, generator=draws, dtype=torch.float64) for one in found]
        value = torch.stack([(found[k] * weights[k]).sum() for k in parts]).sum()
        chosen = [inputs[k] for k in wanted]
        gradients.append([*found, *torch.autograd.grad(value, chosen)])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("scaled", [True, False])
def test_first_and_second_derivatives_agree_with_differences(scaled):
    inputs = inputs_of(width=3, classes=2, count=3, scaled=scaled)
    assert gradcheck(in_one_pass, inputs)
    assert gradgradcheck(in_one_pass, inputs)


def test_distances_that_rounding_makes_negative_are_0_and_pull_at_nothing():
    draws = torch.Generator().manual_seed(0)
    means = 1e3 * torch.randn(60, 41, generator=draws)
    x = (means + 0.01 * torch.randn(60, 41, generator=draws)).requires_grad_()
    distances = shared_scale_pass(x, means, None).half_distances
    own = distances.diagonal()
    assert 0 < int((own == 0).sum()) < 60  # rounding went to both sides
    own.sum().backward()
    assert x.grad is not None
    assert torch.equal((x.grad == 0).all(dim=1), own == 0)
    torch.testing.assert_close(distances, half_distances(x, means), rtol=1e-5, atol=2.0)
