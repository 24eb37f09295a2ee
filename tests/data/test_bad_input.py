"""All bad input in one table: what is done, the error's type, and the fragment that says what is wrong."""

import gzip
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from clearance.data import (
    Augmentation,
    GaussianClasses,
    ImageSet,
    as_image_set,
    cutout,
    gaussian_images,
    pad_crop,
    read_cifar10,
    read_cifar100,
    read_digits,
    read_folder,
    read_idx,
    read_npz,
)

GOOD = torch.linspace(0, 1, 4 * 1 * 3 * 3).view(4, 1, 3, 3)
LABELS = torch.tensor([0, 1, 0, 1])
CLASSES = ("ape", "bee")


def image_set(images=GOOD, labels=LABELS, classes=CLASSES):
    return ImageSet(images, labels, classes)


def changed(value):
    images = GOOD.clone()
    images[2, 0, 1, 1] = value
    return images


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
    return read_folder(folder, size)


def empty_class(folder):
    pictures(folder, [(4, 4)])
    (folder / "c").mkdir()
    return read_folder(folder)


def one_class(folder):
    (folder / "only").mkdir()
    Image.new("RGB", (4, 4)).save(folder / "only" / "0.png")
    return read_folder(folder)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield GOOD[0], 0


U8 = np.zeros((2, 4, 5, 3), np.uint8)

SETS = {
    "float64": (lambda _: image_set(GOOD.double()), "must be a float32 tensor; got torch.float64"),
    "uint8": (lambda _: image_set((GOOD * 255).byte()), "as_image_set.* scales uint8 by 1/255"),
    "array": (lambda _: image_set(GOOD.numpy()), "must be a float32 tensor; got ndarray"),
    "three axes": (lambda _: image_set(GOOD[:, 0]), r"4 axes \(N, C, H, W\); got shape \(4, 3, 3\)"),
    "five axes": (lambda _: image_set(GOOD[None]), r"4 axes .* got shape \(1, 4, 1, 3, 3\)"),
    "no image": (lambda _: image_set(GOOD[:0], LABELS[:0]), "at least one pixel"),
    "NaN": (
        lambda _: image_set(changed(float("nan"))),
        "NaN or infinity in 1 of 4 images, the first at index 2",
    ),
    "infinity": (lambda _: image_set(changed(float("inf"))), "NaN or infinity in 1 of 4 images"),
    "0 to 255": (lambda _: image_set(GOOD * 255), r"got values from 0 to 255; divide by 255"),
    "normalised": (lambda _: image_set(GOOD * 2 - 1), "got values from -1 to 1; undo the normalisation"),
    "a little above 1": (lambda _: image_set(changed(1.001)), "got values from 0 to 1.001"),
    "lengths": (lambda _: image_set(labels=LABELS[:3]), "got 4 images and 3 labels"),
    "label above": (
        lambda _: image_set(labels=LABELS + 1),
        "0..1 because there are 2 classes; got labels from 1 to 2",
    ),
    "label below": (lambda _: image_set(labels=LABELS - 1), "got labels from -1 to 0"),
    "float labels": (
        lambda _: image_set(labels=LABELS.float()),
        "`labels` must be an int64 tensor; got torch.float32",
    ),
    "list of labels": (
        lambda _: image_set(labels=[0, 1, 0, 1]),
        "`labels` must be an int64 tensor; got list",
    ),
    "one-hot": (
        lambda _: image_set(labels=torch.eye(2).long()[LABELS]),
        r"1 axis \(N,\); got shape \(4, 2\)",
    ),
    "empty class": (
        lambda _: image_set(classes=("ape", "bee", "cat")),
        r"got none of 'cat' \(1 of 3 classes\)",
    ),
    "one class": (lambda _: image_set(labels=LABELS * 0, classes=("ape",)), "at least 2 classes"),
    "double name": (lambda _: image_set(classes=("ape", "ape")), "must all differ; got 'ape'"),
    "list of classes": (lambda _: image_set(classes=["ape", "bee"]), "must be a tuple of strings"),
    "number as class": (lambda _: image_set(classes=(0, 1)), "must be a tuple of strings"),
}

METHODS = {
    "per_class": (lambda _: image_set().per_class(3, 0), "got 3 but class 'ape' has 2; ask for fewer"),
    "per_class of an absent class": (
        lambda _: image_set().subset(torch.tensor([0, 2])).per_class(1, 0),
        "class 'bee' has 0",
    ),
    "per_class of none": (
        lambda _: image_set().per_class(0, 0),
        "`count` must be a whole number of at least 1",
    ),
    "split at 0": (lambda _: image_set().split(0.0, 0), r"`fraction` must lie in \(0, 1\)"),
    "split at 1": (lambda _: image_set().split(1.0, 0), r"`fraction` must lie in \(0, 1\)"),
    "split too small": (lambda _: image_set().split(0.25, 0), "leaves none of 'bee'"),
    "split too large": (lambda _: image_set().split(0.75, 0), "leaves none of 'ape'"),
    "fraction at 0": (lambda _: image_set().fraction(0.0, 0), r"`fraction` must lie in \(0, 1\]"),
    "fraction too small": (lambda _: image_set().fraction(0.01, 0), "leaves none of 'ape'"),
    "noise": (lambda _: image_set().with_label_noise(1.1, 0), "`rate` must lie in"),
    "seed": (lambda _: image_set().split(0.5, -1), "`seed` must be a whole number of at least 0"),
    "index": (
        lambda _: image_set().subset(torch.tensor([0, 4])),
        r"must lie in 0..3; got numbers from 0 to 4",
    ),
    "negative index": (lambda _: image_set().subset(torch.tensor([-1])), "got numbers from -1"),
    "mask": (lambda _: image_set().subset(LABELS == 0), r"got torch.bool .* mask.nonzero\(\)"),
    "no index": (lambda _: image_set().subset(LABELS[:0]), "at least one"),
    "negative pad": (lambda _: Augmentation(pad=-1), "`pad` must be a whole number of at least 0; got -1"),
    "half a pixel": (
        lambda _: Augmentation(cutout=0.5),  # type: ignore[arg-type]
        "`cutout` must be a whole number",
    ),
    "pad_crop": (lambda _: pad_crop(GOOD, -1, torch.Generator()), "`pad` must be a whole number"),
    "cutout": (lambda _: cutout(GOOD, -1, torch.Generator()), "`side` must be a whole number"),
    "more classes than pixels": (
        lambda _: gaussian_images(5, shape=(1, 2, 2)),
        "must not exceed the 4 pixels",
    ),
    "too much noise": (lambda _: GaussianClasses(noise=0.2), "5 standard deviations around the means within"),
    "no separation": (
        lambda _: GaussianClasses(separation=0.0),
        "`separation` must be a finite number above 0",
    ),
}

CONVERSIONS = {
    "path": (lambda _: as_image_set("folder"), "must be an ImageSet, a tuple .* got str"),
    "images alone": (lambda _: as_image_set(GOOD), "got Tensor"),
    "stream": (lambda _: as_image_set(Stream()), "got Stream; gather a stream"),
    "dictionary": (lambda _: as_image_set({"images": GOOD}), "got dict"),
    "nothing": (lambda _: as_image_set([]), "got a Dataset of length 0"),
    "lists": (lambda _: as_image_set(([[0.0]], [0])), "must be a tensor or a NumPy array; got list"),
    "integers": (lambda _: as_image_set((GOOD.long(), LABELS)), "uint8 or floats in .* got torch.int64"),
    "integer array": (lambda _: as_image_set((U8.astype(int), [0, 1])), "uint8 or floats in .* got int64"),
    "channels first": (
        lambda _: as_image_set((U8.transpose(0, 3, 1, 2), [0, 1])),
        r"\(N, H, W, C\).*transpose",
    ),
    "channels last": (lambda _: as_image_set((torch.zeros(2, 6, 6, 3), [0, 1])), r"permute\(0, 3, 1, 2\)"),
    "two axes": (lambda _: as_image_set((torch.zeros(2, 64), [0, 1])), r"3 axes .* got shape \(2, 64\)"),
    "float labels in a pair": (
        lambda _: as_image_set((GOOD, [0.0, 1.0, 0.5, 1.0])),
        "whole numbers; got float64",
    ),
    "bool labels": (lambda _: as_image_set((GOOD, LABELS == 0)), "whole numbers; got torch.bool"),
    "gap": (lambda _: as_image_set((GOOD, [0, 2, 0, 2])), "got none of '1'"),
    "huge label": (
        lambda _: as_image_set((GOOD, [0, 1, 0, 10**12])),
        "without gaps; got a label 1000000000000",
    ),
    "no pair": (lambda _: as_image_set([GOOD[0], GOOD[1], GOOD[2]]), r"\(image, label\); got Tensor at"),
    "sizes in a Dataset": (
        lambda _: as_image_set([(GOOD[0], 0), (GOOD[1, :, :2], 1)]),
        r"\(1, 3, 3\) at index 0 and \(1, 2, 3\) at index 1",
    ),
    "text for an image": (lambda _: as_image_set([("a.png", 0)]), "got str at index 0"),
    "vector for an image": (
        lambda _: as_image_set([(torch.zeros(9), 0)]),
        r"got Tensor of shape \(9,\) at index 0",
    ),
    "vector for a label": (
        lambda _: as_image_set([(GOOD[0], [0, 1])]),
        r"one whole number; got shape \(2,\)",
    ),
    "text for a label": (lambda _: as_image_set([(GOOD[0], "ape")]), "`labels` must be whole numbers"),
    "16-bit picture": (
        lambda _: as_image_set([(Image.new("I;16", (3, 3)), 0)]),
        "8 bits a channel; got mode 'I;16'",
    ),
}

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
    "gzip truncated": (lambda p: idx(p, pack=lambda b: gzip.compress(b)[:-9]), "truncated or no gzip file"),
    "gzip damaged": (
        lambda p: idx(p, pack=lambda b: gzip.compress(b)[:10] + b"\xff" * 20),
        "truncated or no gzip",
    ),
    "gzip no gzip": (lambda p: idx(p, pack=lambda b: b), "truncated or no gzip file"),
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
        r"4x4 in .*a.0\.png and 5x4 in .*a.1\.png; give `size=`",
    ),
    "folder size 0": (lambda p: read_folder(p, 0), "`size` must be a whole number of at least 1"),
    "folder empty class": (empty_class, r"at least one image; got none in .*c "),
    "folder one class": (one_class, r"at least 2 classes; got \('only',\)"),
    "folder text": (
        lambda p: pictures(p, [(4, 4)], lambda _: b"text"),
        r"b.0\.png cannot be read as a picture",
    ),
    "folder truncated": (
        lambda p: pictures(p, [(99, 99)], lambda b: b[:-40]),
        r"b.0\.png cannot be read as a picture",
    ),
    "folder empty file": (lambda p: pictures(p, [(4, 4)], lambda _: b"", size=2), r"b.0\.png cannot be read"),
    "folder 16 bit": (
        lambda p: pictures(p, [(4, 4)], mode="I;16"),
        r"a.0\.png cannot be read .*8 bits a channel",
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
    "folder": (lambda p: read_folder(p / "pets"), "no folder .*pets"),
    "folder of nothing": (read_folder, "must hold one folder of pictures for each class"),
}

BAD = {**SETS, **METHODS, **CONVERSIONS, **FILES}


@pytest.mark.parametrize(("attempt", "fragment"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_clear_error(tmp_path, attempt, fragment):
    with pytest.raises(ValueError, match=fragment):
        attempt(tmp_path)


@pytest.mark.parametrize(("attempt", "fragment"), MISSING.values(), ids=MISSING.keys())
def test_missing_files_are_named(tmp_path, attempt, fragment):
    with pytest.raises(FileNotFoundError, match=fragment):
        attempt(tmp_path)


def test_the_good_input_beside_the_bad_is_good(tmp_path):
    assert len(image_set()) == 4
    for name in ("idx", "npz", "pictures"):
        (tmp_path / name).mkdir()
    assert len(idx(tmp_path / "idx")) == 2
    assert len(npz(tmp_path / "npz", images=U8, labels=[0, 1])) == 2
    assert len(pictures(tmp_path / "pictures", [(4, 4), (5, 4)], size=3)) == 4
