"""Damaged pictures and archives: each gives images that are valid, or is left out or refused in one line."""

import io
import shutil
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from clearance.data import Preprocessing
from clearance.data.folder import open_folder
from clearance.data.npz import read_npz, read_npz_images
from fuzz.damage import NUMBERS, damaged_bytes
from fuzz.endings import MARK, cases, one_line

pytestmark = MARK
FORMATS = (
    "png",
    "jpeg",
    "bmp",
    "gif",
    "webp",
    "ppm",
    "tiff",
    "eps",
    "ico",
    "tga",
)  # some of which are not read
MODES = ("RGB", "L", "P", "RGBA", "1", "CMYK", "I;16", "F", "LA", "YCbCr")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("pets")


def picture(size, mode, kind):
    """A picture's bytes in a format; in PNG where the format does not have the mode."""
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    content = io.BytesIO()
    try:
        made = Image.fromarray(pixels).convert("L" if mode in ("I;16", "F") else mode)
        made.convert(mode).save(content, kind)
    except (OSError, ValueError, KeyError):
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, "png")
    return content.getvalue()


SIZES = st.tuples(st.integers(1, 40), st.integers(1, 40))
PICTURES = st.builds(picture, SIZES, st.sampled_from(MODES), st.sampled_from(FORMATS))


def valid(data):
    pixels = data.images
    assert pixels.dtype == torch.float32
    assert bool(((pixels >= 0) & (pixels <= 1)).all())
    assert len(pixels) == len(data.labels)


@cases(300)
@given(data=st.data())
def test_folders(place, data):
    shutil.rmtree(place)
    for name in ("cats", "dogs"):
        (place / name).mkdir(parents=True)
        Image.new("RGB", (12, 12), (200, len(name), 0)).save(place / name / "whole.png")
    content = data.draw(PICTURES)
    damaged = data.draw(st.one_of(st.just(content), damaged_bytes(content), st.binary(max_size=64)))
    suffix = data.draw(st.sampled_from((".png", ".jpg", ".gif", ".PPM", ".webp", ".txt", "")))
    if damaged is not None:
        (place / "cats" / f"odd{suffix}").write_bytes(damaged)
    how = data.draw(st.sampled_from((Preprocessing(size=8), Preprocessing(size=5, short_side=7), None)))
    with one_line("pets", "cats", "odd"):
        found = open_folder(place, how, cache=place.parent / "cache")
        valid(found)
        again = open_folder(place, how, cache=place.parent / "cache")
        assert again.digest() == found.digest()
    shutil.rmtree(place.parent / "cache", ignore_errors=True)


def archive(**arrays):
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


DTYPES = ("u1", "f4", "f8", "f2", "i8", "u2", "b1", "c8", "U3", "S2", "M8[s]", "V4", "<f4", ">f4")
SHAPES = st.lists(st.sampled_from((0, 1, 2, 3, 4, 8)), max_size=5).map(tuple)


@st.composite
def arrays(draw):
    """An array of any shape and type, with odd numbers in it where they fit."""
    kind, shape = np.dtype(draw(st.sampled_from(DTYPES))), draw(SHAPES)
    made = np.zeros(shape, kind)
    if kind.kind in "fiu" and made.size:
        with np.errstate(all="ignore"):
            value = draw(
                st.sampled_from([number for number in NUMBERS if abs(number) < 2**15 or number != number])
            )
            made.flat[0] = 0 if kind.kind != "f" and value != value else np.array(value).astype(kind)
    return made


@cases(250)
@given(
    contents=st.dictionaries(
        st.sampled_from(("images", "x", "labels", "y", "classes", "other")), arrays(), max_size=5
    )
)
def test_archives_of_any_arrays(place, contents):
    place.mkdir(exist_ok=True)
    file = place / "odd.npz"
    file.write_bytes(archive(**contents))
    with one_line("odd.npz"):
        valid(read_npz(file))
    with one_line("odd.npz"):
        read_npz_images(file)


WHOLE = archive(
    images=np.random.default_rng(0).random((6, 3, 4, 4), dtype=np.float32),
    labels=np.arange(6) % 3,
    classes=np.array(["ape", "bee", "cat"]),
)


@cases(200)
@given(content=st.one_of(damaged_bytes(WHOLE), damaged_bytes(WHOLE).filter(bool).flatmap(damaged_bytes)))
def test_damaged_archives(place, content):
    place.mkdir(exist_ok=True)
    file = place / "odd.npz"
    file.unlink(missing_ok=True)
    if content is not None:
        file.write_bytes(content)
    with one_line("odd.npz"):
        found = read_npz(file)
        valid(found)
        if content and zipfile.is_zipfile(
            file
        ):  # its checksums hold, so its arrays are those that were written
            assert len(found) == 6
