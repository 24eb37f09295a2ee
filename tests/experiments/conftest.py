"""Small comparisons that the tests of experiments share."""

import dataclasses
import signal

import numpy as np
import pytest

from clearance.data.synthetic import GaussianClasses
from clearance.experiments.build import RunData
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe

WORLD = GaussianClasses(class_count=3, separation=5.0, noise=0.05)


@pytest.fixture(autouse=True)
def interruptible():
    """Ctrl-C means what it means in a terminal, also where the tests were started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def data():
    """Easy 8 x 8 images: 24 to train on, 30 to measure on."""
    return RunData(WORLD.images(8, seed=0), WORLD.images(10, seed=1))


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The same kind of images as a file, for processes that read their own: the dataset's name."""
    images = WORLD.images(25, seed=0)
    path = tmp_path_factory.mktemp("data") / "world.npz"
    np.savez(path, images=images.images.numpy(), labels=images.labels.numpy())
    return f"npz:{path}"


@pytest.fixture
def recipe():
    """Two epochs of plain training and of FOCA; only the error is measured."""

    def make(**changes):
        start = Recipe(
            dataset="gaussian",
            epochs=2,
            batch_size=8,
            seeds=1,
            audits=("accuracy",),
            methods={
                "plain": Method(hidden=(8,)),
                "foca": Method(way="foca", hidden=(8,), per_class=1, head_steps=4),
            },
        )
        return dataclasses.replace(start, **changes)

    return make
