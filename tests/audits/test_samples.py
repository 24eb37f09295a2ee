"""Which images an audit looks at: a fixed choice, on disk or in memory, and the small sets of fresh heads."""

import statistics

import numpy as np
import pytest
import torch
from torch import nn

from audits import draws
from clearance.audits import (
    BoundaryDistance,
    CoAdaptation,
    HighConfidenceAdversarials,
    Likelihood,
    MinimalPerturbation,
    Robustness,
    Subject,
)
from clearance.data import ImageSet, gaussian_images
from clearance.data import stored as stored_sets
from clearance.data.stored import StoredImageSet, write_pixels
from clearance.experiments.audit_plan import fewer_images
from clearance.models import Classifier
from clearance.research import fixed_images
from digits_nets import digits


def same_images(one, other):
    """Whether two sets hold the same images with the same labels, in any order."""
    rows = (sorted([int(y), *x.flatten().tolist()] for x, y in each) for each in (one, other))
    return next(rows) == next(rows)


def test_images_are_a_balanced_choice_that_the_seed_and_their_pixels_alone_decide():
    _, test = digits()
    assert fixed_images(test, 497, seed=3) is test
    chosen = fixed_images(test, 100, seed=0)
    assert torch.equal(torch.bincount(chosen.labels), torch.full((10,), 10))
    assert torch.equal(fixed_images(test, 100, seed=0).images, chosen.images)
    assert not torch.equal(fixed_images(test, 100, seed=1).images, chosen.images)
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(1))
    again = fixed_images(test.subset(order), 100, seed=0)  # the same images, whatever their order
    assert same_images(again, chosen)
    assert not torch.equal(again.images, chosen.images)
    scarce = ImageSet(torch.rand(12, 1, 2, 2), torch.tensor([0] * 10 + [1] * 2), ("a", "b"))
    assert torch.bincount(fixed_images(scarce, 8, seed=0).labels).tolist() == [4, 2]


@pytest.fixture
def stored(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 3, 8, 8)).astype(np.uint8)
    return StoredImageSet(
        write_pixels(tmp_path / "some.pixels", list(pixels)), torch.arange(40) % 2, ("a", "b"), "some"
    )


def test_the_same_as_in_memory(stored):
    assert torch.equal(fixed_images(stored, 10, 0).images, fixed_images(stored.in_memory(), 10, 0).images)


def test_in_pieces_and_once(tmp_path, monkeypatch):
    """An image of 3x224x224 takes 0.6 MB: a thousand at once would be what such a set is on disk to avoid."""
    pixels = np.random.default_rng(0).integers(0, 256, (60, 3, 128, 128)).astype(np.uint8)
    large = StoredImageSet(
        write_pixels(tmp_path / "large.pixels", list(pixels)), torch.arange(60) % 2, ("a", "b"), "large"
    )
    sizes = []
    read = StoredImageSet.batches

    def noted(self, size):
        sizes.append(size)
        return read(self, size)

    monkeypatch.setattr(StoredImageSet, "batches", noted)
    first = fixed_images(large, 10, 0)
    assert len(sizes) == 1
    assert 1 <= sizes[0] < 30
    assert torch.equal(fixed_images(large, 10, 0).images, first.images)
    assert torch.bincount(fixed_images(large, 4, 0).labels).tolist() == [2, 2]
    assert len(sizes) == 1
    fixed_images(large, 10, 1)
    assert len(sizes) == 2


UNEVEN = torch.tensor([0] * 9 + [1] * 4 + [2] * 7)


def image_set(labels, seed=0):
    """Random images with these labels."""
    stream = torch.Generator().manual_seed(seed)
    count = int(labels.max()) + 1
    images = torch.rand(len(labels), 1, 2, 2, generator=stream)
    return ImageSet(images, labels, tuple(str(k) for k in range(count)))


@pytest.fixture
def uneven():
    """9, 4 and 7 images of three classes, shuffled."""
    return image_set(UNEVEN[torch.randperm(20, generator=torch.Generator().manual_seed(3))])


def errors_of_means(data, per_class, repetitions, seed=0):
    """Measured errors of class means on the pixels, (mean, spread) by the number of samples."""
    model = Classifier(nn.Flatten(), nn.Linear(4, data.class_count))
    audit = CoAdaptation(per_class, repetitions, hidden=(4,), least_steps=2, passes=1)
    found = audit(model, data, data, seed=seed).measurements
    return {
        m.context["samples"]: (m.value, m.spread)
        for m in found
        if (m.name, m.context["head"]) == ("error", "class mean, pixels")
    }


def test_small_sets_are_those_of_a_slow_loop(uneven):
    """Which rows are drawn shows in the errors of class means; the loop balances them and never repeats one."""
    found = errors_of_means(uneven, (1, 3), (40, 25), seed=5)
    rows, labels = uneven.images.flatten(1).double(), uneven.labels
    for sets in draws.partial_sets(uneven, (1, 3), (40, 25), 5):
        errors = []
        for chosen in sets.rows:
            means = torch.stack([rows[chosen[labels[chosen] == k]].mean(0) for k in range(3)])
            errors.append(float((torch.cdist(rows, means).argmin(1) != labels).double().mean()))
        mean, spread = found[sets.samples]
        assert mean == pytest.approx(statistics.mean(errors), abs=1e-9)
        assert len(errors) == 1 or spread == pytest.approx(statistics.stdev(errors), abs=1e-9)


@pytest.mark.parametrize(
    ("per_class", "left"),
    [((1, 4), [3, 12]), ((1, 5), [3]), ((4, 5, 6), [12]), ((5,), [])],
)
def test_sizes_above_the_smallest_class_are_left_out(uneven, per_class, left):
    assert list(errors_of_means(uneven, per_class, (2,) * len(per_class))) == [*left, 20]


def test_a_size_that_is_everything_is_not_measured_twice():
    even = gaussian_images(class_count=3, per_class=4, shape=(1, 2, 2))
    assert list(errors_of_means(even, (3, 4), (2, 2))) == [9, 12]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"per_class": (1, 10), "repetitions": (5,)}, "a number of draws for each"),
        ({"per_class": (0,), "repetitions": (5,)}, "at least 1"),
        ({"per_class": (1,), "repetitions": (2.5,)}, "whole number"),
        ({"per_class": (10, 1), "repetitions": (5, 5)}, "must ascend"),
        ({"per_class": (1, 1), "repetitions": (5, 5)}, "each size once"),
        ({"lr": 0.0}, "`lr` must be"),
    ],
)
def test_settings_are_checked_before_anything_runs(settings, message):
    with pytest.raises(ValueError, match=message):
        CoAdaptation(**settings)


def test_a_head_that_works_in_place_leaves_the_features_alone():
    head = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(64, 3))
    model = Classifier(nn.Flatten(), head, mean=0.5)
    subject = Subject(model, gaussian_images(seed=0), gaussian_images(seed=1))
    before = subject.test_features.clone()
    assert bool((before < 0).any())
    assert subject.test_logits.shape[1] == 3
    assert torch.equal(subject.test_features, before)


def test_without_all_images_a_size_that_is_everything_is_measured():
    data = gaussian_images(class_count=3, per_class=5)
    model = Classifier(nn.Flatten(), nn.Linear(64, 3))
    audit = CoAdaptation(per_class=(1, 5), repetitions=(2, 2), all_images=False, hidden=(4,))
    found = audit(model, data, gaussian_images(class_count=3, per_class=5, seed=1))
    assert {m.context["samples"] for m in found.measurements if m.name == "error"} == {3, 15}


def test_of_more_classes_than_images_one_of_each_is_used_and_said():
    data = gaussian_images(class_count=5, per_class=20)
    said = fewer_images([MinimalPerturbation(images=2)], data)["fewer_images"]["audits"]
    assert said["minimal_perturbation"] == len(fixed_images(data, 2, seed=0)) == 5


@pytest.mark.parametrize(
    "audit",
    [
        MinimalPerturbation(images=8, steps=3),
        HighConfidenceAdversarials(images=8, steps=2, search=2),
        Robustness(images=8),
        BoundaryDistance(images=8, searched=4, steps=2, norms=("2",), layers=("input",)),
        Likelihood(images=20, adaptive=()),
    ],
    ids=lambda audit: audit.name,
)
@pytest.mark.filterwarnings("ignore")
def test_attacks_read_their_images_into_memory_however_large(stored, audit, monkeypatch):
    monkeypatch.setattr(stored_sets, "IN_MEMORY", 0)
    with pytest.raises(ValueError, match="stay on disk"):
        _ = stored.images
    model = Classifier(nn.Flatten(), nn.Linear(192, 2)).eval()
    assert audit(model, stored, stored).measurements
