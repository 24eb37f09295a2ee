"""Proposition 3.2 under this library's own draws, heads and training: sampling, joint training, strong heads."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearance.data import ImageSet
from clearance.geometry import class_scatter
from clearance.geometry.scatter import class_distance_normalised_variances
from clearance.heads import RidgeHeads
from clearance.heads.ridge import pair_head
from clearance.heads.weak.ridge import ridge_is_too_strong
from clearance.losses import SquaredErrorLoss
from clearance.models import Classifier
from clearance.training import FOCA, EndToEnd
from clearance.training.foca import ClassBalancedDraws
from theory.clouds import N, clouds, pull, spread


def test_q07_sampled_heads_give_the_exact_gradient_with_an_error_of_one_over_k():
    """Class-balanced draws and heads of pairs; the error of one head is known from all 256 pairs."""
    d, lambda_, trials = 3, 0.1, 2000
    f, g = clouds(d)
    features, labels = torch.cat([g, f]), torch.arange(2).repeat_interleave(N)
    targets = 2.0 * labels - 1.0

    def gradient_of_each(theta, theta_0):
        return 2 * (features @ theta.T + theta_0 - targets[:, None]).T[..., None] * theta[:, None]

    weight, bias = pair_head(f[:, None], g[None], 1.0, -1.0, lambda_)
    each = gradient_of_each(weight.flatten(0, 1), bias.flatten())
    exact = torch.cat(pull(f, g, lambda_).gradients(f, g)[::-1])
    torch.testing.assert_close(each.mean(dim=0), exact, rtol=1e-10, atol=1e-12)
    error_of_one = float((each - exact).square().sum(dim=(1, 2)).mean())
    draws, stream = ClassBalancedDraws(labels, 2), torch.Generator().manual_seed(0)
    for K in (1, 2, 4, 16):
        rows = draws.draw(trials * K, 1, stream)
        drawn = (
            RidgeHeads(lambda_ / 4, relative=False)
            .draw(nn.Linear(d, 2), features[rows], labels[rows], stream)
            .stack
        )
        theta, theta_0 = (drawn.parameters[name] for name in ("weight", "bias"))
        theta, theta_0 = theta[:, 1] - theta[:, 0], theta_0[:, 1] - theta_0[:, 0]
        means = gradient_of_each(theta, theta_0).view(trials, K, 2 * N, d).mean(dim=1)
        errors = (means - exact).square().sum(dim=(1, 2))
        assert float(errors.mean()) == pytest.approx(error_of_one / K, rel=0.15), K
        bias_of_mean = (means.mean(dim=0) - exact).square().sum()
        assert float(bias_of_mean) < 4 * error_of_one / (trials * K), K
        few = theta.view(trials, K, d)[:50]
        # Draws are with replacement, so that one pair may come twice.
        different = torch.tensor([len(pairs.unique(dim=0)) for pairs in rows.view(trials, K, 2)[:50]])
        assert torch.equal(torch.linalg.matrix_rank(few.mT @ few, rtol=1e-8), different.clamp(max=d))


class FreeFeatures(nn.Module):
    """A table with one row of features for each one-hot image."""

    def __init__(self, table):
        super().__init__()
        self.table = nn.Parameter(table.clone())

    def forward(self, images):
        return images.flatten(1).to(self.table) @ self.table


def free_world(d, head=None):
    """A model whose features are free, and its images: class 0 has target -1, class 1 has +1."""
    f, g = clouds(d)
    model = Classifier(FreeFeatures(torch.cat([g, f])), head or nn.Linear(d, 2).double())
    images = torch.eye(2 * N).view(2 * N, 1, 4, 8)
    return model, ImageSet(images, torch.arange(2).repeat_interleave(N), ("minus", "plus"))


def test_q08_one_head_trained_jointly_leaves_the_scatter_off_its_axis():
    """Its gradient has rank 1; the same features under ever new heads collapse (Q4)."""
    head = nn.Linear(2, 2).double()
    with torch.no_grad():  # z = ((1 - s) / 2, (1 + s) / 2), as one scalar head
        head.weight.copy_(torch.tensor([[-0.05, 0.02], [0.05, -0.02]]))
        head.bias.fill_(0.5)
    model, data = free_world(2, head)
    way = EndToEnd(SquaredErrorLoss())
    step = 0.05  # of every feature on its own, as in Q4
    groups = [
        {"params": model.extractor.parameters(), "lr": step * 2 * N},
        {"params": head.parameters(), "lr": step},
    ]
    training = way.start(model, data, torch.optim.SGD(groups), way.generators(0))
    table = model.extractor.table
    before = spread(table[N:].detach(), table[:N].detach())
    for _ in range(2000):
        training.step(data.images, data.labels)
    after = spread(table[N:].detach(), table[:N].detach())
    assert after.along < 0.1 * before.along
    assert after.D > before.D
    assert after.off == pytest.approx(before.off, rel=0.05)


@pytest.mark.filterwarnings("ignore:RidgeHeads are too strong")
def test_q08_heads_that_are_too_strong_stall_where_weak_ones_collapse():
    """Ridge heads, 4 classes in 4 dimensions: k = 1 is weak, k = 3 (12 samples) is not."""
    remaining = {}
    for per_class in (1, 3):
        stream = torch.Generator().manual_seed(0)
        labels = torch.arange(4).repeat_interleave(15)
        means = 1.5 * torch.randn(4, 4, generator=stream, dtype=torch.float64)
        features = means[labels] + 0.6 * torch.randn(60, 4, generator=stream, dtype=torch.float64)
        draws, heads = ClassBalancedDraws(labels, 4), RidgeHeads(1e-3, relative=False)
        for _ in range(600):
            rows = draws.draw(64, per_class, stream)
            drawn = heads.draw(nn.Linear(4, 4), features[rows], labels[rows], stream).stack
            W, b = drawn.parameters["weight"], drawn.parameters["bias"]
            A = (W.mT @ W).mean(dim=0)
            v = ((F.one_hot(labels, 4) - b[:, None]) @ W).mean(dim=0)
            features = features - (features @ A - v) / torch.linalg.eigvalsh(A)[-1]
        variances = class_distance_normalised_variances(class_scatter(features, labels, 4))
        remaining[ridge_is_too_strong(4 * per_class, 4)] = float(variances.mean())
    assert remaining[False] < 2e-4
    assert remaining[True] > 5e-3


class Watched:
    """Pair heads, and the features they were drawn for."""

    def __init__(self, penalty):
        self.inner, self.features = RidgeHeads(penalty / 4, relative=False), torch.empty(0)

    def draw(self, architecture, features, labels, generator, least_unit=None):
        self.features = features
        return self.inner.draw(architecture, features, labels, generator, least_unit)


def test_q09_a_step_of_foca_takes_heads_as_fixed():
    """Its gradient is 2 (A f - v_t) of the heads drawn, not the derivative through how heads are made.

    Two logits halve it (||z - e||^2 = (s - t)^2 / 2), and the loss is the mean over 2 N samples.
    """
    lambda_, d = 0.3, 3
    model, data = free_world(d)
    heads = Watched(lambda_)
    way = FOCA(SquaredErrorLoss(), heads, per_class=1, heads=5)
    optimizer = torch.optim.SGD(way.trainable(model), lr=0.1)
    training = way.start(model, data, optimizer, way.generators(0))
    start = model.extractor.table.detach().clone()
    loss = training.step(data.images, data.labels).total
    targets = 2.0 * data.labels - 1.0
    rows = (heads.features[:, :, None] == start).all(dim=3).int().argmax(dim=2)  # (5, 2): minus, plus
    assert torch.equal(start[rows], heads.features)

    def through_heads(features, made_from):
        minus, plus = made_from[rows].unbind(dim=1)
        theta, theta_0 = pair_head(plus, minus, 1.0, -1.0, lambda_)
        outputs = features @ theta.T + theta_0
        return theta, theta_0, ((outputs - targets[:, None]).square() / 2).mean()

    theta, theta_0, expected_loss = through_heads(start, start)
    A = theta.T @ theta / 5
    v = (targets[:, None] - theta_0) @ theta / 5
    gradient = 2 * (start @ A - v) / 2 / (2 * N)
    table = model.extractor.table
    torch.testing.assert_close(loss.detach(), expected_loss, rtol=1e-10, atol=0.0)
    torch.testing.assert_close(table.grad, gradient, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(table.detach(), start - 0.1 * gradient, rtol=1e-10, atol=1e-14)
    assert all(value.grad is None for value in model.head.parameters())
    # Finite differences through theta, at the rows that made heads.
    changed = torch.zeros_like(start)
    for i in rows.unique():
        for j in range(d):
            nudge = torch.zeros_like(start)
            nudge[i, j] = 1e-5
            up, down = (through_heads(start + s * nudge, start + s * nudge)[2] for s in (1, -1))
            changed[i, j] = (up - down) / 2e-5 - gradient[i, j]
    assert changed.norm() > 0.3 * gradient[rows.unique()].norm()
