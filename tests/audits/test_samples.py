"""Which images an audit looks at: a fixed choice, on disk or in memory, and the small sets of fresh heads."""

import numpy as np
import pytest
import torch

from audits import draws  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml
from clearance.audits import CoAdaptation
from clearance.audits._samples import first_half, partial_sets
from clearance.data import ImageSet, gaussian_images
from clearance.data.stored import StoredImageSet, write_pixels
from clearance.research import fixed_images
from digits_nets import digits  # type: ignore[import-not-found]


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


def test_every_draw_is_balanced_and_without_repeats(uneven):
    one, three, everything = partial_sets(uneven, (1, 3), (40, 25), seed=0)
    for sets, per_class, count in ((one, 1, 40), (three, 3, 25)):
        assert sets.samples == 3 * per_class
        assert sets.rows.shape == (count, 3 * per_class)
        for rows in sets.rows:
            assert len(rows.unique()) == len(rows)
            assert torch.bincount(uneven.labels[rows]).tolist() == [per_class] * 3
    assert everything.rows.tolist() == [list(range(20))]


def test_every_image_is_drawn_about_equally_often(uneven):
    (sets, _) = partial_sets(uneven, (2,), (2000,), seed=0)
    often = torch.bincount(sets.rows.flatten(), minlength=20).double() / 2000
    expected = 2 / torch.bincount(uneven.labels)[uneven.labels].double()
    deviation = (expected * (1 - expected) / 2000).sqrt()
    assert bool(((often - expected).abs() < 4 * deviation).all())


@pytest.mark.parametrize(
    ("per_class", "left"),
    [((1, 4), [3, 12]), ((1, 5), [3]), ((4, 5, 6), [12]), ((5,), [])],
)
def test_sizes_above_the_smallest_class_are_left_out(uneven, per_class, left):
    found = partial_sets(uneven, per_class, (2,) * len(per_class), seed=0)
    assert [sets.samples for sets in found] == [*left, 20]


def test_a_size_that_is_everything_is_not_measured_twice():
    even = gaussian_images(class_count=3, per_class=4, shape=(1, 2, 2))
    assert [sets.samples for sets in partial_sets(even, (3, 4), (2, 2), seed=0)] == [9, 12]


def test_rows_depend_on_labels_and_seed_alone(uneven):
    other_images = image_set(uneven.labels, seed=8)

    def rows(data, seed, per_class=(1, 3), repetitions=(4, 4)):
        return [sets.rows.tolist() for sets in partial_sets(data, per_class, repetitions, seed)]

    assert rows(uneven, 0) == rows(other_images, 0)
    assert rows(uneven, 0)[0] != rows(uneven, 1)[0]
    # a size asked for alone is the same size asked for beside others
    assert rows(uneven, 0, (3,), (4,))[0] == rows(uneven, 0)[1]
    # more draws continue the same stream
    assert rows(uneven, 0, (1,), (9,))[0][:4] == rows(uneven, 0)[0]


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


def test_the_draws_are_those_of_a_slow_loop(uneven):
    found = partial_sets(uneven, (1, 3), (4, 2), seed=5)
    for one, other in zip(found, draws.partial_sets(uneven, (1, 3), (4, 2), 5), strict=True):
        assert one.samples == other.samples
        assert torch.equal(one.rows, other.rows)
    assert torch.equal(first_half(uneven.labels, 5), draws.first_half(uneven.labels, 5))
