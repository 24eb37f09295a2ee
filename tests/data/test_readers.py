"""Readers on small files made here byte by byte, and on damaged ones: each of those is one clear error."""

import gzip
import io
import struct
import tracemalloc
import zipfile
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_sample_image

from clearance.data import Preprocessing
from clearance.data.cifar import read_cifar
from clearance.data.digits import read_digits
from clearance.data.folder import open_folder
from clearance.data.idx import read_idx
from clearance.data.npz import read_npz
from clearance.data.photographs import read_photographs
from data.small_images import U8

BYTES = np.arange(24, dtype=np.uint8).reshape(3, 4, 2) * 10  # three images, 4 high and 2 wide
LABELS = np.array([1, 0, 1], dtype=np.uint8)


def write_idx(folder, prefix, images=BYTES, labels=LABELS, packed=True):
    folder.mkdir(parents=True, exist_ok=True)
    for stem, magic, array in (("images-idx3", 2051, images), ("labels-idx1", 2049, labels)):
        content = struct.pack(f">{1 + array.ndim}I", magic, *array.shape) + array.tobytes()
        path = folder / f"{prefix}-{stem}-ubyte"
        if packed:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
        else:
            path.write_bytes(content)


@pytest.mark.parametrize("packed", [True, False], ids=["gz", "plain"])
@pytest.mark.parametrize("inner", [".", "raw", "MNIST/raw", "FashionMNIST/raw"])
def test_idx(tmp_path, inner, packed):
    write_idx(tmp_path / inner, "t10k", packed=packed)
    data = read_idx(tmp_path, "test", "letters")
    torch.testing.assert_close(
        data.images, torch.from_numpy(BYTES).float().unsqueeze(1) / 255, atol=0, rtol=0
    )
    assert data.labels.tolist() == [1, 0, 1]
    assert (data.classes, data.name) == (("0", "1"), "letters")


def test_idx_tells_the_two_mnists_of_one_root_apart(tmp_path):
    tens = np.arange(10, dtype=np.uint8)
    write_idx(tmp_path / "MNIST" / "raw", "train")
    write_idx(tmp_path / "FashionMNIST" / "raw", "train", np.zeros((10, 2, 2), np.uint8), tens)
    assert len(read_idx(tmp_path, "train", "mnist")) == 3
    fashion = read_idx(tmp_path, "train", "fashion-mnist")
    assert len(fashion) == 10
    assert (fashion.classes[0], fashion.classes[9]) == ("T-shirt/top", "Ankle boot")


def cifar_record(labels, index):
    """Planes of one colour each, and the image's index in the pixel at row 2, column 5 of the green one."""
    planes = np.array([10, 20, 30], np.uint8).reshape(3, 1, 1) * np.ones((1, 32, 32), np.uint8)
    planes[1, 2, 5] = index
    return bytes(labels) + planes.tobytes()


@pytest.mark.parametrize("inner", [".", "cifar-10-batches-bin"])
def test_cifar10(tmp_path, inner):
    folder = tmp_path / inner
    folder.mkdir(exist_ok=True)
    for batch in range(5):
        records = [cifar_record([9 - 2 * batch - i], 2 * batch + i) for i in range(2)]
        (folder / f"data_batch_{batch + 1}.bin").write_bytes(b"".join(records))
    data = read_cifar(tmp_path, "train")
    assert data.shape == (3, 32, 32)
    assert data.labels.tolist() == list(range(9, -1, -1))
    assert (data.images[:, 1, 2, 5] * 255).round().tolist() == list(range(10))
    assert (data.images[:, :, 0, 0] * 255).round().unique(dim=0).tolist() == [[10, 20, 30]]
    assert (data.classes[0], data.classes[9]) == ("airplane", "truck")


def test_cifar10_test_is_its_own_file(tmp_path):
    (tmp_path / "test_batch.bin").write_bytes(b"".join(cifar_record([k], k) for k in range(10)))
    assert len(read_cifar(tmp_path, "test")) == 10


@pytest.mark.parametrize("inner", [".", "cifar-100-binary"])
def test_cifar100_has_fine_labels(tmp_path, inner):
    folder = tmp_path / inner
    folder.mkdir(exist_ok=True)
    records = b"".join(cifar_record([(k * 7) % 20, k], k) for k in range(100))
    (folder / "test.bin").write_bytes(records)
    fine = read_cifar(tmp_path, "test", "cifar100")
    assert fine.labels.tolist() == list(range(100))
    assert (fine.class_count, fine.classes[0], fine.classes[99]) == (100, "apple", "worm")
    assert (fine.images[:, 1, 2, 5] * 255).round().tolist() == list(range(100))


def test_digits_are_all_there_once():
    train, test = read_digits("train"), read_digits("test")
    assert (len(train), len(test)) == (1300, 497)
    everything = load_digits()
    known = sorted((*pixels, label) for pixels, label in zip(everything.data, everything.target, strict=True))
    both = [(data.images.flatten(1) * 16, data.labels) for data in (train, test)]
    found = sorted(
        (*p.tolist(), int(y)) for pixels, labels in both for p, y in zip(pixels, labels, strict=True)
    )
    assert found == known
    assert torch.bincount(test.labels).min() >= 48


def test_digits_split_is_the_same_everywhere():
    digests = [read_digits(split).digest()[:16] for split in ("train", "test")]
    assert digests == PINNED_DIGITS


PINNED_DIGITS = ["48cadc5f554220e1", "803c53ce7826d668"]


NPZ = {
    "uint8 colour": (np.full((2, 4, 5, 3), 51, np.uint8), (3, 4, 5)),
    "uint8 one channel": (np.full((2, 4, 5, 1), 51, np.uint8), (1, 4, 5)),
    "uint8 grey": (np.full((2, 4, 5), 51, np.uint8), (1, 4, 5)),
    "float32": (np.full((2, 3, 4, 5), 0.2, np.float32), (3, 4, 5)),
    "float64 grey": (np.full((2, 4, 5), 0.2), (1, 4, 5)),
    "big-endian": (np.full((2, 3, 4, 5), 0.2, ">f4"), (3, 4, 5)),
}


@pytest.mark.parametrize(("images", "shape"), NPZ.values(), ids=NPZ.keys())
@pytest.mark.parametrize("names", [("images", "labels"), ("x", "y")], ids="-".join)
def test_npz(tmp_path, images, shape, names):
    path = tmp_path / "toy.npz"
    np.savez(path, **{names[0]: images, names[1]: np.array([1, 0], np.int32)})
    data = read_npz(path)
    assert (data.shape, data.name, data.classes) == (shape, "toy", ("0", "1"))
    torch.testing.assert_close(data.images, torch.full((2, *shape), 0.2))
    assert data.labels.tolist() == [1, 0]


def test_npz_channels_go_where_they_belong(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), dtype=np.uint8)
    np.savez_compressed(tmp_path / "toy.npz", images=pixels, labels=[0, 1], classes=np.array(["ape", "bee"]))
    data = read_npz(tmp_path / "toy.npz")
    assert data.classes == ("ape", "bee")
    for c in range(3):
        np.testing.assert_array_equal(data.images[:, c].numpy(), pixels[..., c] / np.float32(255))


def test_npz_classes_may_be_bytes(tmp_path):
    images = np.zeros((2, 4, 4), dtype=np.uint8)
    assert npz(tmp_path, images=images, labels=[0, 1], classes=np.array([b"ape", b"bee"])).classes == (
        "ape",
        "bee",
    )


class TestPhotographs:
    def test_patches_are_means_of_the_photographs_pixels(self):
        photograph = load_sample_image("china.jpg").astype(np.float64).mean(axis=2) / 255
        train, test = read_photographs("train"), read_photographs("test")
        # the first patch of the first row, and the one to its right
        for data, left in ((train, 0), (test, 32)):
            expected = photograph[:4, left : left + 4].mean()
            assert float(data.images[0, 0, 0, 0]) == pytest.approx(expected)
            expected = photograph[28:32, left + 28 : left + 32].mean()
            assert float(data.images[0, 0, 7, 7]) == pytest.approx(expected)

    def test_both_photographs_in_both_halves_and_no_patch_in_two(self):
        train, test = read_photographs("train"), read_photographs("test")
        assert torch.bincount(train.labels).tolist() == torch.bincount(test.labels).tolist() == [130, 130]
        assert not {each.numpy().tobytes() for each in train.images} & {
            each.numpy().tobytes() for each in test.images
        }

    def test_another_word_is_refused(self):
        with pytest.raises(ValueError, match="`split` must be one of"):
            read_photographs("validation")


# Files that are damaged, of another form, or missing: each is one clear error.


def idx(folder, *, magic=2051, sizes=(2, 3, 3), pixels=18, labels=(0, 1), label_magic=2049, pack=None):
    """A pair of IDX test files, good by default; `pack` makes the image file's last bytes."""
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


def claiming_npz(folder, shape, held=0, kind="<f4"):
    """An archive whose array says that it has a shape, and holds that many bytes, all 0, deflated."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": kind, "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(folder / "toy.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("images.npy", "w", force_zip64=True) as file:
            file.write(header.getvalue())
            for _ in range(held >> 20):
                file.write(bytes(2**20))
        archive.writestr("labels.npy", header.getvalue())
    return read_npz(folder / "toy.npz")


def larger_than_memory(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clearance.data.npz.memory", lambda: 2**23)
        return claiming_npz(folder, (2**16, 8, 8), held=2**22, kind="|u1")


def packed_idx(folder):
    """68 kB that unpack to 64 MiB more than the header says."""
    header = struct.pack(">4I", 2051, 2, 3, 3)
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + bytes(2**26)))
    tracemalloc.start()
    try:
        return read_idx(folder, "test")
    finally:
        assert tracemalloc.get_traced_memory()[1] < 2**22
        tracemalloc.stop()


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
    return open_folder(folder, Preprocessing(size=size))


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
    "cifar10 split": (lambda p: read_cifar(p, "val"), "`split` must be one of"),
    "cifar100 split": (lambda p: read_cifar(p, "val", "cifar100"), "`split` must be one of"),
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
        lambda p: cifar(p, read_cifar, "test_batch.bin", bytes(3072)),
        "whole number of 3073-byte images long; got 3072 bytes",
    ),
    "cifar100 length": (
        lambda p: cifar(p, partial(read_cifar, name="cifar100"), "test.bin", bytes(3 * 3073)),
        "whole number of 3074-byte images long; got 9219 bytes",
    ),
    "cifar10 empty": (lambda p: cifar(p, read_cifar, "test_batch.bin", b""), "got 0 bytes"),
    "cifar10 label": (
        lambda p: cifar(p, read_cifar, "test_batch.bin", b"\x0a" + bytes(3072)),
        "there are 10 classes; got labels from 10 to 10",
    ),
    "cifar10 class": (
        lambda p: cifar(p, read_cifar, "test_batch.bin", bytes(3073)),
        r"\(9 of 10 classes\)",
    ),
    "npz that claims 47 GB": (
        lambda p: claiming_npz(p, (12_000_000, 31, 32)),
        r"'images' claims 47,616,000,000 bytes, of which the archive holds at most \d\d",
    ),
    "npz that claims more than a number holds": (
        lambda p: claiming_npz(p, (2**62, 2**62)),
        "'images' claims .* bytes, of which",
    ),
    "npz of a negative size": (lambda p: claiming_npz(p, (-4, 8, 8)), "cannot be read as plain arrays"),
    "npz larger than memory": (
        larger_than_memory,
        "needs 0.0 GiB as float32, more than the memory of this machine",
    ),
    "idx that unpacks to more": (packed_idx, "has trailing bytes: .* make 34 bytes; got 35 or more"),
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
        r"4x4 in a/0\.png and 5x4 in a/1\.png; give `size`",
    ),
    "folder size 0": (
        lambda p: open_folder(p, Preprocessing(size=0)),
        "`size` must be a whole number of at least 1",
    ),
    "folder empty class": (empty_class, r"at least one image; got none in .*c .*\. Add pictures\."),
    "folder one class": (one_class, r"at least 2 classes; got only \('only',\)"),
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
        lambda p: read_cifar(p, "train"),
        r"no file data_batch_1\.bin; looked in .*cifar-10-batches-bin",
    ),
    "cifar100": (
        lambda p: read_cifar(p, "test", "cifar100"),
        r"no file test\.bin; looked in .*cifar-100-binary",
    ),
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


def test_the_reason_why_an_archive_is_damaged_is_short(tmp_path):
    """Python quotes the name in the header, and its length is what was damaged: 64 kB."""
    np.savez(tmp_path / "toy.npz", images=np.zeros((400, 16, 16), np.uint8), labels=np.arange(400) % 2)
    content = bytearray((tmp_path / "toy.npz").read_bytes())
    content[26:28] = b"\xff\xff"
    with pytest.raises(ValueError, match="cannot be read as plain arrays") as refused:
        raw(tmp_path, bytes(content))
    assert len(str(refused.value)) < 500
    assert "\n" not in str(refused.value)
