"""What the likelihood of the L-GM loss finds, and what keeps it from falling without end."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

from clearance.data import gaussian_images
from clearance.data.digits import read_digits
from clearance.heads import GaussianMixture
from clearance.losses import GaussianMixtureLoss
from clearance.losses.gaussian_mixture import CHECK_EVERY
from clearance.models import Classifier
from clearance.training import EndToEnd, fit
from heads.mixtures import (  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
    COVARIANCES,
    mixture,
    outputs_of,
    samples,
    terms,
)

close = torch.testing.assert_close


@pytest.mark.parametrize("covariance", [one for one in COVARIANCES if one != "identity"])
def test_p15_the_likelihood_alone_finds_means_and_variances(covariance):
    """On frozen features; a distance that forgets the variance would push it to 0."""
    features, labels = samples(300)
    features = features * torch.linspace(0.5, 2.0, 7, dtype=torch.float64) + labels[:, None]
    head = mixture(covariance, priors="uniform")
    optimizer = torch.optim.LBFGS(
        [p for p in head.parameters() if p.requires_grad], max_iter=200, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss = terms(head, features, labels, 0.0, 1.0, 0.0)["likelihood"]
        loss.backward()
        return loss

    optimizer.step(closure)
    exact = copy.deepcopy(head).fit_statistics(features, labels)
    close(head.means, exact.means, rtol=0, atol=1e-3)
    close(head.log_variance().exp(), exact.log_variance().exp(), rtol=1e-3, atol=0)


def collapsible(floor, variance_prior, steps, lr=0.02):
    """Two classes whose features are free: nothing but the loss says where they lie."""
    draws = torch.Generator().manual_seed(0)
    head = GaussianMixture(2, 2, "class_diagonal", floor=floor)
    features = torch.nn.Parameter(torch.randn(8, 2, generator=draws))
    labels = torch.arange(2).repeat(4)
    with torch.no_grad():
        head.means.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    loss = GaussianMixtureLoss(0.1, 1.0, variance_prior)
    optimizer = torch.optim.SGD([features, *head.parameters()], lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        terms = loss(outputs_of(head, features), labels)
        terms.total.backward()
        optimizer.step()
    return head, terms.total.item()


@pytest.mark.filterwarnings("ignore:.*lie on their floor")
def test_p17_without_protection_the_likelihood_falls_without_end_and_with_it_it_does_not():
    """Points that move onto their mean let variances vanish: sheet 0.5."""
    values = [collapsible(1e-30, 0.0, steps) for steps in (300, 600)]
    lowest = [head.log_variance().min().item() for head, _ in values]
    assert values[1][1] < values[0][1] - 1
    assert lowest[1] < lowest[0] - 1 < -2
    held, loss = collapsible(1e-4, 0.1, 600)
    assert math.isfinite(loss)
    assert held.share_at_floor() == 0.0
    assert held.log_variance().exp().min().item() > 0.05


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*lie on their floor")
def test_p17_the_floor_alone_holds_as_well():
    head, loss = collapsible(1e-2, 0.0, 10_000)
    assert math.isfinite(loss)
    assert head.log_variance().exp().min().item() >= 0.999e-2
    assert head.share_at_floor() > 0


@pytest.mark.slow
def test_p17_a_learned_diagonal_trains_long_on_digits_without_touching_its_floor():
    """10,000 steps at the default settings."""
    train = read_digits("train")
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    model: Any = Classifier(extractor, GaussianMixture(16, 10, "diagonal"), 0.3, 0.38)
    shares = []
    result = fit(
        model, EndToEnd(GaussianMixtureLoss()), train, steps=10_000, batch_size=64,
        on_step=lambda _: shares.append(model.head.share_at_floor()),
    )  # fmt: skip
    assert result.status.good
    assert max(shares) == 0.0
    assert model.head.log_variance().exp().min().item() > 0.01
    assert result.history[-1]["classification"] < 0.05


def test_the_prior_holds_collapsed_variances_at_its_share():
    """With no scatter the likelihood and the prior balance at tau / (1 + tau)."""
    head: Any = GaussianMixture(3, 2, "diagonal").double()
    optimizer = torch.optim.LBFGS([head.raw_log_variance], max_iter=100, line_search_fn="strong_wolfe")
    features, labels = head.means.detach().repeat(3, 1), torch.arange(2).repeat(3)

    def closure():
        optimizer.zero_grad()
        found = terms(head, features, labels, 0.0, 1.0, 0.25)
        loss = found["likelihood"] + found["variance_prior"]
        loss.backward()
        return loss

    optimizer.step(closure)
    close(head.log_variance().exp(), torch.full((1, 3), 0.2, dtype=torch.float64), rtol=1e-4, atol=0)


def test_a_variance_on_its_floor_is_told_once():
    head: Any = GaussianMixture(7, 4, "diagonal")
    features, labels = samples(dtype=torch.float32)
    loss = GaussianMixtureLoss()
    for _ in range(CHECK_EVERY):
        loss.after_step(outputs_of(head, features), labels)
    torch.nn.init.constant_(head.raw_log_variance, -30.0)
    with pytest.warns(UserWarning, match="100 % of the mixture's variances lie on their floor") as told:
        loss.after_step(outputs_of(head, features), labels)
    for _ in range(2 * CHECK_EVERY):
        loss.after_step(
            outputs_of(head, features.mean() + 0 * features), labels
        )  # a warning would be an error
    assert len(told) == 1


def test_features_too_far_away_for_float32_are_told_once():
    head: Any = GaussianMixture(7, 4)
    features, labels = samples(dtype=torch.float32)
    loss = GaussianMixtureLoss()
    with pytest.warns(UserWarning, match="loses about .* nats of every class") as told:
        loss.after_step(outputs_of(head, 1e6 * features), labels)
    assert len(told) == 1
    for _ in range(2 * CHECK_EVERY):
        loss.after_step(outputs_of(head, 1e6 * features), labels)
    GaussianMixtureLoss().after_step(outputs_of(head.double(), 1e6 * features.double()), labels)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_one_class_and_one_feature_are_enough_to_train(covariance):
    head = GaussianMixture(1, 1, covariance, priors="learned")
    features = torch.tensor([[0.5], [1.5], [4.0]], requires_grad=True)
    labels = torch.zeros(3, dtype=torch.long)
    found = GaussianMixtureLoss(0.3)(outputs_of(head, features), labels)
    assert found.terms["classification"].item() == 0.0
    found.total.backward()
    slopes = [features.grad, *(value.grad for value in head.parameters() if value.requires_grad)]
    assert all(slope is not None and bool(slope.isfinite().all()) for slope in slopes)
    head.fit_statistics(features.detach(), labels)
    assert head.means.item() == pytest.approx(2.0)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_at_a_million_loss_and_gradient_are_finite_in_float32(covariance):
    head = mixture(covariance, dtype=torch.float32)
    features, labels = samples(dtype=torch.float32)
    leaf = (1e6 * features).requires_grad_()
    loss = GaussianMixtureLoss()(outputs_of(head, leaf), labels).total
    loss.backward()
    assert loss.isfinite()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
    exact = GaussianMixtureLoss()(outputs_of(head.double(), leaf.detach().double()), labels).total
    assert loss.item() == pytest.approx(exact.item(), rel=1e-4)


def test_features_that_are_no_numbers_stop_a_run_and_the_term_is_named():
    class Broken(nn.Linear):
        def forward(self, x):
            return super().forward(x) * math.nan

    train = gaussian_images(per_class=8)
    model = Classifier(nn.Sequential(nn.Flatten(), Broken(64, 4)), GaussianMixture(4, 3, "diagonal"))
    status = fit(model, EndToEnd(GaussianMixtureLoss()), train, epochs=1, batch_size=8).status
    assert (status.good, status.step, status.reason) == (False, 1, "term classification is not finite")
