"""Weak heads by gradient: Algorithm 1 of Sato et al. (2019), line 5, as a literal loop."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance.heads import MLP, GradientHeads, HeadStack, HeadTraining

C, K, D = 4, 3, 10


def class_balanced(per_class, seed=0):
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(C).repeat_interleave(per_class).expand(K, -1)
    features = torch.randn(K, C * per_class, D, generator=draws, dtype=torch.float64)
    return 20 * (features + 2 * torch.eye(C, D, dtype=torch.float64)[labels]), labels


def algorithm_1(head, features, labels, *, steps, lr, momentum, lambda_):
    """argmin over theta of  mean_i L(C_theta(f_i), t_i) + lambda ||theta||^2  (Eq. 4), biases included."""
    velocity = [torch.zeros_like(p) for p in head.parameters()]
    for _ in range(steps):
        penalty = sum(p.square().sum() for p in head.parameters())
        loss = F.cross_entropy(head(features), labels) + lambda_ * penalty
        gradients = torch.autograd.grad(loss, list(head.parameters()))
        with torch.no_grad():
            for parameter, v, gradient in zip(head.parameters(), velocity, gradients, strict=True):
                v.mul_(momentum).add_(gradient)
                parameter.sub_(lr * v)
    return head


@pytest.mark.parametrize("per_class", [1, 5], ids=["gram", "dense"])
@pytest.mark.parametrize("make", [lambda: nn.Linear(D, C), lambda: MLP((D, 8, C))], ids=["linear", "mlp"])
def test_1_3_draw_equals_algorithm_1_with_w_twice_lambda(make, per_class):
    features, labels = class_balanced(per_class)
    architecture = make().double()
    training = HeadTraining(steps=32, lr=0.05, momentum=0.9, weight_decay=2 * 0.005)
    weak = GradientHeads(training, init_std=0.3)
    drawn = weak.draw(architecture, features, labels, torch.Generator().manual_seed(1)).stack
    fresh = HeadStack.initialised(architecture, K, torch.Generator().manual_seed(1), 0.3)
    unit = features.square().mean().sqrt() * math.sqrt(D / 128)
    for k in range(K):
        head = fresh[k].requires_grad_(requires_grad=True)
        algorithm_1(head, features[k] / unit, labels[k], steps=32, lr=0.05, momentum=0.9, lambda_=0.005)
        torch.testing.assert_close(
            drawn[k](features[k]), head(features[k] / unit).detach(), rtol=1e-10, atol=1e-10
        )


def test_every_draw_starts_from_fresh_weights():
    features, labels = class_balanced(per_class=2)
    stream = torch.Generator().manual_seed(1)
    first, second = (GradientHeads().draw(nn.Linear(D, C), features, labels, stream).stack for _ in range(2))
    assert not torch.allclose(first.parameters["weight"], second.parameters["weight"], rtol=1e-3)


def test_each_head_learns_its_own_set():
    """Labels of head k are shifted by k: each must be right on its own set and wrong on the others'."""
    features, labels = class_balanced(per_class=5)
    features, labels = features[:1].expand(K, -1, -1), (labels + torch.arange(K)[:, None]) % C
    strong = GradientHeads(HeadTraining(steps=100, lr=0.1))
    drawn = strong.draw(nn.Linear(D, C).double(), features, labels, torch.Generator().manual_seed(1))
    assert torch.equal(drawn.stack.predictions(features[0]), labels)


def test_a_loss_of_ones_own_is_used():
    features, labels = class_balanced(per_class=2)

    def nothing(logits, labels):
        return 0 * logits.sum(dim=-1)

    idle = GradientHeads(HeadTraining(steps=5, lr=0.1), loss=nothing)
    drawn = idle.draw(nn.Linear(D, C).double(), features, labels, torch.Generator().manual_seed(1)).stack
    fresh = HeadStack.initialised(nn.Linear(D, C).double(), K, torch.Generator().manual_seed(1))
    unit = features.square().mean().sqrt() * math.sqrt(D / 128)
    torch.testing.assert_close(drawn.parameters["weight"], fresh.parameters["weight"] / unit)


@pytest.mark.parametrize("std", [0.0, -0.1, float("nan")])
def test_fresh_weights_of_no_size_are_refused(std):
    with pytest.raises(ValueError, match="`init_std` must be a finite number above 0"):
        GradientHeads(init_std=std)
