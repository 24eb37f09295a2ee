"""Weak heads that are mixtures fitted to a batch: exact fits, and FOCA with them."""

from typing import Any

import pytest
import torch
from torch import nn

from clearance.data import gaussian_images
from clearance.heads import GaussianMixture, GaussianMixtureHeads, HeadStack, linear_from_mixture
from clearance.losses import CrossEntropyLoss, GaussianMixtureLoss
from clearance.models import Classifier
from clearance.research import feature_unit
from clearance.training import FOCA, fit

close = torch.testing.assert_close
STREAM = torch.Generator()


def batches(count=3, per_class=4, classes=3, width=6, seed=0):
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat(per_class).expand(count, -1)
    means = 2 * torch.randn(count, classes, width, generator=draws, dtype=torch.float64)
    features = means.gather(1, labels[..., None].expand(-1, -1, width))
    return features + torch.randn(features.shape, generator=draws, dtype=torch.float64), labels


@pytest.mark.parametrize("covariance", ["scalar", "diagonal"])
@pytest.mark.parametrize("temperature", [1.0, None])
def test_each_head_is_the_likeliest_mixture_of_its_batch_with_a_shrunken_variance(covariance, temperature):
    features, labels = batches()
    heads = GaussianMixtureHeads(covariance, shrinkage=0.3, temperature=temperature)
    architecture = GaussianMixture(6, 3, covariance).double()
    drawn: Any = heads.draw(architecture, features, labels, STREAM)
    whole = torch.stack([f.var(dim=0, correction=0) for f in features]).mean()
    for k in range(3):
        fitted = GaussianMixture(6, 3, covariance).double().fit_statistics(features[k], labels[k])
        close(drawn.stack[k].means, fitted.means, rtol=1e-10, atol=1e-12)
        expected = (fitted.log_variance().exp() + 0.3 * whole) * (temperature or 6)
        close(drawn.stack[k].log_variance().exp(), expected, rtol=1e-10, atol=0)
        close(drawn.stack[k].log_prior().exp(), torch.full((3,), 1 / 3, dtype=torch.float64))


@pytest.mark.parametrize("covariance", ["scalar", "diagonal"])
def test_a_linear_head_gets_the_posteriors_of_the_mixture(covariance):
    features, labels = batches()
    heads = GaussianMixtureHeads(covariance)
    mixtures: Any = heads.draw(GaussianMixture(6, 3, covariance).double(), features, labels, STREAM).stack
    linear: Any = heads.draw(nn.Linear(6, 3).double(), features, labels, STREAM).stack
    for k in range(3):
        close(linear[k](features[k]).softmax(1), mixtures[k].posterior(features[k]), rtol=1e-9, atol=1e-12)
        own = linear[k].weight - linear[k].weight.mean(dim=0)  # what all rows share, softmax does not see
        close(own, linear_from_mixture(mixtures[k]).weight, rtol=1e-9, atol=1e-12)


def test_a_class_that_a_batch_lacks_is_never_named():
    features, labels = batches(classes=3)
    drawn = GaussianMixtureHeads().draw(GaussianMixture(6, 5, "scalar"), features, labels, STREAM)
    posterior = drawn.stack(features).softmax(dim=2)
    assert posterior[..., 3:].max() < 1e-9
    assert posterior.isfinite().all()


def test_nor_is_it_at_the_centre_of_classes_that_are_points():
    features, labels = 10 * torch.eye(3, 6).double().expand(2, 3, 6), torch.arange(3).expand(2, 3)
    for shrinkage in (1e-3, 1e-6):
        heads = GaussianMixtureHeads(shrinkage=shrinkage, temperature=1)
        drawn = heads.draw(nn.Linear(6, 5), features, labels, STREAM)
        assert drawn.stack(features.mean(dim=1, keepdim=True)).argmax(dim=2).max() < 3


def test_a_temperature_makes_heads_less_sure():
    features, labels = batches()
    sure, weak = (
        GaussianMixtureHeads(temperature=t).draw(nn.Linear(6, 3), features, labels, STREAM).stack(features)
        for t in (1.0, 10.0)
    )
    close(weak.std(dim=2), sure.std(dim=2) / 10)


def test_features_that_coincide_give_finite_heads():
    features, labels = torch.ones(2, 6, 4), torch.arange(3).repeat(2).expand(2, -1)
    drawn = GaussianMixtureHeads().draw(nn.Linear(4, 3), features, labels, STREAM, feature_unit(features))
    assert not drawn.diverged.any()
    close(drawn.stack(features).softmax(dim=2), torch.full((2, 6, 3), 1 / 3))


@pytest.mark.parametrize("architecture", [GaussianMixture(6, 3), GaussianMixture(6, 3, "diagonal")])
def test_a_mixture_of_another_covariance_is_refused(architecture):
    features, labels = batches()
    with pytest.raises(
        ValueError, match=r"`covariance` must be that of the model's head, '.*'; got 'scalar'"
    ):
        GaussianMixtureHeads().draw(architecture, features, labels, STREAM)


def test_heads_of_several_layers_are_refused():
    features, labels = batches()
    deep = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    with pytest.raises(
        ValueError, match=r"GaussianMixtureHeads need a head that is one nn\.Linear with a bias"
    ):
        GaussianMixtureHeads().draw(deep, features, labels, STREAM)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"covariance": "full"}, "`covariance` must be one of 'scalar', 'diagonal'"),
        ({"shrinkage": 0.0}, "`shrinkage` must be a finite number above 0"),
        ({"temperature": -1.0}, "`temperature` must be a finite number above 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        GaussianMixtureHeads(**settings)


def model_and_data(head):
    data = gaussian_images(class_count=3, per_class=20, shape=(1, 4, 4))
    torch.manual_seed(0)
    return Classifier(nn.Sequential(nn.Flatten(), nn.Linear(16, 8)), head, 0.5, 0.25), data


@pytest.mark.parametrize("loss", [CrossEntropyLoss, GaussianMixtureLoss])
def test_foca_with_mixtures_ends_with_the_likeliest_mixture_of_its_features(loss):
    model, data = model_and_data(GaussianMixture(8, 3, "diagonal"))
    weights = model.extractor[1].weight.detach().clone()
    way = FOCA(loss(), GaussianMixtureHeads("diagonal"), per_class=2, heads=2)
    result = fit(model, way, data, epochs=3, batch_size=20)
    assert result.status.good
    assert not torch.equal(model.extractor[1].weight, weights)
    features = model.features(data.images).detach()
    exact = GaussianMixture(8, 3, "diagonal").fit_statistics(features, data.labels)
    close(model.head.means, exact.means)
    close(model.head.log_variance(), exact.log_variance())
    assert (model(data.images).argmax(dim=1) == data.labels).float().mean() > 0.9


def test_fresh_mixtures_forget_the_means_they_are_made_from():
    head = GaussianMixture(50, 3, "diagonal")
    nn.init.constant_(head.means, 100.0)
    stack = HeadStack.initialised(head, 4, torch.Generator().manual_seed(0), std=0.3)
    assert stack.parameters["means"].std().item() == pytest.approx(0.3, rel=0.1)
    assert stack.parameters["means"].abs().max() < 3
