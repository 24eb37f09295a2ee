"""MNIST's file format, IDX: a magic number, the sizes, then one byte per pixel or label."""

import gzip
import math
import struct
import zlib
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance._checks import check_choice
from clearance.data.image_set import ImageSet, as_labels, as_pixels, numbered_classes

_PREFIXES = {"train": "train", "test": "t10k"}
_DEFLATED = 1032  # times its size is the most that DEFLATE unpacks to
_IMAGES_MAGIC, _LABELS_MAGIC = 2051, 2049  # unsigned bytes in 3 axes and in 1
_FOLDERS = {"mnist": ("MNIST",), "fashion-mnist": ("FashionMNIST",)}
_FASHION = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def read_idx(root: str | PathLike[str], split: str, name: str = "mnist") -> ImageSet:
    """MNIST, Fashion-MNIST, or any set in files of the same names and format.

    Source: the format as given with MNIST by LeCun, Cortes and Burges. The files are
    ``train-images-idx3-ubyte.gz`` and ``train-labels-idx1-ubyte.gz`` (``t10k-...`` for the test part), or
    the same unpacked without ``.gz``, in `root`, ``root/raw``, ``root/MNIST/raw`` or
    ``root/FashionMNIST/raw``; for the names "mnist" and "fashion-mnist" the other set's folder is not searched.

    `split` is ``"train"`` or ``"test"``. The set ``"fashion-mnist"`` has class names, the classes of others are
    numbered.

    Shapes:
        images (N, 1, H, W), bytes divided by 255.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If `split` is another word, or a file is not an IDX file, too short or too long.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     images = Path(folder, "t10k-images-idx3-ubyte")
    ...     _ = images.write_bytes(struct.pack(">4I", _IMAGES_MAGIC, 2, 3, 3) + bytes(18))
    ...     labels = Path(folder, "t10k-labels-idx1-ubyte")
    ...     _ = labels.write_bytes(struct.pack(">2I", _LABELS_MAGIC, 2) + bytes([0, 1]))
    ...     read_idx(folder, "test")
    ImageSet('mnist', 2 images of shape (1, 3, 3), 2 classes)
    """
    check_choice("split", split, _PREFIXES)
    images = _array(_found(Path(root), f"{_PREFIXES[split]}-images-idx3-ubyte", name), _IMAGES_MAGIC, axes=3)
    labels = as_labels(
        _array(_found(Path(root), f"{_PREFIXES[split]}-labels-idx1-ubyte", name), _LABELS_MAGIC, axes=1)
    )
    classes = _FASHION if name == "fashion-mnist" else numbered_classes(labels)
    return ImageSet(as_pixels(images), labels, classes, name=name)


def _found(root: Path, stem: str, name: str) -> Path:
    inner = _FOLDERS.get(name, ("MNIST", "FashionMNIST"))
    folders = [root, root / "raw", *(root / folder / "raw" for folder in inner)]
    for folder in folders:
        for file in (folder / f"{stem}.gz", folder / stem):
            if file.is_file():
                return file
    if not root.is_dir():
        raise FileNotFoundError(f"no folder {root} for {name}; correct `root`.")
    looked = ", ".join(str(folder) for folder in folders)
    raise FileNotFoundError(
        f"no file {stem}.gz or {stem} of {name}; looked in {looked}; download it, or correct `root`."
    )


def _array(file: Path, magic: int, axes: int) -> NDArray[Any]:
    header = 4 * (1 + axes)
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as content:
            start = content.read(header)
            sizes = _sizes(file, start, magic, axes)
            pixels = content.read(math.prod(sizes) + 1)  # what a small file unpacks to may be any size
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{file} is truncated or not a gzip file ({error}); download it again.") from error
    expected, got = header + math.prod(sizes), header + len(pixels)
    if got != expected:
        wrong = "is truncated" if got < expected else "has trailing bytes"
        count = f"{got} or more" if got > expected else str(got)
        raise ValueError(
            f"{file} {wrong}: sizes {sizes} make {expected} bytes; got {count}; download it again."
        )
    return np.frombuffer(pixels, dtype=np.uint8).reshape(sizes)


def _sizes(file: Path, start: bytes, magic: int, axes: int) -> list[int]:
    header = 4 * (1 + axes)
    if len(start) < header:
        raise ValueError(
            f"{file} is truncated: a header has {header} bytes; got {len(start)}; download it again."
        )
    found, *sizes = struct.unpack(f">{1 + axes}I", start)
    if found != magic:
        raise ValueError(
            f"{file} must begin with the magic number {magic} (unsigned bytes, {axes} axes); got {found}; "
            "it is another kind of file. Download it again, or correct `root`."
        )
    largest = file.stat().st_size * _DEFLATED
    if math.prod(sizes) > largest:
        raise ValueError(
            f"{file} is truncated: sizes {sizes} make {math.prod(sizes):,} bytes, of which it can hold at most "
            f"{largest:,}; download it again."
        )
    return sizes
