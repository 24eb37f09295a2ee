"""A NumPy archive as an ImageSet."""

import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from clearance._text import as_text
from clearance.data.image_set import ImageSet, as_labels, as_pixels, labelled

_NAMES = {"images": ("images", "x"), "labels": ("labels", "y")}


def read_npz(path: str | PathLike[str], *, like: ImageSet | None = None) -> ImageSet:
    """Images and labels from a ``.npz`` file, as numpy.savez writes it.

    The arrays are `images` (or `x`) and `labels` (or `y`), and optionally `classes`, the names as strings.
    The type of `images` decides their layout: uint8 is (N, H, W, C) with 1 or 3 channels and is divided by
    255; floats are (N, C, H, W) and must lie in [0, 1]; three axes are grey (N, H, W) in either type.
    Pickled arrays are refused, and so are arrays that claim more than the archive holds or this machine has memory.

    The file's name without ``.npz`` becomes the name of the set. With `like`, its classes are those of this set, and
    some may have no image here.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not an archive, lacks an array, or its arrays are not valid for an ImageSet.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "toy.npz")
    ...     np.savez(file, images=np.zeros((4, 8, 8, 3), dtype=np.uint8), labels=[0, 1, 0, 1])
    ...     read_npz(file)
    ImageSet('toy', 4 images of shape (3, 8, 8), 2 classes)
    """
    path = Path(path)
    arrays = _arrays(path)
    images, labels = (_named(arrays, kind, path) for kind in _NAMES)
    classes = tuple(map(as_text, arrays["classes"].ravel())) if "classes" in arrays else ()
    with _naming(path):
        return labelled(as_pixels(images), as_labels(labels), classes, path.stem, like)


def read_npz_images(path: str | PathLike[str]) -> Tensor:
    """Only the images of such a file, (N, C, H, W) in [0, 1]; it needs no labels.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not an archive, or lacks `images` (or `x`).
    """
    images = _named(_arrays(Path(path)), "images", Path(path))
    with _naming(Path(path)):
        return as_pixels(images)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Say of which file an error is."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; correct the path of the .npz file.")
    wanted = {name for names in _NAMES.values() for name in names} | {"classes"}
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} must be an archive that numpy.savez wrote; got a file of another kind.")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            kept = [name for name in archive.files if name in wanted]
            for name in kept:
                _check_claim(archive, name)
            return {name: archive[name] for name in kept}
    except MemoryError as error:
        raise ValueError(
            f"{path} does not fit into memory ({error}); write fewer or smaller images."
        ) from error
    except (ValueError, OSError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())[:160]  # some quote the file
        raise ValueError(
            f"{path} cannot be read as plain arrays ({reason}); write it again with savez."
        ) from error


_DEFLATED = 1032  # times its size is the most that DEFLATE unpacks to


def _check_claim(archive: Any, name: str) -> None:
    """Raise ValueError for an array that claims more than its file can hold, before memory is taken for it.

    `archive` is what `numpy.load` opened.
    """
    inner = f"{name}.npy" if f"{name}.npy" in archive.zip.namelist() else name
    packed = archive.zip.getinfo(inner)
    with archive.zip.open(inner) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
        shape, _, kind = read(file)
    claimed = math.prod(shape) * max(kind.itemsize, 1)
    possible = packed.compress_size * (1 if packed.compress_type == zipfile.ZIP_STORED else _DEFLATED)
    if claimed > min(possible, packed.file_size):
        raise ValueError(
            f"{name!r} claims {claimed:,} bytes, of which the archive holds at most {possible:,}"
        )
    if 4 * math.prod(shape) > memory():
        raise ValueError(
            f"{name!r} of shape {shape} needs {4 * math.prod(shape) / 2**30:.1f} GiB as float32, more than the memory "
            "of this machine; use a folder of pictures, which is read in batches"
        )


def memory() -> float:
    """Bytes of memory that this machine has; infinity if it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return math.inf


def _named(arrays: dict[str, NDArray[Any]], kind: str, path: Path) -> NDArray[Any]:
    for name in _NAMES[kind]:
        if name in arrays:
            return arrays[name]
    raise ValueError(
        f"{path} must hold an array {' or '.join(map(repr, _NAMES[kind]))}; "
        f"got {', '.join(map(repr, sorted(arrays))) or 'none of the known names'}; use these names in numpy.savez."
    )
