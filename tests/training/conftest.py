"""Small worlds that the tests of ways of training share."""

import pytest
import torch
from torch import nn

from clearance.data import gaussian_images
from clearance.heads import MLP, GradientHeads, HeadTraining
from clearance.heads.train import TrainedHeads
from clearance.models import Classifier


class Watched:
    """Draws gradient heads and keeps what it was asked and what it gave."""

    def __init__(self, diverged=()):
        self.inner = GradientHeads(HeadTraining(steps=4, lr=0.05, momentum=0.9))
        self.calls = []
        self.diverged = list(diverged)  # what to say of the heads, call by call

    def draw(self, architecture, features, labels, generator, *bounds):
        trained = self.inner.draw(architecture, features, labels, generator, *bounds)
        if self.diverged:
            trained = TrainedHeads(trained.stack, torch.tensor(self.diverged.pop(0)))
        self.calls.append((features, labels, trained))
        return trained


@pytest.fixture
def watched():
    """The class of gradient heads that are watched."""
    return Watched


@pytest.fixture
def data():
    """24 easy images of 4 x 4 pixels in 3 classes."""
    return gaussian_images(class_count=3, per_class=8, shape=(1, 4, 4))


@pytest.fixture
def make_model():
    """Classifiers of 4 x 4 images with 6 features, the same weights at every call."""

    def make(*extra, widths=(6, 5, 3), dropout=0.0, seed=3):
        torch.manual_seed(seed)
        extractor = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), *extra)
        return Classifier(extractor, MLP(widths, dropout=dropout), mean=0.5, std=0.25)

    return make


@pytest.fixture
def sgd():
    """An optimiser for a way of training and a model: plain SGD by default."""

    def make(way, model, lr=0.1, momentum=0.0):
        return torch.optim.SGD(way.trainable(model), lr=lr, momentum=momentum)

    return make


def weights(module):
    """A copy of everything that a module would save."""
    return {name: value.clone() for name, value in module.state_dict().items()}


@pytest.fixture(name="weights")
def weights_of():
    """The function that copies what a module would save."""
    return weights


@pytest.fixture
def same():
    """Whether two dictionaries of tensors agree to the last bit."""

    def check(first, second):
        return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)

    return check
