"""Datasets by name."""

import dataclasses
from pathlib import Path

from clearance._checks import check_choice
from clearance.data import ImageSet, Preprocessing
from clearance.data.slices import HELD_OUT
from clearance.experiments.catalogue import DATASETS, resolve

EMBEDDED = ("digits", "photographs")  # need no files
SPLIT_SEED = 0
TEST_SHARE = 0.2


def load_dataset(
    name: str, split: str = "train", root: str | Path | None = None, size: int | None = None
) -> ImageSet:
    """A dataset by name; datasets are never downloaded.

    Args:
        name: ``"digits"`` or ``"photographs"`` (embedded), ``"mnist"``, ``"fashion-mnist"``, ``"cifar10"``,
            ``"cifar100"`` (files under `root`), ``"folder:PATH"`` or ``"npz:PATH"``.
        split: ``"train"`` or ``"test"``. A folder without subfolders ``train`` and ``test`` (or ``val``), and an
            npz file, are split 80/20 by class with a fixed seed; :func:`clearance.data.open_images` reads all of it.
        root: The folder that holds the dataset's files, or a folder of such folders named like the datasets.
        size: For image folders: resize the short side to this many pixels and crop the centre.

    Raises:
        ValueError: If the name or split is unknown, `root` is missing, or the files are damaged.
        FileNotFoundError: If a file is missing.

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
    return reader(folder, split, name)


def check_not_a_path(option: str, given: str) -> None:
    """Raise ValueError for a path without its kind (``folder:`` or ``npz:``) instead of a dataset's name.

    >>> check_not_a_path("unknown", "digits")
    """
    if Path(given).exists():
        raise ValueError(
            f"`{option}` must be folder:PATH, npz:PATH or the name of a dataset; got {given!r}, a path without its "
            f"kind. Write {'folder' if Path(given).is_dir() else 'npz'}:{given}."
        )


def held_out_folder(path: Path) -> Path | None:
    """The folder of held-out images beside the one called ``train``: ``test``, else ``val``; None where there is none.

    >>> held_out_folder(Path("nothing"))
    """
    if not (path / "train").is_dir():
        return None
    return next((path / name for name in HELD_OUT if (path / name).is_dir()), None)


def _own_files(kind: str, path: Path, split: str, size: int | None) -> ImageSet:
    reader = resolve("dataset", f"{kind}:PATH", DATASETS)
    if kind == "folder":
        how = Preprocessing(size=size)
        held_out = held_out_folder(path)
        if held_out is not None:
            half: ImageSet = reader(held_out if split == "test" else path / "train", how).in_memory()
            return dataclasses.replace(half, name=path.resolve().name)  # both halves are one dataset
        everything = reader(path, how).in_memory()
    else:
        everything = reader(path)
    train, test = everything.split(TEST_SHARE, SPLIT_SEED)
    return train if split == "train" else test
