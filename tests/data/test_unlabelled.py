"""Images without labels, in the form in which a model gets its own."""

import numpy as np
import pytest
import torch
from PIL import Image

from clearance.data import ImageSet, Preprocessing, StoredImageSet, gaussian_images
from clearance.data.folder import open_folder, open_pictures
from clearance.data.intake import open_unlabelled

COLOURED = ImageSet(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 0, 1]), ("a", "b"))


@pytest.fixture
def pictures(tmp_path):
    """Two classes of pictures, one picture beside them, a hidden one and a broken one."""
    folder = tmp_path / "things"
    for i, place in enumerate(
        ("top.png", "a/0.png", "a/1.jpg", "b/deep/0.png", "b/.hidden.png", ".cache/0.png")
    ):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (16 + i, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / place)
    return folder


HOW = Preprocessing(size=8, short_side=10)


def test_every_picture_counts_wherever_it_lies(pictures):
    found = open_pictures(pictures, HOW, cache=pictures.parent / "cache")
    assert (len(found), found.class_count, found.name) == (4, 1, "things")
    assert not found.labels.any()


def test_pixels_are_those_of_labelled_pictures(pictures):
    cache = pictures.parent / "cache"
    (pictures / "b" / "0.png").write_bytes((pictures / "b" / "deep" / "0.png").read_bytes())
    labelled = open_folder(pictures, HOW, cache=cache)  # a/0, a/1, b/0
    found = open_pictures(pictures, HOW, cache=cache)  # a/0, a/1, b/0, b/deep/0, top
    assert torch.equal(found.images[:3], labelled.images)
    assert torch.equal(found.images[2], found.images[3])
    again = open_pictures(pictures, HOW, cache=cache)  # read back
    assert torch.equal(again.images, found.images)
    assert again.digest() == found.digest()


def test_what_is_kept_of_labelled_pictures_is_not_taken_for_these(pictures, memory_for_images):
    """The same files, with labels first: both are kept, each by itself; on disk the digest is kept, too."""
    memory_for_images(0)
    for place in ("top.png", "b/deep/0.png", "b/.hidden.png"):
        (pictures / place).unlink()
    (pictures / "b" / "0.png").write_bytes((pictures / "a" / "0.png").read_bytes())
    (pictures / "b" / "deep").rmdir()
    cache = pictures.parent / "cache"
    assert open_folder(pictures, HOW, cache=cache).labels.tolist() == [0, 0, 1]
    found = open_pictures(pictures, HOW, cache=cache)
    assert found.labels.tolist() == [0, 0, 0]
    assert isinstance(found, StoredImageSet)
    assert found.digest() != open_folder(pictures, HOW, cache=cache).digest()


def test_a_broken_file_is_named_and_left_out(pictures):
    (pictures / "a" / "broken.png").write_text("no picture")
    with pytest.warns(UserWarning, match=r"1 of 5 files of 'things' cannot be read .*a/broken.png"):
        assert len(open_pictures(pictures, HOW, cache=pictures.parent / "cache")) == 4


def test_many_stay_on_disk(pictures, memory_for_images):
    memory_for_images(3 * 3 * 8 * 8 * 4)
    found = open_pictures(pictures, HOW, cache=pictures.parent / "cache")
    assert isinstance(found, StoredImageSet)
    again = found.unlabelled()
    assert [len(images) for images, _ in again.batches(3)] == [3, 1]
    assert again.classes == ("unlabelled",)


def test_a_folder_is_brought_to_the_size_of_the_images_that_are_known(pictures):
    found = open_unlabelled(f"folder:{pictures}", COLOURED, cache=pictures.parent / "cache")
    assert found.shape == (3, 8, 8)


def test_labels_of_any_set_are_passed_over():
    data = gaussian_images(class_count=3, per_class=4)
    found = open_unlabelled(data, data)
    assert torch.equal(found.images, data.images)
    assert found.class_count == 1
    assert data.class_count == 3
    assert open_unlabelled((data.images, data.labels), data).class_count == 1


def test_an_archive_needs_no_labels(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "others.npz", images=pixels)
    found = open_unlabelled(f"npz:{tmp_path}/others.npz", COLOURED)
    assert (found.name, len(found)) == ("others", 5)
    assert torch.equal(found.images, torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255)


def test_grey_becomes_colour_and_colour_grey_as_pillow_does():
    grey = gaussian_images(class_count=2, per_class=2)
    found = open_unlabelled(grey, COLOURED)
    assert all(torch.equal(found.images[:, c], grey.images[:, 0]) for c in range(3))
    pixels = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 3), dtype=np.uint8)
    expected = np.asarray(Image.fromarray(pixels[0]).convert("L")).astype(np.float32)
    found = open_unlabelled(pixels, grey)
    assert np.abs(found.images[0, 0].numpy() * 255 - expected).max() <= 1


WRONG = {
    "size": (torch.zeros(2, 3, 9, 7), r"of the test images, 8x8; got 7x9 in 'images'. Resize"),
    "channels": (torch.zeros(2, 2, 8, 8), r"the channels of the test images, 3; got 2"),
    "range": (torch.full((2, 3, 8, 8), 2.0), r"must lie in \[0, 1\]"),
    "number": (7, "must be folder:PATH"),
    "place": ("files:x", "must be given as folder:PATH or npz:PATH"),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_does_not_fit_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        open_unlabelled(data, COLOURED)


def test_a_folder_without_pictures_is_refused(tmp_path):
    (tmp_path / "notes").mkdir()
    with pytest.raises(FileNotFoundError, match="must hold pictures"):
        open_pictures(tmp_path / "notes")
    with pytest.raises(FileNotFoundError, match="no folder"):
        open_pictures(tmp_path / "nowhere")
