"""Which images are looked at, of sets that stay on disk: read in small pieces, once, and the same as in memory."""

import numpy as np
import pytest
import torch

from clearance.audits._samples import fixed_images
from clearance.data.stored import StoredImageSet, write_pixels


@pytest.fixture
def stored(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 3, 8, 8)).astype(np.uint8)
    return StoredImageSet(
        write_pixels(tmp_path / "some.pixels", list(pixels)), torch.arange(40) % 2, ("a", "b"), "some"
    )


def test_the_same_as_in_memory(stored):
    assert torch.equal(fixed_images(stored, 10, 0).images, fixed_images(stored.in_memory(), 10, 0).images)


def test_in_pieces_and_once(stored, monkeypatch):
    """An image of 3x224x224 takes 0.6 MB: a thousand at once would be what such a set is on disk to avoid."""
    sizes = []
    read = StoredImageSet.batches

    def noted(self, size):
        sizes.append(size)
        return read(self, size)

    monkeypatch.setattr(StoredImageSet, "batches", noted)
    monkeypatch.setattr("clearance.data.image_set._CHUNK", 4 * 3 * 8 * 8 * 5)
    first = fixed_images(stored, 10, 0)
    assert sizes == [5]
    assert torch.equal(fixed_images(stored, 10, 0).images, first.images)
    assert torch.bincount(fixed_images(stored, 4, 0).labels).tolist() == [2, 2]
    assert sizes == [5]
    fixed_images(stored, 10, 1)
    assert sizes == [5, 5]
