"""What is known of each test image besides its class: slices of a set, from a CSV file."""

import csv
import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePosixPath

import numpy as np

from clearance._text import visible
from clearance.data.image_set import ImageSet

NO_VALUE = ("na", "n/a", "nan", "null")  # among numbers
MOST = 50  # values of a column of texts from which on it names images rather than slices of them
BINS = 4  # of a column of numbers with more values than that
_LARGEST_FILE = 2**28  # bytes
TRAINING = ("train", "training")
HELD_OUT = ("test", "testing", "val", "valid", "validation", "eval", "dev")  # names of a held-out part
_SHOWN = 3  # names in a message


@dataclass(frozen=True)
class Slices:
    """For each column, the value of every image of a set, in their order; None where it has none.

    Args:
        name: Where they come from.

    >>> Slices("meta.csv", {"site": ("A", "B", None)}).named()
    [('site=A', [0], [0, 1]), ('site=B', [1], [0, 1])]
    """

    name: str
    columns: Mapping[str, Sequence[str | None]]

    def named(self) -> list[tuple[str, list[int], list[int]]]:
        """Every slice as ``column=value``, with the numbers of its images and of all images with a value there."""
        found: list[tuple[str, list[int], list[int]]] = []
        for column, values in self.columns.items():
            rows: dict[str, list[int]] = {}
            for row, value in enumerate(values):
                if value is not None:
                    rows.setdefault(value, []).append(row)
            known = sorted(row for some in rows.values() for row in some)
            found += [(f"{column}={value}", rows[value], known) for value in sorted(rows)]
        return found


def read_slices(path: str | PathLike[str], data: ImageSet) -> Slices:
    r"""The columns of a CSV file as slices of `data`.

    The first line names the columns. The first column has the name of each image's file, as ``cats/1.png`` or, where no
    two images share it, ``1.png``; where images were not read from files of their own, it has their numbers from 0, or
    the lines are in the order of the images; after a split, a line for each image of the divided set has its number
    there. A column of numbers with more than 50 values is cut at its quartiles. A column
    of texts with more than 50 values is left out, and so is an empty cell.

    The file is in UTF-8.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no such table, names an image twice or none of the images, or no column is left.

    Warns:
        UserWarning: If images have no line, or a column is left out whose values are too many and not all numbers;
            among numbers, NA, N/A, nan and null are no value.

    >>> import tempfile
    >>> from clearance.data import gaussian_images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lines = ["file,site", *(f"{k},{'AB'[k % 2]}" for k in range(4))]
    ...     _ = Path(folder, "meta.csv").write_text("\n".join(lines))
    ...     read_slices(Path(folder, "meta.csv"), gaussian_images(class_count=2, per_class=2)).columns
    {'site': ('A', 'B', 'A', 'B')}
    """
    file = Path(path)
    header, lines = read_table(file)
    places = rows_by_name(file, [line[0] for line in lines], data, header[0])
    columns: dict[str, Sequence[str | None]] = {}
    left_out = []
    for number, name in enumerate(header[1:], start=1):
        cells: list[str | None] = [None] * len(data)
        for line, place in zip(lines, places, strict=True):
            if place is not None and line[number].strip():
                cells[place] = visible(line[number].strip())
        values = _as_slices(cells)
        if values is not None:
            columns[name] = values
        elif len(set(cells) - {None}) < len(cells) - cells.count(None):  # else it names images
            left_out.append(name)
    if not columns:
        raise ValueError(
            f"{file} must have a column besides the first with at most {MOST} values, or of numbers; got "
            f"{', '.join(map(repr, header[1:])) or 'none'}. Add one, such as the place where an image was taken."
        )
    if left_out:
        warnings.warn(
            f"{visible(file.name)}: {', '.join(map(repr, left_out))} left out: more than {MOST} values that are not "
            "all finite numbers.",
            UserWarning,
            stacklevel=2,
        )
    found = Slices(visible(file.name), columns)
    names = [name for name, *_ in found.named()]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(
            f"{file} must have different slices; {twice!r} is one of two columns. Rename a column."
        )
    if lacking := len(data) - len({place for place in places if place is not None}):
        warnings.warn(
            f"{visible(file.name)} has no line for {lacking} of {len(data)} images; they are in no slice.",
            UserWarning,
            stacklevel=2,
        )
    return found


def read_table(file: Path) -> tuple[list[str], list[list[str]]]:
    """The first line of a CSV file, and the others, all of one length."""
    if not file.is_file():
        raise FileNotFoundError(f"no file {file}; give a CSV file of file names and columns.")
    if file.stat().st_size > _LARGEST_FILE:
        raise ValueError(f"{file} must have at most {_LARGEST_FILE >> 20} MiB.")
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            rows = [row for row in csv.reader(text) if any(cell.strip() for cell in row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{file} must be a CSV file in UTF-8: {error}. Export it again.") from error
    header = [visible(name.strip()) for name in rows[0]] if rows else []
    if len(rows) < 2 or len(set(header)) != len(header):
        raise ValueError(
            f"{file} must begin with a line of different column names, above a line for each image; got "
            f"{len(rows)} lines."
        )
    if uneven := next((k for k, row in enumerate(rows, start=1) if len(row) != len(rows[0])), None):
        raise ValueError(
            f"{file} must have {len(rows[0])} cells in every line; got {len(rows[uneven - 1])} in line {uneven}."
        )
    return header, rows[1:]


def rows_by_name(
    file: Path, names: Sequence[str], data: ImageSet, header: str | None = None
) -> list[int | None]:
    """Which image each line is about; None where it is about none of these. `header` is above the names."""
    if data.files is None and len(names) == len(data) and not _by_number(names, data.numbers):
        return _in_order(file, names)
    if data.files is None and data.numbers is None:
        raise ValueError(
            f"{file} must have a line for each of the {len(data)} images, in their order, because they have "
            f"no file names; got {len(names)} lines."
        )
    own = map(str, data.numbers or ()) if data.files is None else data.files.names
    known = {name: place for place, name in enumerate(own)}
    short: dict[str, int | None] = {}
    for name, place in known.items():
        last = PurePosixPath(name).name
        short[last] = None if last in short else place
    if header is not None and (header in known or header in short):
        raise ValueError(
            f"the first line of {file} must name the columns; got {header!r}, the name of an image. Add such a line."
        )
    if data.files is None:
        names = [str(int(name)) if name.strip().isdecimal() else name for name in names]
    plain = [visible(name.strip().replace("\\", "/")) for name in names]
    folder = _folder_of(file, plain, known, data.name)
    found = [_place(name, known, short, folder) for name in plain]
    kept = [place for place in found if place is not None]
    if not kept:
        raise ValueError(
            f"the first column of {file} must have the names of the images, such as "
            f"{', '.join(map(repr, list(known)[:_SHOWN]))}; got {', '.join(map(repr, names[:_SHOWN]))}. Correct it."
        )
    if len(set(kept)) < len(kept):
        twice = next(place for place in kept if kept.count(place) > 1)
        raise ValueError(
            f"{file} must have one line for each image; got two for {data.name_of(twice)!r}. Remove one."
        )
    return found


def _by_number(names: Sequence[str], numbers: Sequence[int] | None) -> bool:
    """Whether a column has numbers of a set that was divided, and not just those of the lines."""
    plain = [name.strip() for name in names]
    if numbers is None or not all(name.isascii() and name.isdecimal() for name in plain):
        return False
    return sorted(map(int, plain)) != list(range(len(names)))


def _in_order(file: Path, names: Sequence[str]) -> list[int | None]:
    """Line by line; by number, if these are the numbers of all images."""
    numbers = [int(name) for name in map(str.strip, names) if name.isascii() and name.isdecimal()]
    if sorted(numbers) == list(range(len(names))):
        return [*numbers]
    if len(numbers) == len(names) and numbers != sorted(numbers):
        raise ValueError(
            f"the first column of {file} must have the numbers of the images, 0 to {len(names) - 1}, or follow their "
            "order; got other numbers, out of order. Correct it."
        )
    return [*range(len(names))]


def _divided(name: str, known: Mapping[str, int]) -> tuple[str, str] | None:
    """The folders before the image's own name, and that; None where no end of the path is one."""
    parts = PurePosixPath(name).parts
    ends = ("/".join(parts[start:]) for start in range(1, len(parts)))
    return next(((name.removesuffix(end).rstrip("/"), end) for end in ends if end in known), None)


def _folder_of(file: Path, names: Sequence[str], known: Mapping[str, int], called: str) -> str | None:
    """The folders that stand before the images' names in a table of longer paths; None if these are others' images.

    Of several it is that of the set's own name: `train/cats/0.png` is not `val/cats/0.png`.
    """
    before = dict.fromkeys(both[0] for name in names if name not in known and (both := _divided(name, known)))
    own = [folder for folder in before if PurePosixPath(folder).name == called]
    if len(before) < 2:
        others = {PurePosixPath(folder).name for folder in before} - {called}
        return None if others and {*others, called} <= {*TRAINING, *HELD_OUT} else next(iter(before), None)
    if len(own) != 1:
        raise ValueError(
            f"{file} has images of this name in several folders: {', '.join(map(repr, [*before][:_SHOWN]))}; got "
            f"{called!r}, which is not one of them. Keep the lines of one folder."
        )
    return own[0]


def _place(
    name: str, known: Mapping[str, int], short: Mapping[str, int | None], folder: str | None
) -> int | None:
    """By the name in the folder; by the end of a longer path; a name without folders by itself, where it is one image.

    A name with folders that are none of these is another image's: `a/0.png` is not `b/0.png`.
    """
    if name in known:
        return known[name]
    both = _divided(name, known)
    if both is not None:
        return known[both[1]] if both[0] == folder else None
    return short.get(name) if "/" not in name else None


def _as_slices(cells: Sequence[str | None]) -> tuple[str | None, ...] | None:
    values = {cell for cell in cells if cell is not None}
    if len(values) <= MOST:
        return tuple(cells) if values else None
    try:
        numbers = [None if cell is None or cell.lower() in NO_VALUE else float(cell) for cell in cells]
    except ValueError:
        return None
    given = np.array([number for number in numbers if number is not None])
    if not np.isfinite(given).all():
        return None
    edges = np.unique(np.quantile(given, np.linspace(0, 1, BINS + 1)))
    names = [f"{low:.12g} to {high:.12g}" for low, high in itertools.pairwise(edges)]
    return tuple(
        None if number is None else names[int(np.searchsorted(edges[1:-1], number, side="left"))]
        for number in numbers
    )
