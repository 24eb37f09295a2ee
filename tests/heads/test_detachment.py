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


def trained_on(features, labels):
    """K heads of one linear layer, trained on these features under the squared error."""
    stack = HeadStack.initialised(nn.Linear(D, C).double(), K, torch.Generator().manual_seed(1))
    return train_heads(stack, features, labels, HeadTraining(steps=30, lr=0.05), loss=squared).stack


def mean_loss(stack, features, labels):
    return squared(stack(features), labels).mean()


def test_q09_the_feature_gradient_holds_heads_fixed(data):
    """It is 2 (A f - v) / N with A = mean_k W^T W v = mean_k W^T (t - b); not the total derivative."""
    features, labels = data
    leaf = features.clone().requires_grad_()
    stack = trained_on(leaf, labels)
    mean_loss(stack, leaf, labels).backward()

    weight, bias = stack.parameters["weight"], stack.parameters["bias"]
    A = (weight.mT @ weight).mean(dim=0)
    targets = torch.eye(C, dtype=torch.float64)[labels]
    v = torch.stack([(targets - bias[k]) @ weight[k] for k in range(K)]).mean(dim=0)
    torch.testing.assert_close(leaf.grad, 2 * (features @ A - v) / N, rtol=1e-11, atol=1e-13)

    total = torch.zeros_like(features)
    for i in range(N):
        for j in range(D):
            step = torch.zeros_like(features)
            step[i, j] = 1e-5
            up, down = (
                mean_loss(trained_on(f, labels), f, labels) for f in (features + step, features - step)
            )
            total[i, j] = (up - down) / 2e-5
    assert (total - leaf.grad).norm() > 0.2 * leaf.grad.norm()


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


def test_3_5_4_a_step_through_heads_leaves_them_as_they_are(data):
    """No retained graph is needed: the same heads serve several steps."""
    features, labels = data
    stack = trained_on(features, labels)
    before = {name: value.clone() for name, value in stack.parameters.items()}
    extractor = nn.Linear(D, D).double()
    optimizer = torch.optim.SGD(extractor.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        mean_loss(stack, extractor(features), labels).backward()
        optimizer.step()
    assert all(torch.equal(stack.parameters[name], value) for name, value in before.items())
