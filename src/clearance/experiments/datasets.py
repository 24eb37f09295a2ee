"""Datasets by name."""

import dataclasses
from os import PathLike
from pathlib import Path

from clearance._checks import check_choice
from clearance.data import ImageSet, Preprocessing, open_images
from clearance.data.split import HELD_OUT
from clearance.experiments.catalogue import DATASETS, resolve

EMBEDDED = ("digits", "photographs")  # need no files
SPLIT_SEED = 0
TEST_SHARE = 0.2


def load_dataset(
    name: str, split: str | None = None, root: str | Path | None = None, size: int | None = None
) -> ImageSet:
    """A dataset by name; datasets are never downloaded.

    Args:
        name: ``"digits"`` or ``"photographs"`` (embedded), ``"mnist"``, ``"fashion-mnist"``, ``"cifar10"``,
            ``"cifar100"`` (files under `root`), ``"folder:PATH"`` or ``"npz:PATH"``.
        split: ``"train"`` or ``"test"``. A folder without subfolders ``train`` and ``test`` (or ``val``), and an
            npz file, are split 80/20 by class with a fixed seed. None: the training images, or all images of such a
            folder or file.
        root: The folder that holds the dataset's files, or a folder of such folders named like the datasets.
        size: For image folders: resize the short side to this many pixels and crop the centre.

    Raises:
        ValueError: If the name or split is unknown, `root` is missing, or the files are damaged.
        FileNotFoundError: If a file is missing.

    >>> load_dataset("digits", split="test")
    ImageSet('digits', 497 images of shape (1, 8, 8), 10 classes)
    """
    if split is not None:
        check_choice("split", split, ("train", "test"))
    kind, _, path = name.partition(":")
    if size is not None and kind != "folder":
        raise ValueError(f"`size` is for image folders (folder:PATH); got {size} with dataset {name!r}.")
    if path and kind in ("folder", "npz"):
        return _own_files(kind, Path(path).expanduser(), split, size)
    split = split or "train"
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


def open_split(
    option: str,
    given: str,
    split: str,
    preprocessing: Preprocessing | None = None,
    *,
    cache: str | PathLike[str] | None = None,
    root: str | Path | None = None,
    like: ImageSet | None = None,
) -> ImageSet:
    """All images of a folder or file, or one split of a dataset given by name.

    Args:
        option: Name of `given` in messages.
        given: ``"folder:PATH"``, ``"npz:PATH"`` or the name of a dataset.
        split: ``"train"`` or ``"test"``, for a named dataset.
        preprocessing: Applied to a folder's pictures; arrays must already have its size.
        cache: Folder for the decoded pictures of a folder.
        root: The folder that holds the files of a named dataset.
        like: The training images, if these are test images; see :func:`clearance.data.open_images`.

    Raises:
        ValueError: If the dataset is unknown, `root` is missing, or the images do not have `preprocessing`'s size.
        FileNotFoundError: If a file is missing.

    >>> open_split("test", "digits", "test")
    ImageSet('digits', 497 images of shape (1, 8, 8), 10 classes)
    """
    if ":" in given:
        return open_images(given, preprocessing, cache=cache, like=like)
    check_not_a_path(option, given)
    found = load_dataset(given, split, root)
    side = None if preprocessing is None else preprocessing.size
    if side is not None and found.shape[1:] != (side, side):
        raise ValueError(
            f"the images of a named dataset are not resized; {given} has {found.shape[2]}x{found.shape[1]}, not "
            f"`size` {side}. Leave it out or give {found.shape[1]} if the model accepts that, or give the "
            "pictures as folder:PATH."
        )
    return found


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


def _own_files(kind: str, path: Path, split: str | None, size: int | None) -> ImageSet:
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
    if split is None:
        return everything
    train, test = everything.split(TEST_SHARE, SPLIT_SEED)
    return train if split == "train" else test
