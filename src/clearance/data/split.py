"""Training and held-out images of one set, as a file of the user's says which are which."""

import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearance.data.image_set import ImageSet
from clearance.data.slices import HELD_OUT, TRAINING, read_table, rows_by_name

_NAMED_HELD_OUT = re.compile(
    rf"(?<![a-z])x?({'|'.join(HELD_OUT)})(_?(set|idx|ids|index|indices))?(?![a-z])|(held|hold)_?out"
)
COLUMNS = ("split", "set", "subset", "part", "partition")
_SHOWN = 5  # in a message


def read_split(path: str | PathLike[str], data: ImageSet) -> tuple[ImageSet, ImageSet]:
    r"""The training images and the held-out ones of `data`.

    - A CSV file: a column called ``split`` (or ``set``, ``subset``, ``part``, ``partition``; else the last one) has
      ``train`` or ``training``, and ``test``, ``val``, ``valid`` or ``validation``; images of other
      values belong to neither set. The first column has file names, as in :func:`clearance.data.slices.read_slices`;
      without names the lines are in the order of the images.
    - A file of ``torch.save`` (``.pt``) or ``.npz``: numbers of images, counted from 0, under the same words. Only
      tensors, arrays and lists are read.
    - One list of numbers (``.pt``, ``.npy``, or ``.txt`` with one in each line; there also file names): those of the
      training images, or of the held-out ones if the file's name says so (``test_idx.npy``); all others are on the
      other side.

    Where a file names both test and validation images, the test images are held out.

    Numbers count `data`, all images, in its order: sorted by class, then by name.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is none of these, names no image of one side, or an image on both sides.

    Warns:
        UserWarning: If lines are passed over, because they name no image or several.

    >>> import tempfile
    >>> from clearance.data import gaussian_images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "train.npy"), np.arange(45))
    ...     train, test = read_split(Path(folder, "train.npy"), gaussian_images())
    >>> len(train), len(test)
    (45, 15)
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(
            f"no file {file}; --split takes a CSV file, or numbers in .pt, .npz, .npy or .txt."
        )
    kind = file.suffix.lower()
    if kind == ".csv":
        sides = _of_table(file, data)
    elif kind == ".txt":
        sides = _of_list(file, _lines(file, data), data)
    elif kind in (".pt", ".pth", ".npy", ".npz"):
        content = _stored(file)
        _check_numbered(file, data)
        sides = _of_words(file, content) if isinstance(content, Mapping) else _of_list(file, content, data)
    else:
        raise ValueError(f"--split must be a .csv, .pt, .npz, .npy or .txt file; got {file.name}.")
    train, test = (_rows(file, rows, data) for rows in sides)
    if both := set(train.tolist()) & set(test.tolist()):
        raise ValueError(
            f"{file.name} must name each image for training or for testing; got {len(both)} on both sides, such as "
            f"{data.name_of(min(both))}. Correct it."
        )
    if data.files is None:
        data = data._derived(numbers=tuple(range(len(data))))
    return data.subset(train), data.subset(test)


def _of_table(file: Path, data: ImageSet) -> tuple[Sequence[int], Sequence[int]]:
    header, lines = read_table(file)
    names = [name.strip().lower() for name in header]
    column = next((names.index(name) for name in COLUMNS if name in names), len(names) - 1)
    places = rows_by_name(file, [line[0] for line in lines], data, header[0])
    _say_what_is_lacking(file, places)
    sides: dict[str, list[int]] = {}
    for line, place in zip(lines, places, strict=True):
        if place is not None:
            sides.setdefault(line[column].strip().lower(), []).append(place)
    return _two_of(file, sides)


def _of_words(file: Path, content: Mapping[Any, Any]) -> tuple[Sequence[int], Sequence[int]]:
    sides = {}
    for word, rows in content.items():
        plain = str(word).lower().removesuffix("_indices").removesuffix("_idx").removesuffix("_index")
        sides[plain.removesuffix("_ids")] = rows
    return _two_of(file, sides)


def _two_of(file: Path, sides: Mapping[str, Any]) -> tuple[Any, Any]:
    train = next((sides[word] for word in TRAINING if word in sides), None)
    test = next((sides[word] for word in HELD_OUT if word in sides), None)
    if train is None or test is None:
        raise ValueError(
            f"{file.name} must say which images are {TRAINING[0]!r} and which {HELD_OUT[0]!r} or {HELD_OUT[2]!r}; got "
            f"{', '.join(map(repr, list(sides)[:_SHOWN])) or 'nothing'}. Rename these."
        )
    return train, test


def _of_list(file: Path, rows: Any, data: ImageSet) -> tuple[Any, Any]:
    chosen = np.zeros(len(data), dtype=bool)
    numbers = _flat(file, rows)
    if numbers.dtype == bool and len(numbers) == len(data):
        numbers = np.flatnonzero(numbers)
    if numbers.dtype.kind in "iu":
        chosen[numbers[(numbers >= 0) & (numbers < len(data))]] = True
    name = file.stem.lower().replace("-", "_")
    held_out = _NAMED_HELD_OUT.search(name) and not re.search(rf"(?<![a-z]){TRAINING[0]}", name)
    others = np.flatnonzero(~chosen)
    return (others, numbers) if held_out else (numbers, others)


def _lines(file: Path, data: ImageSet) -> Sequence[int]:
    try:
        words = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise ValueError(f"{file.name} must be text in UTF-8: {error}.") from error
    if data.files is not None:
        stems = [PurePosixPath(name).stem for name in data.files.names]
        count, place_of = Counter(stems), {stem: place for place, stem in enumerate(stems)}
        if all(count[word] == 1 for word in words):
            return [place_of[word] for word in words]
    if all(word.isdecimal() for word in words):
        _check_numbered(file, data)
        return [int(word) for word in words]
    if data.files is None:
        raise ValueError(
            f"{file.name} has names, and the images of {data.name!r} have none; give their numbers."
        )
    places = rows_by_name(file, words, data)
    _say_what_is_lacking(file, places)
    return [place for place in places if place is not None]


def _say_what_is_lacking(file: Path, places: Sequence[int | None]) -> None:
    if lacking := sum(place is None for place in places):
        warnings.warn(
            f"{lacking} of {len(places)} lines of {file.name} are passed over: they name no image of the set, or "
            "several.",
            UserWarning,
            stacklevel=2,
        )


def _stored(file: Path) -> Any:
    """Numbers by word, or one list of them."""
    try:
        if file.suffix.lower() in (".npy", ".npz"):
            found = np.load(file, allow_pickle=False)
            return dict(found) if file.suffix.lower() == ".npz" else found
        if torch.serialization.get_unsafe_globals_in_checkpoint(file):
            raise ValueError("it holds more than tensors, lists and numbers")  # noqa: TRY301 - as what torch raises
        return torch.load(file, map_location="cpu", weights_only=True)  # noqa: TID251 - numbers alone
    except Exception as error:
        line = next(iter(str(error).splitlines()), "")
        raise ValueError(
            f"{file.name} must hold numbers of images, as torch.save or numpy.save write lists and arrays of them; "
            f"reading it failed: {line[:160]}"
        ) from error


def _check_numbered(file: Path, data: ImageSet) -> None:
    if data.files is not None and data.files.unreadable:
        raise ValueError(
            f"{file.name} numbers the images, and {len(data.files.unreadable)} files of {data.name!r} cannot be read, "
            "so that the numbers may be off. Remove these files, or give a CSV file with file names."
        )


def _flat(file: Path, given: Any) -> NDArray[Any]:
    try:
        return np.asarray(given).reshape(-1)
    except (ValueError, TypeError) as error:  # lists of several lengths; a type that NumPy lacks
        raise ValueError(f"{file.name} must hold plain lists of whole numbers: {error}") from error


def _rows(file: Path, given: Any, data: ImageSet) -> Tensor:
    rows = _flat(file, given)
    if not len(rows) or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= len(data):
        ends = f" from {rows.min()} to {rows.max()}" if len(rows) and rows.dtype.kind in "iuf" else ""
        got = f"{rows.dtype}{ends}" if len(rows) else "none"
        raise ValueError(
            f"{file.name} must name images of both sides by whole numbers from 0 to {len(data) - 1}, those of "
            f"{data.name!r}; got {got}."
        )
    if (distinct := len(np.unique(rows))) < len(rows):
        raise ValueError(
            f"{file.name} must name each image once; got {len(rows)} numbers, {distinct} of them different. If it says "
            "yes or no of every image, store True and False."
        )
    return torch.from_numpy(rows.astype(np.int64))
