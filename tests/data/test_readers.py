"""Readers on small files made here byte by byte, and on the digits that scikit-learn carries."""

import gzip
import struct

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_sample_image

from clearance.data.cifar import read_cifar10, read_cifar100
from clearance.data.digits import read_digits
from clearance.data.idx import read_idx
from clearance.data.npz import read_npz
from clearance.data.photographs import read_photographs

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
    data = read_cifar10(tmp_path, "train")
    assert data.shape == (3, 32, 32)
    assert data.labels.tolist() == list(range(9, -1, -1))
    assert (data.images[:, 1, 2, 5] * 255).round().tolist() == list(range(10))
    assert (data.images[:, :, 0, 0] * 255).round().unique(dim=0).tolist() == [[10, 20, 30]]
    assert (data.classes[0], data.classes[9]) == ("airplane", "truck")


def test_cifar10_test_is_its_own_file(tmp_path):
    (tmp_path / "test_batch.bin").write_bytes(b"".join(cifar_record([k], k) for k in range(10)))
    assert len(read_cifar10(tmp_path, "test")) == 10


@pytest.mark.parametrize("inner", [".", "cifar-100-binary"])
def test_cifar100_fine_and_coarse(tmp_path, inner):
    folder = tmp_path / inner
    folder.mkdir(exist_ok=True)
    records = b"".join(cifar_record([(k * 7) % 20, k], k) for k in range(100))
    (folder / "test.bin").write_bytes(records)
    fine, coarse = read_cifar100(tmp_path, "test"), read_cifar100(tmp_path, "test", labels="coarse")
    assert fine.labels.tolist() == list(range(100))
    assert coarse.labels.tolist() == [(k * 7) % 20 for k in range(100)]
    assert (fine.class_count, coarse.class_count) == (100, 20)
    assert (fine.classes[0], fine.classes[99], coarse.classes[19]) == ("apple", "worm", "vehicles_2")
    assert torch.equal(fine.images, coarse.images)
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
