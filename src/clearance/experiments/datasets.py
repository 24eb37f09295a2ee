"""Datasets by name."""

import dataclasses
from pathlib import Path

from clearance._checks import check_choice
from clearance.data import ImageSet
from clearance.experiments.catalogue import DATASETS, resolve

EMBEDDED = ("digits", "photographs")  # which need no files
SPLIT_SEED = 0
TEST_SHARE = 0.2


def load_dataset(
    name: str, split: str = "train", root: str | Path | None = None, size: int | None = None
) -> ImageSet:
    """A dataset by name; nothing is ever downloaded.

    Args:
        name: ``"digits"`` or ``"photographs"`` (embedded), ``"mnist"``, ``"fashion-mnist"``, ``"cifar10"``,
            ``"cifar100"`` (files under `root`), ``"folder:PATH"`` or ``"npz:PATH"``.
        split: ``"train"`` or ``"test"``. A folder without ``train`` and ``test`` subfolders, and an npz file,
            are split 80/20 by class with a fixed seed.
        root: The folder that holds the dataset's files, or a folder of such folders named like the datasets.
        size: For image folders: resize the short side to this many pixels and crop the centre.

    Raises:
        ValueError: If the name or split is unknown, `root` is missing, or the files are damaged.
        FileNotFoundError: If the files are not there.

    >>> load_dataset("digits", split="test")
    ImageSet('digits', 497 images of shape (1, 8, 8), 10 classes)
    """
    check_choice("split", split, ("train", "test"))
    kind, _, path = name.partition(":")
    if size is not None and kind != "folder":
        raise ValueError(f"`size` is for image folders (folder:PATH); got {size} with dataset {name!r}.")
    if path and kind in ("folder", "npz"):
        return _own_files(kind, Path(path).expanduser(), split, size)
    named = [known for known in DATASETS if ":" not in known]
    check_choice("dataset", name, [*named, "folder:PATH", "npz:PATH"])
    if name in EMBEDDED:
        return resolve("dataset", name, DATASETS)(split)
    if root is None:
        raise ValueError(
            f"dataset {name!r} needs `root`, the folder that holds its files (they are never downloaded); "
            "pass root=... in Python or --root on the command line."
        )
    folder = Path(root).expanduser()
    folder = folder / name if (folder / name).is_dir() else folder
    reader = resolve("dataset", name, DATASETS)
    return reader(folder, split, name) if name in ("mnist", "fashion-mnist") else reader(folder, split)


def _own_files(kind: str, path: Path, split: str, size: int | None) -> ImageSet:
    if kind == "folder" and (path / "train").is_dir() and (path / "test").is_dir():
        half: ImageSet = resolve("dataset", "folder:PATH", DATASETS)(path / split, size)
        return dataclasses.replace(half, name=path.resolve().name)  # both halves are one dataset
    reader = resolve("dataset", f"{kind}:PATH", DATASETS)
    everything: ImageSet = reader(path, size) if kind == "folder" else reader(path)
    train, test = everything.split(TEST_SHARE, SPLIT_SEED)
    return train if split == "train" else test
