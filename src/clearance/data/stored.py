"""An ImageSet whose images stay on disk: pixels in one file, read in batches."""

import hashlib
import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearance._files import named, private_opener, remove_leftovers, temporary_of, write_bytes
from clearance.data.image_set import (
    CHUNK,
    UNLABELLED,
    ImageSet,
    PictureFiles,
    check_classes,
    check_every_class_present,
    check_indices,
    check_range,
    digest_of,
    unchecked,
)

# largest set kept in memory, in bytes of float32 pixels (1,783 images of 3x224x224)
IN_MEMORY = 2**30


_DAY = 86_400  # seconds; decoding may take hours, on another machine that shares the folder


@dataclass(frozen=True)
class PixelStore:
    """Images of one shape in a plain file, one after the other; bytes are divided by 255 when they are read.

    Every read maps the file again and copies the rows that it needs, so that no pages stay mapped: memory depends on
    the images read, not on the size of the file.

    Args:
        count: Number of images.
        shape: (C, H, W) of each.
        kind: ``"uint8"``, or ``"float32"`` for pixels that bytes cannot represent.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = write_pixels(Path(folder, "a.pixels"), [np.full((1, 2, 2), 255, dtype=np.uint8)] * 3)
    ...     store.read(torch.tensor([2, 0])).shape, float(store.read(torch.tensor([1])).mean())
    (torch.Size([2, 1, 2, 2]), 1.0)
    """

    path: Path
    count: int
    shape: tuple[int, int, int]
    kind: str

    def read(self, rows: Tensor | slice) -> Tensor:
        """The images of these rows as float32 in [0, 1], (B, C, H, W)."""
        pixels: NDArray[Any] = np.memmap(self.path, self.kind, "r", shape=(self.count, *self.shape))
        chosen = rows if isinstance(rows, slice) else rows.cpu().numpy()
        found = torch.from_numpy(np.array(pixels[chosen]))
        return found.float().div_(255) if self.kind == "uint8" else found


class StoredImageSet(ImageSet):
    """An ImageSet that reads its pixels on use.

    Batches, predictions and features take the memory of a batch. A subset of at most 1 GiB (`IN_MEMORY`) is an
    ordinary ImageSet; the attribute `images` reads everything, and raises an error above that size.

    Args:
        store: The pixels.
        labels: Class of each image of this set.
        classes: Names of the classes.
        name: Name of the set in tables.
        digest: The value of `digest`, if it is already known.
        files: The files of the images, where they were read from a folder.
        partial: Whether a class may have no image.

    Raises:
        ValueError: If labels and images differ in number, or a class has no image.

    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from clearance.data.stored import write_pixels
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pixels = [np.zeros((3, 4, 4), dtype=np.uint8)] * 6
    ...     store = write_pixels(Path(folder, "toy.pixels"), pixels)
    ...     data = StoredImageSet(store, torch.arange(6) % 2, ("a", "b"), "toy")
    ...     data, [len(images) for images, _ in data.batches(4)]
    (ImageSet('toy', 6 images of shape (3, 4, 4), 2 classes), [4, 2])
    """

    store: PixelStore
    rows: Tensor | None  # rows of the store, in order; None is all
    known_digest: str | None

    def __init__(
        self,
        store: PixelStore,
        labels: Tensor,
        classes: tuple[str, ...],
        name: str = "images",
        digest: str | None = None,
        files: PictureFiles | None = None,
        *,
        partial: bool = False,
    ) -> None:
        if classes != (UNLABELLED,):
            check_classes(classes)
        check_range(labels, classes)
        if not partial:
            check_every_class_present(labels, classes)
        if len(labels) != store.count:
            raise ValueError(
                f"`labels` must hold one label per stored image; got {len(labels)} labels and {store.count} images."
            )
        self._set(store=store, labels=labels, classes=classes, name=name, files=files)
        self._set(rows=None, augmentation=None, known_digest=digest, numbers=None)

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def images(self) -> Tensor:
        """All images in memory, on the device of the labels.

        Raises:
            ValueError: If they take more than `IN_MEMORY`.
        """
        if not self.is_small():
            raise ValueError(
                f"the images of {self.name!r} stay on disk, because they take {self._bytes(len(self)) / 2**30:.1f} "
                "GiB; read them with `batch` or `batches`, use a `subset`, or leave out what needs all at once."
            )
        return self._read(slice(None))

    def _bytes(self, count: int) -> int:
        channels, height, width = self.store.shape
        return 4 * count * channels * height * width

    def _read(self, chosen: Tensor | slice) -> Tensor:
        chosen = chosen if isinstance(chosen, slice) else chosen.cpu()
        rows = chosen if self.rows is None else self.rows[chosen]
        return self.store.read(rows).to(self.labels.device)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        place = torch.tensor([range(len(self))[i]])
        return self._read(place)[0], int(self.labels[i])

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image."""
        return self.store.shape

    def to(self, device: torch.device | str) -> ImageSet:
        """The same set; batches arrive on that device."""
        return self._derived(labels=self.labels.to(device), known_digest=self.known_digest)

    def subset(self, indices: Tensor, name: str | None = None) -> ImageSet:
        """The images at `indices`: in memory up to `IN_MEMORY`, else on disk."""
        indices = torch.as_tensor(indices).cpu()
        check_indices(indices, len(self))
        labels, name = self.labels[indices.to(self.labels.device)], self.name if name is None else name
        files = None if self.files is None else self.files.chosen(indices)
        numbers = None if self.numbers is None else tuple(self.numbers[i] for i in indices.tolist())
        if self._bytes(len(indices)) > IN_MEMORY:
            rows = indices if self.rows is None else self.rows[indices]
            return self._derived(labels=labels, rows=rows, name=name, files=files, numbers=numbers)
        return unchecked(
            images=self._read(indices), labels=labels, classes=self.classes, name=name,
            augmentation=self.augmentation, files=files, numbers=numbers,
        )  # fmt: skip

    def is_small(self) -> bool:
        """Whether all images take at most `IN_MEMORY`."""
        return self._bytes(len(self)) <= IN_MEMORY

    def in_memory(self) -> ImageSet:
        """An ordinary ImageSet of the same images, of any size."""
        kept = {each: getattr(self, each) for each in ("classes", "name", "augmentation", "files", "numbers")}
        return unchecked(images=self._read(slice(None)), labels=self.labels, **kept)

    def digest(self) -> str:
        """SHA-256 of images, labels and class names, the same as of the set in memory; computed once."""
        if self.known_digest is not None:
            return self.known_digest
        parts = (images for images, _ in self.batches(max(1, CHUNK // self._bytes(1))))
        found = digest_of(parts, self.labels, self.shape, self.classes)
        self._set(known_digest=found)
        return found

    def _derived(self, **changes: Any) -> ImageSet:
        made = object.__new__(StoredImageSet)
        names = ("store", "labels", "classes", "name", "rows", "augmentation", "files", "numbers")
        same = not {"labels", "rows"} & changes.keys()  # then the digest is the same
        made._set(known_digest=self.known_digest if same else None)
        made._set(**{each: getattr(self, each) for each in names} | changes)
        return made


def while_used(make: Callable[[Path], StoredImageSet]) -> ImageSet:
    """The set that `make` writes into a temporary folder: in memory if it is small, else on disk while it is used."""
    folder = Path(tempfile.mkdtemp(prefix="clearance-"))
    try:
        data = make(folder)
        if not data.is_small():
            weakref.finalize(data.store, shutil.rmtree, folder, ignore_errors=True)
            return data
        kept = data.in_memory()
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError) and error.filename is None:
            raise named(error, folder.parent) from error
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return kept


def write_pixels(path: Path, images: Iterable[NDArray[Any]]) -> PixelStore:
    """Write images (C, H, W) of one shape and type, one at a time; the file appears only when it is complete.

    Only this user may read it: pictures may come from a folder that is closed to others.

    Raises:
        ValueError: If there is no image, or two differ in shape or type.
    """
    remove_leftovers(path.parent, [path.name], _DAY)
    temporary = temporary_of(path)
    first: NDArray[Any] | None = None
    count = 0
    try:
        with open(temporary, "wb", opener=private_opener) as file:
            for image in images:
                first = image if first is None else first
                _check_alike(first, image, count)
                file.write(np.ascontiguousarray(image).data)
                count += 1
        if first is None:
            raise ValueError("`images` must hold at least one image; got none.")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    channels, height, width = first.shape
    return PixelStore(path, count, (channels, height, width), str(first.dtype))


def _check_alike(first: NDArray[Any], image: NDArray[Any], place: int) -> None:
    if image.shape != first.shape or image.dtype != first.dtype:
        other_size = image.shape[1:] != first.shape[1:]
        raise ValueError(
            f"all images must have one shape and type; got {first.shape} of {first.dtype} at index 0 and "
            f"{image.shape} of {image.dtype} at index {place}; "
            + (
                "give `size` if they are pictures, or resize arrays to one size."
                if other_size
                else "convert all to one mode and type."
            )
        )


def write_facts(store: PixelStore, facts: Mapping[str, Any]) -> None:
    """Write facts about complete pixels into a JSON file next to them, with a checksum of both."""
    content = {**asdict(store), "path": store.path.name, "facts": dict(facts)}
    content["checksum"] = _checksum(store.path, content)
    text = json.dumps(content, ensure_ascii=False) + "\n"
    write_bytes(_facts_of(store.path), text.encode(), private=True)


def read_facts(path: Path) -> tuple[PixelStore, dict[str, Any]] | None:
    """The store at `path` with its facts; None if it is missing, or not as it was written."""
    try:
        content = json.loads(_facts_of(path).read_text("utf-8"))
        if content.pop("checksum") != _checksum(path, content):
            return None
        channels, height, width = content["shape"]
        return PixelStore(path, content["count"], (channels, height, width), content["kind"]), content[
            "facts"
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _checksum(path: Path, content: Mapping[str, Any]) -> str:
    """SHA-256 of the pixels in a file and of all that is said about them."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256")
    found.update(json.dumps(content, sort_keys=True).encode())
    return found.hexdigest()


def _facts_of(path: Path) -> Path:
    return path.with_suffix(".json")
