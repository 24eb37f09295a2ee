"""GaussianClasses against SciPy's densities, sample moments and the error found by drawing."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from clearance.data import gaussian_images
from clearance.data.synthetic import GaussianClasses
from data.bayes import bayes_error, log_posterior


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_means_are_equally_far_apart(classes):
    world = GaussianClasses(classes, (2, 4, 5), separation=3.0, noise=0.04)
    distances = torch.cdist(world.means().flatten(1), world.means().flatten(1)) / world.noise
    expected = torch.full((classes, classes), 3.0, dtype=torch.float64).fill_diagonal_(0)
    torch.testing.assert_close(distances, expected, atol=1e-6, rtol=1e-6)


def test_draws_have_the_stated_mean_and_covariance():
    world = GaussianClasses(2, (1, 2, 3), separation=2.0, noise=0.05)
    features, labels = world.features(per_class=5000, seed=0)
    for k in range(2):
        rows = features[labels == k].double()
        assert len(rows) == 5000
        off = (rows.mean(0) - world.means()[k].flatten()) / (world.noise / 5000**0.5)
        assert off.abs().max() < 4.5
        covariance = torch.cov(rows.T) / world.noise**2
        error = covariance - torch.eye(6, dtype=torch.float64)
        assert error.abs().max() < 4.5 * (2 / 5000) ** 0.5


def test_images_are_the_features_unclipped():
    world = GaussianClasses()
    features, labels = world.features(50, seed=1)
    images = world.images(50, seed=1)
    assert torch.equal(images.images.flatten(1), features)
    assert torch.equal(images.labels, labels)


def test_log_posterior_is_that_of_the_densities():
    world = GaussianClasses(3, (1, 2, 2), separation=1.0, noise=0.05)
    images = world.images(4, seed=0).images
    rows = images.flatten(1).double().numpy()
    covariance = world.noise**2 * np.eye(4)
    densities = np.stack(
        [multivariate_normal(m.flatten().numpy(), covariance).pdf(rows) for m in world.means()], 1
    )
    expected = np.log(densities / densities.sum(1, keepdims=True))
    np.testing.assert_allclose(log_posterior(world, images).numpy(), expected, rtol=1e-8)


@pytest.mark.parametrize("separation", [0.5, 2.0, 6.0])
def test_bayes_error_of_two_classes_is_a_tail(separation):
    world = GaussianClasses(2, separation=separation)
    assert bayes_error(world) == pytest.approx(norm.cdf(-separation / 2), rel=1e-6)


@pytest.mark.parametrize("classes", [2, 5])
def test_bayes_error_is_what_the_bayes_classifier_makes(classes):
    world = GaussianClasses(classes, (1, 4, 4), separation=2.0, noise=0.05)
    features, labels = world.features(20000 // classes, seed=0)
    error = (log_posterior(world, features).argmax(1) != labels).double().mean().item()
    expected = bayes_error(world)
    assert abs(error - expected) < 4 * (expected * (1 - expected) / 20000) ** 0.5


def test_seeds():
    assert gaussian_images(seed=0).digest() == gaussian_images(seed=0).digest()
    assert gaussian_images(seed=0).digest() != gaussian_images(seed=1).digest()
