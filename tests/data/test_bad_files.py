"""Files that are damaged, of another form, or missing: each is one clear error."""

import gzip
import struct

import numpy as np
import pytest
from PIL import Image

from clearance.data import Preprocessing
from clearance.data.cifar import read_cifar10, read_cifar100
from clearance.data.digits import read_digits
from clearance.data.folder import open_folder
from clearance.data.idx import read_idx
from clearance.data.npz import read_npz
from data.small_images import U8  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml


def idx(folder, *, magic=2051, sizes=(2, 3, 3), pixels=18, labels=(0, 1), label_magic=2049, pack=None):
    """A pair of IDX test files, good unless told otherwise; `pack` makes the image file's last bytes."""
    content = struct.pack(f">{1 + len(sizes)}I", magic, *sizes) + bytes(pixels)
    if pack is None:
        (folder / "t10k-images-idx3-ubyte").write_bytes(content)
    else:
        (folder / "t10k-images-idx3-ubyte.gz").write_bytes(pack(content))
    content = struct.pack(">2I", label_magic, len(labels)) + bytes(labels)
    (folder / "t10k-labels-idx1-ubyte").write_bytes(content)
    return read_idx(folder, "test")


def cifar(folder, read, name, content):
    (folder / name).write_bytes(content)
    return read(folder, "test")


def npz(folder, **arrays):
    np.savez(folder / "toy.npz", **arrays)
    return read_npz(folder / "toy.npz")


def raw(folder, content, name="toy.npz"):
    (folder / name).write_bytes(content)
    return read_npz(folder / name)


def damaged_npz(folder):
    """A compressed archive whose directory is whole and whose data are not."""
    np.savez_compressed(folder / "toy.npz", images=np.random.default_rng(0).random((2, 9, 9)), labels=[0, 1])
    content = bytearray((folder / "toy.npz").read_bytes())
    name, extra = struct.unpack("<2H", content[26:30])
    content[30 + name + extra] = 0xFF  # where the first array begins; no deflate block begins so
    return raw(folder, bytes(content))


def pictures(folder, sizes, spoil=None, size=None, mode="RGB"):
    """Folders a and b of PNG files of these sizes; `spoil` changes the bytes of the last file."""
    for name in "ab":
        (folder / name).mkdir()
        for i, each in enumerate(sizes):
            Image.new(mode, each).save(folder / name / f"{i}.png")
    if spoil:
        last = folder / "b" / f"{len(sizes) - 1}.png"
        last.write_bytes(spoil(last.read_bytes()))
    return open_folder(folder, Preprocessing(image_size=size))


def empty_class(folder):
    pictures(folder, [(4, 4)])
    (folder / "c").mkdir()
    return open_folder(folder)


def one_class(folder):
    (folder / "only").mkdir()
    Image.new("RGB", (4, 4)).save(folder / "only" / "0.png")
    return open_folder(folder)


FILES = {
    "digits' split": (lambda _: read_digits("tset"), "got 'tset'. Did you mean 'test'?"),
    "idx split": (lambda p: read_idx(p, "val"), "`split` must be one of 'train', 'test'; got 'val'"),
    "cifar10 split": (lambda p: read_cifar10(p, "val"), "`split` must be one of"),
    "cifar100 split": (lambda p: read_cifar100(p, "val"), "`split` must be one of"),
    "cifar100 labels": (
        lambda p: read_cifar100(p, "test", labels="both"),
        "`labels` must be one of 'fine', 'coarse'",
    ),
    "idx magic": (lambda p: idx(p, magic=2049), r"magic number 2051 .* got 2049"),
    "idx label magic": (lambda p: idx(p, label_magic=2051), r"magic number 2049 .* got 2051"),
    "idx truncated": (lambda p: idx(p, pixels=17), r"is truncated: sizes \[2, 3, 3\] make 34 bytes; got 33"),
    "idx trailing": (lambda p: idx(p, pixels=19), "has trailing bytes: .* make 34 bytes; got 35"),
    "idx header": (lambda p: idx(p, sizes=(), pixels=0), "is truncated: a header has 16 bytes; got 4"),
    "idx enormous": (lambda p: idx(p, sizes=(2**32 - 1,) * 3), "is truncated"),
    "idx empty": (lambda p: idx(p, sizes=(0, 3, 3), pixels=0, labels=()), "at least one pixel"),
    "idx counts": (lambda p: idx(p, labels=(0, 1, 1)), "got 2 images and 3 labels"),
    "gzip truncated": (
        lambda p: idx(p, pack=lambda b: gzip.compress(b)[:-9]),
        "truncated or not a gzip file",
    ),
    "gzip damaged": (
        lambda p: idx(p, pack=lambda b: gzip.compress(b)[:10] + b"\xff" * 20),
        "truncated or not a gzip",
    ),
    "gzip no gzip": (lambda p: idx(p, pack=lambda b: b), "truncated or not a gzip file"),
    "cifar10 length": (
        lambda p: cifar(p, read_cifar10, "test_batch.bin", bytes(3072)),
        "whole number of 3073-byte images long; got 3072 bytes",
    ),
    "cifar100 length": (
        lambda p: cifar(p, read_cifar100, "test.bin", bytes(3 * 3073)),
        "whole number of 3074-byte images long; got 9219 bytes",
    ),
    "cifar10 empty": (lambda p: cifar(p, read_cifar10, "test_batch.bin", b""), "got 0 bytes"),
    "cifar10 label": (
        lambda p: cifar(p, read_cifar10, "test_batch.bin", b"\x0a" + bytes(3072)),
        "there are 10 classes; got labels from 10 to 10",
    ),
    "cifar10 class": (
        lambda p: cifar(p, read_cifar10, "test_batch.bin", bytes(3073)),
        r"\(9 of 10 classes\)",
    ),
    "npz without images": (lambda p: npz(p, labels=[0, 1]), "'images' or 'x'; got 'labels'"),
    "npz without labels": (lambda p: npz(p, x=U8), "'labels' or 'y'; got 'x'"),
    "npz of other names": (lambda p: npz(p, data=U8), "got none of the known names"),
    "npz of objects": (
        lambda p: npz(p, images=np.array([{}, {}]), labels=[0, 1]),
        "as plain arrays .*allow_pickle",
    ),
    "npz label": (lambda p: npz(p, images=U8, labels=[0, 2], classes=["a", "b"]), "got labels from 0 to 2"),
    "npz names": (lambda p: npz(p, images=U8, labels=[0, 1], classes=["a", "b", "c"]), "got none of 'c'"),
    "npz range": (
        lambda p: npz(p, images=U8.astype(float)[..., 0] + 9, labels=[0, 1]),
        "from 9 to 9; divide by 255",
    ),
    "npz lengths": (lambda p: npz(p, images=U8, labels=[0, 1, 0]), "got 2 images and 3 labels"),
    "npz damaged": (damaged_npz, "toy.npz cannot be read as plain arrays"),
    "npz of text": (lambda p: raw(p, b"not an archive"), "an archive that numpy.savez wrote"),
    "folder sizes": (
        lambda p: pictures(p, [(4, 4), (5, 4)]),
        r"4x4 in a/0\.png and 5x4 in a/1\.png; give `image_size`",
    ),
    "folder image_size 0": (
        lambda p: open_folder(p, Preprocessing(image_size=0)),
        "`image_size` must be a whole number of at least 1",
    ),
    "folder empty class": (empty_class, r"at least one image; got none in .*c "),
    "folder one class": (one_class, r"at least 2 classes; got \('only',\)"),
    "folder text": (
        lambda p: pictures(p, [(4, 4)], lambda _: b"text"),
        r"can be read; got none of 'b': b/0\.png \(",
    ),
    "folder truncated": (
        lambda p: pictures(p, [(99, 99)], lambda b: b[:-40]),
        r"can be read; got none of 'b': b/0\.png \(",
    ),
    "folder empty file": (
        lambda p: pictures(p, [(4, 4)], lambda _: b"", size=2),
        r"got none of 'b': b/0\.png \(",
    ),
    "folder 16 bit": (
        lambda p: pictures(p, [(4, 4)], mode="I;16"),
        r"no picture in .* can be read: a/0\.png \(.*8 bits per channel",
    ),
}

MISSING = {
    "idx": (lambda p: read_idx(p, "test"), r"no file t10k-images-idx3-ubyte\.gz or .* looked in .*raw"),
    "cifar10": (
        lambda p: read_cifar10(p, "train"),
        r"no file data_batch_1\.bin; looked in .*cifar-10-batches-bin",
    ),
    "cifar100": (lambda p: read_cifar100(p, "test"), r"no file test\.bin; looked in .*cifar-100-binary"),
    "npz": (lambda p: read_npz(p / "toy.npz"), r"no file .*toy\.npz"),
    "folder": (lambda p: open_folder(p / "pets"), "no folder .*pets"),
    "folder of nothing": (open_folder, "must hold one folder of pictures for each class"),
}


@pytest.mark.parametrize(("attempt", "fragment"), FILES.values(), ids=FILES.keys())
def test_bad_input_is_one_clear_error(tmp_path, attempt, fragment):
    with pytest.raises(ValueError, match=fragment):
        attempt(tmp_path)


@pytest.mark.parametrize(("attempt", "fragment"), MISSING.values(), ids=MISSING.keys())
def test_missing_files_are_named(tmp_path, attempt, fragment):
    with pytest.raises(FileNotFoundError, match=fragment):
        attempt(tmp_path)


def test_the_good_files_beside_the_bad_are_good(tmp_path):
    for name in ("idx", "npz", "pictures"):
        (tmp_path / name).mkdir()
    assert len(idx(tmp_path / "idx")) == 2
    assert len(npz(tmp_path / "npz", images=U8, labels=[0, 1])) == 2
    assert len(pictures(tmp_path / "pictures", [(4, 4), (5, 4)], size=3)) == 4
