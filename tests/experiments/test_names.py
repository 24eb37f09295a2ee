"""Names: the catalogue, datasets, and what is said about a wrong one."""

import numpy as np
import pytest
from PIL import Image

from clearance.experiments import catalogue
from clearance.experiments.catalogue import AUDITS, DATASETS, LOSSES, MODELS, resolve
from clearance.experiments.datasets import load_dataset


@pytest.mark.parametrize(
    ("kind", "name", "entries"),
    [(kind, name, entries)
     for kind, entries in (("dataset", DATASETS), ("model", MODELS), ("loss", LOSSES), ("audit", AUDITS))
     for name in entries],
)  # fmt: skip
def test_every_name_is_something(kind, name, entries):
    assert callable(resolve(kind, name, entries))
    assert entries[name].summary


def test_a_wrong_name_gets_the_nearest():
    with pytest.raises(
        ValueError, match=r"`model` must be one of 'small-cnn', .*; got 'smal-cnn'. Did you mean 'small-cnn'"
    ):
        resolve("model", "smal-cnn", catalogue.MODELS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("digts",), "Did you mean 'digits'"),
        (("fashon-mnist",), "Did you mean 'fashion-mnist'"),
        (("digits", "valid"), "`split` must be one of 'train', 'test'"),
        (("mnist",), "needs `root`.*never downloaded.*--root"),
        (("folder:",), "must be one of"),
        (("npz",), "must be one of"),
        (("digits", "train", None, 8), "`size` is for image folders"),
    ],
)
def test_a_dataset_that_is_not_there_is_explained(arguments, message):
    with pytest.raises(ValueError, match=message):
        load_dataset(*arguments)


@pytest.mark.parametrize("name", ["mnist", "cifar10", "cifar100", "fashion-mnist"])
def test_missing_files_are_missing(name, tmp_path):
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        load_dataset(name, "train", root=tmp_path)


def test_digits_are_split_once_for_all():
    train, test = load_dataset("digits"), load_dataset("digits", split="test")
    assert (len(train), len(test), train.class_count) == (1300, 497, 10)
    both = {image.numpy().tobytes() for image in train.images} & {
        image.numpy().tobytes() for image in test.images
    }
    assert not both


def pictures(folder, count, seed):
    drawn = np.random.default_rng(seed)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for k in range(count):
            Image.fromarray(drawn.integers(0, 256, (12, 8, 3), dtype=np.uint8)).save(
                folder / name / f"{k}.png"
            )


def test_a_folder_with_both_halves_is_one_dataset(tmp_path):
    pictures(tmp_path / "pets" / "train", 3, seed=0)
    pictures(tmp_path / "pets" / "test", 2, seed=1)
    train, test = (load_dataset(f"folder:{tmp_path}/pets", split, size=8) for split in ("train", "test"))
    assert (len(train), len(test)) == (6, 4)
    assert train.name == test.name == "pets"
    assert train.shape == (3, 8, 8)


def test_a_folder_and_a_file_without_halves_are_split_the_same_way_every_time(tmp_path):
    pictures(tmp_path / "pets", 10, seed=0)
    np.savez(tmp_path / "two.npz", images=np.random.default_rng(0).random((20, 8, 8)), labels=[0, 1] * 10)
    for name, size in ((f"folder:{tmp_path}/pets", 8), (f"npz:{tmp_path}/two.npz", None)):
        train, test = load_dataset(name, "train", size=size), load_dataset(name, "test", size=size)
        assert (len(train), len(test)) == (16, 4)
        assert train.digest() == load_dataset(name, "train", size=size).digest()
        assert load_dataset(name, size=size).digest() == train.digest()
        assert not {i.numpy().tobytes() for i in train.images} & {i.numpy().tobytes() for i in test.images}
