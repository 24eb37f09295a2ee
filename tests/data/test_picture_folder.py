"""Folders of pictures as people have them: mixed sizes and modes, rotated, a few broken; decoded once."""

import gc
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from clearance.data import Preprocessing, StoredImageSet, open_folder, read_folder
from clearance.data._eval_transform import transformed
from clearance.data.picture_folder import default_cache

HOW = Preprocessing(image_size=8, short_side=10)


def noise(width, height, mode="RGB", seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


@pytest.fixture
def pets(tmp_path):
    """Two classes of pictures of many kinds, all of them readable."""
    for name in ("cats", "dogs"):
        (tmp_path / "pets" / name).mkdir(parents=True)
    for i, (width, height) in enumerate([(20, 16), (11, 30), (10, 10), (64, 13)]):
        noise(width, height, seed=i).save(tmp_path / "pets" / "cats" / f"{i}.png")
    for mode in ("L", "P", "RGBA", "1"):
        noise(14, 12, mode).save(tmp_path / "pets" / "dogs" / f"{mode}.png")
    return tmp_path / "pets"


def opened(pets, how=HOW):
    return open_folder(pets, how, cache=pets.parent / "cache")


def test_sizes_and_offsets_are_those_of_torchvision():
    """Resize(10) of 33x21 is (int(10 * 33 / 21), 10) = (15, 10); CenterCrop(8) begins at round(3.5) = 4, round(1)."""
    picture = noise(33, 21)
    expected = np.asarray(picture.resize((15, 10), Image.Resampling.BILINEAR))[1:9, 4:12]
    assert np.array_equal(transformed(picture, HOW), expected.transpose(2, 0, 1))
    tall = np.asarray(picture.transpose(Image.Transpose.TRANSPOSE).resize((10, 15), Image.Resampling.BICUBIC))
    found = transformed(
        picture.transpose(Image.Transpose.TRANSPOSE),
        Preprocessing(image_size=8, short_side=10, interpolation="bicubic"),
    )
    assert np.array_equal(found, tall[4:12, 1:9].transpose(2, 0, 1))


def test_a_half_is_rounded_to_even_as_torchvision_does():
    picture = noise(11, 8)  # (11 - 8) / 2 = 1.5 begins at 2
    assert np.array_equal(
        transformed(picture, Preprocessing(image_size=8)), np.asarray(picture)[:, 2:10].transpose(2, 0, 1)
    )


def test_all_kinds_of_pictures_become_one(pets):
    data = opened(pets)
    assert (len(data), data.shape, data.classes, data.name) == (8, (3, 8, 8), ("cats", "dogs"), "pets")
    assert data.labels.tolist() == [0] * 4 + [1] * 4
    for place, file in enumerate([*sorted((pets / "cats").iterdir()), *sorted((pets / "dogs").iterdir())]):
        with Image.open(file) as picture:
            expected = transformed(
                picture.convert("RGBA" if picture.mode == "P" else "RGB").convert("RGB"), HOW
            )
        assert torch.equal(data.images[place], torch.from_numpy(expected.copy()).float() / 255)


def test_orientation_is_obeyed(pets):
    picture = noise(20, 12)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    picture.save(pets / "cats" / "0.png", exif=exif)
    turned = transformed(picture.transpose(Image.Transpose.ROTATE_270), HOW)
    assert torch.equal(opened(pets).images[0], torch.from_numpy(turned.copy()).float() / 255)


def test_without_sizes_it_is_read_folder(tmp_path):
    for i, name in enumerate("ab"):
        (tmp_path / "same" / name).mkdir(parents=True)
        noise(9, 7, seed=i).save(tmp_path / "same" / name / "x.png")
    found, expected = open_folder(tmp_path / "same", cache=tmp_path), read_folder(tmp_path / "same")
    assert torch.equal(found.images, expected.images)
    assert found.digest() == expected.digest()


def test_unreadable_files_are_counted_named_and_left_out(pets):
    (pets / "cats" / "a.jpg").write_text("no picture")
    (pets / "dogs" / "z.png").write_bytes((pets / "dogs" / "L.png").read_bytes()[:60])
    told = "2 of 10 files of 'pets' cannot be read and are left out: cats/a.jpg (no picture, or damaged), dogs/z.png"
    for _ in range(2):  # decoded, then from the cache
        with pytest.warns(UserWarning, match=re.escape(told)):
            data = opened(pets)
        assert len(data) == 8


def test_many_unreadable_files_are_named_in_short(pets):
    for i in range(5):
        (pets / "cats" / f"bad{i}.jpg").write_text("")
    with pytest.warns(
        UserWarning, match=r"5 of 13 .*bad0.jpg .*bad2.jpg \(no picture, or damaged\), and 2 more\."
    ):
        opened(pets)


def test_pictures_are_decoded_once_and_again_when_something_changed(pets, monkeypatch):
    first = opened(pets)
    monkeypatch.setattr("clearance.data.picture_folder.opened", lambda file: pytest.fail(f"decoded {file}"))
    again = opened(pets)
    assert torch.equal(again.images, first.images)
    assert again.digest() == first.digest()
    with pytest.raises(pytest.fail.Exception, match="decoded"):
        opened(pets, Preprocessing(image_size=8, short_side=9))
    os.utime(pets / "cats" / "0.png", (1, 1))
    with pytest.raises(pytest.fail.Exception, match="decoded"):
        opened(pets)


def test_a_damaged_cache_is_made_anew(pets):
    first = opened(pets)
    (kept,) = (pets.parent / "cache").glob("*.pixels")
    kept.write_bytes(kept.read_bytes()[:-1])
    assert torch.equal(opened(pets).images, first.images)
    kept.with_suffix(".json").write_text("{")
    assert torch.equal(opened(pets).images, first.images)


def test_the_cache_is_where_one_says(monkeypatch, tmp_path):
    monkeypatch.setenv("CLEARANCE_CACHE", str(tmp_path / "mine"))
    assert default_cache() == tmp_path / "mine"
    monkeypatch.delenv("CLEARANCE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "clearance"


def test_sizes_that_differ_need_image_size(pets):
    with pytest.raises(
        ValueError, match=r"got 20x16 in cats/0.png and 11x30 in cats/1.png; give `image_size`"
    ):
        opened(pets, Preprocessing())
    assert not list((pets.parent / "cache").iterdir())  # nothing half written stays


def test_a_class_of_which_nothing_can_be_read(pets):
    for file in (pets / "dogs").iterdir():
        file.write_text("")
    with pytest.raises(ValueError, match="got none of 'dogs'"):
        opened(pets)
    for file in (pets / "cats").iterdir():
        file.write_text("")
    with pytest.raises(ValueError, match=r"no picture in .* can be read: cats/0.png .*and 5 more"):
        opened(pets)


@pytest.fixture
def stored(pets, monkeypatch):
    """The set in memory, and the same where memory holds three of its images."""
    whole = opened(pets)
    monkeypatch.setattr("clearance.data.stored.IN_MEMORY", 3 * 4 * 3 * 8 * 8)
    kept = opened(pets)
    assert isinstance(kept, StoredImageSet)
    return whole, kept


def test_a_set_on_disk_gives_the_same_images(stored):
    whole, kept = stored
    rows = torch.tensor([7, 0, 0, 3])
    assert torch.equal(kept.batch(rows)[0], whole.images[rows])
    assert torch.equal(torch.cat([images for images, _ in kept.batches(3)]), whole.images)
    assert torch.equal(torch.cat([labels for _, labels in kept.batches(3)]), whole.labels)
    assert torch.equal(kept[5][0], whole[5][0])
    assert torch.equal(kept[-1][0], whole[7][0])
    assert (len(kept), kept.shape, repr(kept)) == (len(whole), whole.shape, repr(whole))
    with pytest.raises(IndexError):
        kept[8]


def test_sets_drawn_from_it_are_those_in_memory(stored):
    whole, kept = stored
    for draw in (
        lambda data: data.per_class(1, seed=3),
        lambda data: data.split(0.5, seed=1)[0],
        lambda data: data.split(0.5, seed=1)[1].subset(torch.tensor([3, 1])),
        lambda data: data.with_label_noise(0.5, seed=2),
        lambda data: data.subset(torch.tensor([6, 5, 5, 1, 0])).subset(torch.tensor([4, 1, 0, 2])),
    ):
        ours, theirs = draw(kept), draw(whole)
        assert ours.digest() == theirs.digest()
        assert torch.equal(ours.labels, theirs.labels)
        assert isinstance(ours, StoredImageSet) == (len(ours) > 3)


def test_the_digest_is_that_of_the_images_in_memory(stored):
    whole, kept = stored
    assert kept.known_digest == whole.digest()  # as it was when the pictures were decoded
    assert kept.to("cpu").known_digest == kept.augmented(None).known_digest == whole.digest()
    fresh = kept._derived(rows=None)  # which has to compute it
    assert fresh.known_digest is None
    assert fresh.digest() == fresh.known_digest == whole.digest()
    assert kept.with_label_noise(1.0, seed=0).digest() != whole.digest()


def test_all_pixels_at_once_are_refused_with_a_way_out(stored):
    _, kept = stored
    with pytest.raises(
        ValueError, match=r"images of 'pets' stay on disk, because they take .*take a `subset`"
    ):
        _ = kept.images
    assert kept.subset(torch.arange(3)).images.shape == (3, 3, 8, 8)


def test_nothing_stays_mapped(stored):
    """Reading copies: no page of the file is kept by what was read."""
    _, kept = stored
    images, _ = kept.batch(torch.arange(2))
    gc.collect()
    maps = Path("/proc/self/maps")
    if maps.exists():  # on Linux
        assert kept.store.path.name not in maps.read_text()
    assert images.is_contiguous()


def test_labels_and_stored_images_are_as_many(stored):
    _, kept = stored
    with pytest.raises(ValueError, match="got 2 and 8"):
        StoredImageSet(kept.store, torch.tensor([0, 1]), kept.classes)


def test_no_warning_without_reason(pets):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened(pets)
