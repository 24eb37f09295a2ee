"""Folders of pictures as people have them: mixed sizes and modes, rotated, a few broken; decoded once."""

import gc
import os
import re
import stat
import struct
import subprocess
import sys
import tracemalloc
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image

from clearance import load_dataset
from clearance.data import Preprocessing, StoredImageSet, open_images
from clearance.data import folder as folders
from clearance.data.folder import open_folder
from clearance.data.preprocessing import transformed
from clearance.data.stored import write_pixels as written_pixels

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 40 40\n%%EndComments\nshowpage\n%%EOF\n"
HOW = Preprocessing(size=8, short_side=10)


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
        Preprocessing(size=8, short_side=10, interpolation="bicubic"),
    )
    assert np.array_equal(found, tall[4:12, 1:9].transpose(2, 0, 1))


def test_a_half_is_rounded_to_even_as_torchvision_does():
    picture = noise(11, 8)  # (11 - 8) / 2 = 1.5 begins at 2
    assert np.array_equal(
        transformed(picture, Preprocessing(size=8)), np.asarray(picture)[:, 2:10].transpose(2, 0, 1)
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


def test_unreadable_files_are_counted_named_and_left_out(pets):
    (pets / "cats" / "a.jpg").write_text("no picture")
    (pets / "dogs" / "z.png").write_bytes((pets / "dogs" / "L.png").read_bytes()[:60])
    text = "2 of 10 files of 'pets' cannot be read and are left out: cats/a.jpg (not a picture, or damaged), dogs/z.png"
    for _ in range(2):  # decoded, then from the cache
        with pytest.warns(UserWarning, match=re.escape(text)):
            data = opened(pets)
        assert len(data) == 8


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that fails when it is read")
def test_a_file_that_fails_when_it_is_read_is_left_out_too(pets):
    count = len(open_folder(pets, Preprocessing(size=8)))
    (pets / "cats" / "failing.png").symlink_to("/proc/self/mem")
    with pytest.warns(UserWarning, match=r"cats/failing.png \(Input/output error\)"):
        found = open_folder(pets, Preprocessing(size=8))
    assert len(found) == count


def test_many_unreadable_files_are_named_in_short(pets):
    for i in range(5):
        (pets / "cats" / f"bad{i}.jpg").write_text("")
    with pytest.warns(
        UserWarning, match=r"5 of 13 .*bad0.jpg .*bad2.jpg \(not a picture, or damaged\), and 2 more\."
    ):
        opened(pets)


def test_pictures_are_decoded_once_and_again_when_something_changed(pets, monkeypatch):
    """What counts is what the files hold: another date is no change, other settings are."""
    first = opened(pets)
    with monkeypatch.context() as patch:
        patch.setattr(folders, "_picture", lambda content: pytest.fail("a picture was decoded again"))
        os.utime(pets / "cats" / "0.png", (1, 1))
        assert torch.equal(opened(pets).images, first.images)
    assert not torch.equal(opened(pets, Preprocessing(size=8, short_side=9)).images, first.images)


def test_pictures_replaced_at_equal_size_and_date_are_other_pictures(pets):
    """As containers and archives leave them, whose dates are all the same."""
    cats, dogs = (pets / name for name in ("cats", "dogs"))
    for name, shade in ((cats, 10), (dogs, 200)):
        for file in name.iterdir():
            file.unlink()
        for place in range(4):
            Image.new("RGB", (8, 8), (shade, place, 0)).save(name / f"{place}.bmp")
            os.utime(name / f"{place}.bmp", (1, 1))
    before = opened(pets)
    cats.rename(pets / "aside")
    dogs.rename(cats)
    (pets / "aside").rename(dogs)
    after = opened(pets)
    assert after.digest() != before.digest()
    assert torch.equal(after.images, before.images[[4, 5, 6, 7, 0, 1, 2, 3]])
    file = cats / "0.bmp"
    Image.new("RGB", (8, 8), (99, 99, 99)).save(file)
    os.utime(file, (1, 1))
    assert float(opened(pets).images[0].mean()) == pytest.approx(99 / 255)


@pytest.mark.parametrize("suffix", [".pixels", ".json"])
@pytest.mark.parametrize("how", ["zeroed", "one bit", "cut", "empty", "missing", "other labels", "no JSON"])
def test_a_damaged_cache_is_made_anew(pets, suffix, how):
    first = opened(pets)
    (kept,) = (pets.parent / "cache").glob(f"*{suffix}")
    content = kept.read_bytes()
    damaged = {
        "zeroed": bytes(len(content)),
        "one bit": content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        "cut": content[:-1],
        "empty": b"",
        "missing": None,
        "other labels": content.replace(b"[0, 0, 0, 0, 1, 1, 1, 1]", b"[1, 1, 1, 1, 0, 0, 0, 0]"),
        "no JSON": b"[[[" * 9999,
    }[how]
    kept.unlink() if damaged is None else kept.write_bytes(damaged)
    again = opened(pets)
    assert torch.equal(again.images, first.images)
    assert (again.labels.tolist(), again.digest()) == (first.labels.tolist(), first.digest())


def test_only_the_user_may_read_what_is_kept(pets):
    """Pictures may come from a folder that is closed to others."""
    opened(pets)
    cache = pets.parent / "cache"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in cache.iterdir()} == {0o600}


def bomb(width, height):
    """A picture in grey of any size, all black: a thousandth of that in bytes."""
    rows = zlib.compressobj(9)
    data = b"".join(rows.compress(bytes(width + 1)) for _ in range(height)) + rows.flush()
    parts = ((b"IHDR", struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)), (b"IDAT", data), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize(("width", "height"), [(60_000_000, 1), (13_000, 13_000), (65_000, 1)])
def test_a_picture_that_would_take_all_memory_is_left_out(pets, width, height):
    """The third is small, and would not be when its short side is scaled to 10 pixels."""
    (pets / "cats" / "bomb.png").write_bytes(bomb(width, height))
    tracemalloc.start()
    with pytest.warns(
        UserWarning, match=r"1 of 9 files .*cats/bomb.png \(a picture of \d+x\d+ .*pixels or a side"
    ):
        assert len(opened(pets)) == 8
    assert tracemalloc.get_traced_memory()[1] < 30e6
    tracemalloc.stop()


def test_the_cache_is_where_one_says(pets, monkeypatch, tmp_path):
    monkeypatch.setenv("CLEARANCE_CACHE", str(tmp_path / "mine"))
    open_folder(pets, HOW)
    assert list((tmp_path / "mine").rglob("*.pixels"))
    monkeypatch.delenv("CLEARANCE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "usual"))
    open_folder(pets, HOW)
    assert list((tmp_path / "usual" / "clearance").rglob("*.pixels"))


def test_sizes_that_differ_need_size(pets):
    with pytest.raises(ValueError, match=r"got 20x16 in cats/0.png and 11x30 in cats/1.png; give `size`"):
        opened(pets, Preprocessing())
    assert not list((pets.parent / "cache").iterdir())  # nothing half written stays


def test_a_class_of_which_nothing_can_be_read(pets):
    for file in (pets / "dogs").iterdir():
        file.write_text("")
    with pytest.raises(ValueError, match="got none of 'dogs'"):
        opened(pets)
    assert not list((pets.parent / "cache").iterdir())
    for file in (pets / "cats").iterdir():
        file.write_text("")
    with pytest.raises(ValueError, match=r"no picture in .* can be read: cats/0.png .*and 5 more"):
        opened(pets)


def test_names_of_classes_are_checked_before_pictures_are_decoded(pets, monkeypatch):
    monkeypatch.setattr(folders, "write_pixels", None)
    (pets / "dogs").rename(pets / "all")
    with pytest.raises(ValueError, match="must not be called 'all'"):
        opened(pets)


def test_what_a_killed_process_left_long_ago_is_deleted(pets):
    first = opened(pets)
    (kept,) = (pets.parent / "cache").glob("*.pixels")
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    left = kept.with_name(f".{kept.name}.{int(ended.stdout)}.tmp")
    kept.rename(left)
    os.utime(left, (0, 0))
    assert opened(pets).digest() == first.digest()
    assert not left.exists()


@pytest.fixture
def stored(pets, memory_for_images):
    """The set in memory, and the same where memory holds three of its images."""
    whole = opened(pets)
    memory_for_images(3 * 4 * 3 * 8 * 8)
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
    fresh = kept.subset(torch.arange(len(kept)))  # which has to compute it
    assert fresh.known_digest is None
    assert fresh.digest() == fresh.known_digest == whole.digest()
    assert kept.with_label_noise(1.0, seed=0).digest() != whole.digest()


def test_all_pixels_at_once_are_refused_with_a_way_out(stored):
    _, kept = stored
    with pytest.raises(
        ValueError, match=r"images of 'pets' stay on disk, because they take .*use a `subset`"
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
    with pytest.raises(ValueError, match="got 2 labels and 8 images"):
        StoredImageSet(kept.store, torch.tensor([0, 1]), kept.classes)


def test_no_warning_without_reason(pets):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened(pets)


def save(path, pixels, mode=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(pixels)
    (picture.convert(mode) if mode else picture).save(path, **options)


def gradient(height, width):
    """A colour picture in which every pixel differs."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows * 20, columns * 20, np.full_like(rows, 100)], 2).astype(np.uint8)


def test_is_sorted_and_passes_over_other_files(tmp_path):
    for name, value in (("b/2.png", 40), ("b/1.PNG", 30), ("a/9.bmp", 10), ("a/a.pgm", 20)):
        shape = (4, 6) if name.endswith("pgm") else (4, 6, 3)
        save(tmp_path / "pets" / name, np.full(shape, value, np.uint8))
    (tmp_path / "pets" / "b" / "notes.txt").write_text("not a picture")
    (tmp_path / "pets" / "b" / ".hidden.png").write_text("not a picture")
    (tmp_path / "pets" / ".cache").mkdir()
    (tmp_path / "pets" / "readme.png").write_text("beside the classes")
    data = open_folder(tmp_path / "pets")
    assert (data.classes, data.name, data.shape) == (("a", "b"), "pets", (3, 4, 6))
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert (data.images[:, 0, 0, 0] * 255).round().tolist() == [10, 20, 30, 40]
    assert open_folder(tmp_path / "pets", Preprocessing(size=2)).shape == (3, 2, 2)


def two_classes(tmp_path, pixels, suffix="png", mode=None, **options):
    for name in "ab":
        save(tmp_path / name / f"one.{suffix}", pixels, mode, **options)
    return open_folder(tmp_path)


@pytest.mark.parametrize("suffix", ["png", "bmp", "ppm", "gif"])
def test_reads_pixels_exactly(tmp_path, suffix):
    pixels = gradient(4, 6)
    data = two_classes(tmp_path, pixels, suffix)
    np.testing.assert_array_equal(data.images[0].permute(1, 2, 0).numpy(), pixels / np.float32(255))


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA"])
def test_makes_everything_rgb(tmp_path, mode):
    data = two_classes(tmp_path, np.full((4, 6, 3), 255, np.uint8), mode=mode)
    assert torch.equal(data.images, torch.ones(2, 3, 4, 6))


def test_drops_transparency(tmp_path):
    pixels = np.dstack([gradient(4, 6), np.full((4, 6), 7, np.uint8)])
    data = two_classes(tmp_path, pixels)
    np.testing.assert_array_equal(data.images[0].permute(1, 2, 0).numpy(), pixels[..., :3] / np.float32(255))


def test_reads_a_palette_with_transparency(tmp_path):
    palette = Image.fromarray(gradient(4, 6)).quantize(24)
    expected = np.array(palette.convert("RGB"))
    for name in "ab":
        (tmp_path / name).mkdir()
        palette.save(tmp_path / name / "one.png", transparency=bytes(range(24)))
    data = open_folder(tmp_path)  # Pillow warns of such palettes, and warnings are errors here
    np.testing.assert_array_equal(data.images[0].permute(1, 2, 0).numpy(), expected / np.float32(255))


def test_obeys_the_orientation_mark(tmp_path):
    pixels, exif = gradient(4, 6), Image.Exif()
    exif[0x0112] = 6  # "rotate by 90 degrees clockwise to see it upright"
    data = two_classes(tmp_path, pixels, exif=exif)
    upright = np.rot90(pixels, k=-1)
    np.testing.assert_array_equal(data.images[0].permute(1, 2, 0).numpy(), upright / np.float32(255))


def test_damaged_exif_names_no_orientation(tmp_path, monkeypatch):
    def damaged(picture):
        raise struct.error("unpack requires a buffer of 8 bytes")

    monkeypatch.setattr("clearance.data.folder.ImageOps.exif_transpose", damaged)
    pixels = gradient(4, 6)
    data = two_classes(tmp_path, pixels)
    np.testing.assert_array_equal(data.images[0].permute(1, 2, 0).numpy(), pixels / np.float32(255))


def write(root, sizes):
    """Classes a and b of pictures of these sizes (width, height)."""
    for label, name in enumerate("ab"):
        (root / name).mkdir(parents=True)
        for i, (width, height) in enumerate(sizes):
            stream = np.random.default_rng((label, i))
            pixels = stream.integers(0, 256, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")


@pytest.fixture
def halves(tmp_path):
    """A folder with train and test, of odd sizes."""
    for split in ("train", "test"):
        write(tmp_path / "pets" / split, [(37, 53), (60, 41), (25, 24)])
    return tmp_path / "pets"


def torchvisions(file, side):
    """Resize(side) and CenterCrop(side) of torchvision 0.27 on a Pillow picture, written out."""
    with Image.open(file) as picture:
        width, height = picture.size
        long = int(side * max(width, height) / min(width, height))
        size = (side, long) if width <= height else (long, side)
        resized = picture.resize(size, Image.Resampling.BILINEAR)  # of Pillow: always with antialiasing
    top, left = int(round((size[1] - side) / 2.0)), int(round((size[0] - side) / 2.0))  # noqa: RUF046
    return torch.from_numpy(np.array(resized)[top : top + side, left : left + side]).permute(2, 0, 1) / 255


def test_training_and_auditing_see_the_pixels_of_torchvisions_evaluation_transform(halves):
    trained = load_dataset(f"folder:{halves}", "train", size=24)
    audited = open_images(f"folder:{halves / 'train'}", Preprocessing(size=24))
    expected = torch.stack(
        [torchvisions(halves / "train" / f"{c}/{i}.png", 24) for c in "ab" for i in range(3)]
    )
    assert torch.equal(audited.images, expected)
    assert torch.equal(trained.images, expected)


def test_training_leaves_out_what_cannot_be_read_as_auditing_does(halves):
    (halves / "train" / "a" / "0.png").write_bytes(b"cut short")
    with pytest.warns(UserWarning, match=r"1 of 6 files .* left out: a/0.png \(not a picture, or damaged\)"):
        data = load_dataset(f"folder:{halves}", "train", size=24)
    assert data.labels.tolist() == [0, 0, 1, 1, 1]


def test_postscript_named_png_starts_no_program(halves, tmp_path, monkeypatch):
    program, started = tmp_path / "bin" / "gs", tmp_path / "started"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {started}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # where Pillow remembers what it found
    (halves / "train" / "a" / "0.png").write_bytes(POSTSCRIPT)
    with pytest.warns(UserWarning, match=r"a/0.png \(not a picture, or damaged\)"):
        data = open_images(f"folder:{halves / 'train'}", Preprocessing(size=8))
    assert not started.exists()
    assert len(data) == 5


def test_training_takes_all_pictures_into_memory(halves, memory_for_images):
    small = load_dataset(f"folder:{halves}", "train", size=8)
    memory_for_images(1)
    assert torch.equal(load_dataset(f"folder:{halves}", "train", size=8).images, small.images)


@pytest.mark.parametrize("most", [2**30, 1], ids=["in memory", "on disk"])
def test_where_no_cache_can_be_written_pictures_are_read_all_the_same(
    pets, memory_for_images, monkeypatch, most
):
    expected = opened(pets)
    memory_for_images(most)
    (pets.parent / "file").write_text("no folder")
    monkeypatch.setattr("tempfile.tempdir", str(pets.parent / "temporary"))
    (pets.parent / "temporary").mkdir()
    found = open_folder(pets, HOW, cache=pets.parent / "file" / "cache")
    assert torch.equal(torch.cat([images for images, _ in found.batches(3)]), expected.images)
    del found
    gc.collect()
    assert not list((pets.parent / "temporary").iterdir())


@pytest.mark.parametrize("folder", ["small", "cache"])
def test_a_full_disk_under_the_cache_does_not_matter(pets, monkeypatch, folder):
    """Neither while pixels are written nor while their facts are; nothing stays in the cache that is not whole."""
    expected = opened(pets).images
    for left in (pets.parent / "cache").iterdir():
        left.unlink()
    sync = os.fsync

    def full(descriptor):
        raise OSError(28, "No space left on device")

    def write_pixels(path, images):
        if path.is_relative_to(pets.parent / "cache"):
            next(iter(images))
            raise OSError(28, "No space left on device")
        return written_pixels(path, images)

    if folder == "small":
        monkeypatch.setattr(folders, "write_pixels", write_pixels)
    monkeypatch.setattr(os, "fsync", full if folder == "cache" else sync)
    assert torch.equal(opened(pets).images, expected)
    assert not list((pets.parent / "cache").glob("*.json"))
    monkeypatch.undo()
    assert torch.equal(opened(pets).images, expected)


def test_a_folder_above_the_sets_is_refused_with_the_one_that_is_meant(pets):
    (pets.parent / "all").mkdir()
    pets.rename(pets.parent / "all" / "train")
    with pytest.raises(ValueError, match=r"which holds train\. Name that folder: folder:.*all/train"):
        opened(pets.parent / "all")
