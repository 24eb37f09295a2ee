"""Sato et al. (2019), Proposition 3.2, on free features: the features themselves are the parameters.

Two clouds of 16 points, targets +1 and -1, and all 256 heads that one point of each gives. With the heads
theta, theta_0 fixed, the gradient of the loss with respect to a feature f with target t is

    g(f) = 2 (A f - v_t),    A = mean theta theta^T,    v_t = mean theta (t - theta_0).
"""

import math
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearance.data import ImageSet
from clearance.geometry import class_distance_normalised_variances, class_scatter
from clearance.heads import PairHeads, RidgeHeads, pair_head, ridge_is_too_strong
from clearance.models import Classifier
from clearance.objectives import SquaredErrorLoss
from clearance.regimes import FOCA, EndToEnd
from clearance.regimes._class_balanced import ClassBalancedDraws

N = 16


@dataclass
class Pull:
    """All heads of two clouds, and what they do to them."""

    theta: Tensor
    A: Tensor
    v: tuple[Tensor, Tensor]

    def gradients(self, f, g):
        return 2 * (f @ self.A - self.v[0]), 2 * (g @ self.A - self.v[1])


def pull(f, g, lambda_):
    weight, bias = pair_head(f[:, None], g[None], 1.0, -1.0, lambda_)
    theta, theta_0 = weight.flatten(0, 1), bias.flatten()
    v = tuple(((t - theta_0)[:, None] * theta).mean(dim=0) for t in (1.0, -1.0))
    return Pull(theta, theta.T @ theta / len(theta), (v[0], v[1]))


def clouds(d, n=N, seed=0, std=0.5, distance=2.0) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    axis = torch.eye(d, dtype=torch.float64)[0] * distance / 2
    plus, minus = (std * torch.randn(n, d, generator=draws, dtype=torch.float64) for _ in range(2))
    return plus + axis, minus - axis


def descend(f, g, lambda_, steps, size=None) -> tuple[Tensor, Tensor]:
    """Heads made anew at every step; its size is 1 / (2 largest eigenvalue of A) unless it is given."""
    for _ in range(steps):
        pulled = pull(f, g, lambda_)
        step = 0.5 / float(torch.linalg.eigvalsh(pulled.A)[-1]) if size is None else size
        of_f, of_g = pulled.gradients(f, g)
        f, g = f - step * of_f, g - step * of_g
    return f, g


@dataclass
class Spread:
    """Distance D of the centroids, and rms scatter along that axis and off it."""

    D: float
    along: float
    off: float


def spread(f, g):
    axis = f.mean(dim=0) - g.mean(dim=0)
    D = axis.norm()
    deviations = torch.cat([f - f.mean(dim=0), g - g.mean(dim=0)])
    along = deviations @ (axis / D)
    off = deviations - along[:, None] * axis / D
    return Spread(float(D), float(along.square().mean().sqrt()), float(off.square().sum(1).mean().sqrt()))


@pytest.fixture(scope="module")
def trajectory():
    """The two clouds in the plane after 100, 300, 1000 and 3000 steps, lambda = 1e-6."""
    states, done, state = {}, 0, clouds(2)
    for steps in (100, 300, 1000, 3000):
        state = descend(*state, 1e-6, steps - done)
        states[steps], done = state, steps
    return states


@pytest.mark.parametrize("d", [2, 5])
def test_q01_with_the_heads_fixed_one_exact_step_makes_each_class_a_point(d):
    """f = A^-1 v_t does not depend on the sample; afterwards all heads are one, and A has rank 1."""
    f, g = clouds(d)
    pulled = pull(f, g, 1e-6)
    inverse = torch.linalg.inv(2 * pulled.A)
    of_f, of_g = pulled.gradients(f, g)
    f, g = f - of_f @ inverse, g - of_g @ inverse
    after = spread(f, g)
    assert after.D > 0.1
    assert (f - f.mean(dim=0)).abs().max() < 1e-12 * after.D
    assert (g - g.mean(dim=0)).abs().max() < 1e-12 * after.D
    assert torch.linalg.matrix_rank(pulled.A) == d
    assert torch.linalg.matrix_rank(pull(f, g, 1e-6).A, rtol=1e-10) == 1


@pytest.mark.parametrize("lambda_", [1e-6, 0.3, 10.0])
def test_q02_on_point_like_features_all_heads_are_one_and_only_push_apart(lambda_):
    """|g| = tau^2 lambda D / (D^2 + lambda)^2 along Delta, loss = (lambda / (D^2 + lambda))^2, tau = 2."""
    centre = torch.tensor([[1.0, 2.0, -0.5], [0.2, -0.4, 0.7]], dtype=torch.float64)
    f, g = centre[0].expand(N, 3), centre[1].expand(N, 3)
    delta = centre[0] - centre[1]
    D = float(delta.norm())
    pulled = pull(f, g, lambda_)
    torch.testing.assert_close(pulled.theta, pulled.theta[:1].expand(N * N, 3), rtol=1e-13, atol=0.0)
    of_f, of_g = pulled.gradients(f, g)
    expected = 4 * lambda_ * delta / (D**2 + lambda_) ** 2
    torch.testing.assert_close(of_f[0], -expected, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(of_g[0], expected, rtol=1e-10, atol=1e-13)
    weight, bias = pair_head(centre[0], centre[1], 1.0, -1.0, lambda_)
    loss = float(weight @ centre[0] + bias - 1) ** 2
    assert loss == pytest.approx((lambda_ / (D**2 + lambda_)) ** 2, rel=1e-9, abs=1e-13)


def test_q03_separable_features_that_are_not_point_like_are_not_stationary():
    """lambda = 0, 300 sets in 2 to 5 dimensions; point-like ones are stationary."""
    largest = []
    for seed in range(300):
        f, g = clouds(2 + seed % 4, seed=seed, std=0.3, distance=4.0)
        largest.append(max(float(each.abs().max()) for each in pull(f, g, 0.0).gradients(f, g)))
    assert min(largest) > 0.05
    f, g = (cloud.mean(dim=0, keepdim=True).expand(N, -1) for cloud in clouds(3))
    assert max(float(each.abs().max()) for each in pull(f, g, 0.0).gradients(f, g)) < 1e-12


def test_q04_off_axis_scatter_over_distance_falls_as_one_over_the_root_of_the_steps(trajectory):
    """(rms off-axis scatter) / D -> sqrt((d - 1) / (4 d k)) after k steps, whatever the start."""
    found = {(2, k): spread(*trajectory[k]) for k in (300, 1000, 3000)}
    for d in (3, 5):
        found[d, 1000] = spread(*descend(*clouds(d, n=20), 1e-9, 1000))
    for (d, k), after in found.items():
        assert after.off / after.D == pytest.approx(math.sqrt((d - 1) / (4 * d * k)), rel=0.03), (d, k)


def test_q05_distance_times_off_axis_scatter_is_conserved(trajectory):
    products = [after.D * after.off for after in (spread(*trajectory[k]) for k in (100, 300, 1000, 3000))]
    assert products == pytest.approx([products[0]] * 4, rel=2e-3)
    assert [spread(*trajectory[k]).D for k in (100, 300, 1000, 3000)] == pytest.approx(
        [2.48, 3.18, 4.26, 5.59], rel=5e-3
    )


def test_q05_scatter_along_the_axis_vanishes_fast_and_the_classes_move_apart():
    """Plain steps, lambda = 1e-3."""
    states = [clouds(2)]
    for steps, size in ((100, 0.05), (1980, 0.25)):  # up to the times 5 and 500
        states.append(descend(*states[-1], 1e-3, steps, size))
    start, early, late = (spread(*state) for state in states)
    assert start.along > 0.4
    assert early.along < 1e-3
    assert late.along < 5e-6
    assert late.off > 0.1
    assert start.D < early.D < late.D


def test_q05_under_a_large_penalty_the_distance_grows_as_the_fourth_root_of_time():
    """D ~ (8 tau^2 lambda t)^(1/4), tau = 2, lambda = 1: the features grow without end."""
    middle = descend(*clouds(2), 1.0, 2000, 0.25)
    late = descend(*middle, 1.0, 3800, 2.5)
    distances = [spread(*state).D for state in (middle, late)]
    assert distances == pytest.approx([(32 * t) ** 0.25 for t in (500, 1e4)], rel=0.06)


def test_q06_in_the_end_all_heads_agree(trajectory):
    def least_cosine(state: tuple[Tensor, Tensor]) -> float:
        theta = pull(*state, 1e-6).theta
        return float(F.cosine_similarity(theta, theta.mean(dim=0, keepdim=True)).min())

    assert least_cosine(clouds(2)) < 0.9
    assert least_cosine(trajectory[1000]) > 0.998


def test_q07_sampled_heads_give_the_exact_gradient_with_an_error_of_one_over_k():
    """Class-balanced draws and PairHeads; the error of one head is known from all 256 pairs."""
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
        drawn = PairHeads(lambda_).draw(nn.Linear(d, 2), features[rows], labels[rows], stream).stack
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
    regime = EndToEnd(SquaredErrorLoss())
    step = 0.05  # of every feature on its own, as in Q4
    groups = [
        {"params": model.extractor.parameters(), "lr": step * 2 * N},
        {"params": head.parameters(), "lr": step},
    ]
    training = regime.start(model, data, torch.optim.SGD(groups), regime.generators(0))
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
        self.inner, self.features = PairHeads(penalty), torch.empty(0)

    def draw(self, architecture, features, labels, generator, least_unit=None):
        self.features = features
        return self.inner.draw(architecture, features, labels, generator, least_unit)


def test_q09_a_step_of_foca_takes_heads_as_fixed():
    """Its gradient is 2 (A f - v_t) of the heads drawn, not the derivative through how heads are made.

    Two logits halve it (||z - e||^2 = (s - t)^2 / 2), and the objective is the mean over 2 N samples.
    """
    lambda_, d = 0.3, 3
    model, data = free_world(d)
    heads = Watched(lambda_)
    regime = FOCA(SquaredErrorLoss(), heads, per_class=1, heads=5)
    optimizer = torch.optim.SGD(regime.trainable(model), lr=0.1)
    training = regime.start(model, data, optimizer, regime.generators(0))
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
