"""CIFAR-10 and CIFAR-100 in their binary version: label bytes, then the red, green and blue planes."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance._checks import check_choice
from clearance.data.image_set import ImageSet, as_labels, as_pixels

_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_FINE_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard
lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal
shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
_CIFAR100_FINE = tuple(_FINE_NAMES.split())

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE
# folder, files of each split, bytes of labels before the pixels (the last is the class), classes
_FORMS: dict[str, tuple[str, dict[str, tuple[str, ...]], int, tuple[str, ...]]] = {
    "cifar10": (
        "cifar-10-batches-bin",
        {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
        1,
        _CIFAR10,
    ),
    "cifar100": ("cifar-100-binary", {"train": ("train.bin",), "test": ("test.bin",)}, 2, _CIFAR100_FINE),
}


def read_cifar(root: str | PathLike[str], split: str, name: str = "cifar10") -> ImageSet:
    """CIFAR-10, or CIFAR-100 with its 100 fine classes, in the binary version.

    Source: Krizhevsky 2009, *Learning multiple layers of features from tiny images*. The pickled version is not
    read: unpickling can run any code.

    `root` has the files, or holds ``cifar-10-batches-bin`` or ``cifar-100-binary``; `split` is ``"train"`` or
    ``"test"``, `name` ``"cifar10"`` or ``"cifar100"``.

    Shapes:
        images (50000 or 10000, 3, 32, 32), bytes divided by 255.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If `split` is another word, or a file is not a whole number of images long.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     records = b"".join(bytes([label]) + bytes(_PIXELS) for label in range(10))
    ...     _ = Path(folder, "test_batch.bin").write_bytes(records)
    ...     read_cifar(folder, "test")
    ImageSet('cifar10', 10 images of shape (3, 32, 32), 10 classes)
    """
    check_choice("name", name, _FORMS)
    inner, files, label_bytes, classes = _FORMS[name]
    check_choice("split", split, files)
    records = np.concatenate(
        [_records(_found(Path(root), inner, file), label_bytes) for file in files[split]]
    )
    images = records[:, label_bytes:].reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    return ImageSet(as_pixels(images), as_labels(records[:, label_bytes - 1]), classes, name=name)


def _found(root: Path, inner: str, name: str) -> Path:
    for folder in (root, root / inner):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"no file {name}; looked in {root}, {root / inner}; download the binary version, or correct `root`."
    )


def _records(file: Path, label_bytes: int) -> NDArray[Any]:
    content = np.fromfile(file, dtype=np.uint8)
    length = label_bytes + _PIXELS
    if len(content) == 0 or len(content) % length:
        raise ValueError(
            f"{file} must be a whole number of {length}-byte images long; got {len(content)} bytes; "
            "download it again."
        )
    return content.reshape(-1, length)
