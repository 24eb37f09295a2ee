"""Recipes that hold a part of the training set out, and measure on it instead of on the test set."""

import pytest
import torch

from clearance.data import Augmentation
from clearance.experiments import build
from clearance.experiments.build import build_data
from clearance.experiments.recipe import Recipe


class TestHeldOut:
    """A part of the training set stands in for the test set, which nobody reads."""

    @pytest.fixture
    def asked(self, monkeypatch, data):
        splits = []

        def load(name, split="train", root=None, size=None):
            splits.append(split)
            return data.train if split == "train" else data.test

        monkeypatch.setattr(build, "load_dataset", load)
        return splits

    def test_the_test_set_is_not_read(self, asked, data):
        found = build_data(Recipe(held_out=0.25))
        assert asked == ["train"]
        both = torch.cat([found.train.images, found.test.images])
        assert len(found.test) == 6
        assert {i.numpy().tobytes() for i in both} == {i.numpy().tobytes() for i in data.train.images}

    def test_thinning_touches_the_training_part_alone(self, asked):
        thin = build_data(Recipe(held_out=0.25, train_fraction=0.5, augment_flip=True))
        assert (len(thin.train), len(thin.test)) == (9, 6)
        assert thin.train.augmentation == Augmentation(flip=True)
        assert thin.test.augmentation is None

    def test_without_it_the_test_set_is_what_is_measured(self, asked, data):
        assert build_data(Recipe()).test is data.test
        assert asked == ["train", "test"]
