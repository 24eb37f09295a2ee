"""A head is a constant of the step that uses it: no gradient into it, none through its training."""

import pytest
import torch
from torch import nn

from clearance.heads import MLP, GradientHeads, HeadStack, HeadTraining, train_heads

C, K, D, N = 3, 2, 4, 6


@pytest.fixture
def data():
    draws = torch.Generator().manual_seed(0)
    features = torch.randn(N, D, generator=draws, dtype=torch.float64)
    return features, torch.arange(N) % C


def squared(logits, labels):
    targets = torch.eye(C, dtype=logits.dtype)[labels]
    return (logits - targets).square().sum(dim=-1)


def mean_loss(stack, features, labels):
    return squared(stack(features), labels).mean()


@pytest.mark.parametrize("n", [N, 2], ids=["dense", "gram"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(D, C),
        lambda: MLP((D, 5, C)),
        lambda: nn.Sequential(nn.LayerNorm(D), nn.Linear(D, C)),
    ],
    ids=["linear", "mlp", "torch.func"],
)
def test_3_5_4_no_gradient_path_between_features_and_heads(make, n, data):
    features, labels = data[0][:n].clone().requires_grad_(), data[1][:n]
    architecture = make().double()
    initial = {
        name: value.detach().expand(K, *value.shape).clone().requires_grad_()
        for name, value in architecture.named_parameters()
    }
    trained = train_heads(HeadStack(architecture, initial), 1 * features, labels, HeadTraining(steps=3)).stack
    drawn = (
        GradientHeads()
        .draw(architecture, 1 * features.expand(K, -1, -1), labels.expand(K, -1), torch.Generator())
        .stack
    )
    for stack in (trained, drawn):
        assert not any(value.requires_grad or value.grad_fn for value in stack.parameters.values())
    mean_loss(trained, features, labels).backward()
    assert features.grad.abs().sum() > 0
    for value in (*trained.parameters.values(), *initial.values(), *architecture.parameters()):
        assert value.grad is None
