"""Copies of Fashion-MNIST's images and of photographs are found; different images of either are not taken for copies.

The limits of the audit were chosen on the first half of the training images of Fashion-MNIST and MNIST; here are images
of the second half, and photographs.
"""

import io
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from clearance import load_dataset
from clearance.audits.duplicates import Copies
from clearance.data import Preprocessing, open_images

pytestmark = pytest.mark.filterwarnings("error")

BICUBIC, BILINEAR = Image.Resampling.BICUBIC, Image.Resampling.BILINEAR


def saved(picture, quality=75):
    kept = io.BytesIO()
    picture.save(kept, "JPEG", quality=quality)
    return Image.open(io.BytesIO(kept.getvalue()))


def resized(picture, share, kernel):
    return picture.resize([round(share * side) for side in picture.size], kernel).resize(picture.size, kernel)


def mirrored(picture):
    return picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


CHANGES = {
    "JPEG 95": lambda picture: saved(picture, 95),
    "JPEG 75": saved,
    "JPEG 50": lambda picture: saved(picture, 50),
    "three quarters, bicubic": lambda picture: resized(picture, 0.75, BICUBIC),
    "three quarters, bilinear": lambda picture: resized(picture, 0.75, BILINEAR),
    "one and a half, bilinear": lambda picture: resized(picture, 1.5, BILINEAR),
    "mirrored": mirrored,
    "mirrored, JPEG 75": lambda picture: saved(mirrored(picture)),
}


@pytest.fixture(scope="module", params=["fashion-mnist", "photographs"])
def images(request, data_root, tmp_path_factory):
    """1,000 of them."""
    if request.param == "fashion-mnist":
        found = load_dataset("fashion-mnist", "train", data_root).subset(torch.arange(30_000, 60_000))
    else:
        folder, archive = tmp_path_factory.mktemp("photographs"), data_root / "sign-language-digits.zip"
        if not archive.is_file():
            pytest.skip(f"no real data: {archive.name}")
        zipfile.ZipFile(archive).extractall(folder)
        found = open_images(f"folder:{folder}/sign-language-digits", Preprocessing(size=64), cache=folder)
    rows = np.random.default_rng(11).choice(len(found), 1000, replace=False)
    return found.subset(torch.from_numpy(rows))


def changed(image, change):
    pixels = (255 * image.permute(1, 2, 0)).round().byte().numpy()
    picture = np.asarray(change(Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])))
    return torch.from_numpy(picture.copy()).reshape(image.shape[1], image.shape[2], -1).permute(2, 0, 1) / 255


def test_no_two_of_a_thousand_images_are_taken_for_copies(images):
    assert Copies.of([images]).pairs == ()


@pytest.mark.parametrize("name", CHANGES)
def test_nine_copies_of_ten_are_found(images, name):
    some = images.subset(torch.arange(300))
    copies = some._derived(images=torch.stack([changed(image, CHANGES[name]) for image in some.images]))
    pairs = Copies.of([images, copies]).pairs
    right = [pair for pair in pairs if pair.second == pair.first + len(images)]
    assert len(right) >= 0.9 * len(copies)
    assert len(pairs) == len(right)


def test_every_exact_copy_is_found(images):
    pairs = Copies.of([images, images.subset(torch.arange(0, 1000, 3))]).pairs
    assert [(pair.first, pair.kind) for pair in pairs] == [(row, "exact") for row in range(0, 1000, 3)]
