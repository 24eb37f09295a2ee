"""A folder of pictures as they are, of any size and number: decoded once, kept as bytes, read in batches."""

import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from clearance.data._eval_transform import opened, transformed
from clearance.data.folder import class_folders, pictures_below, pictures_in
from clearance.data.image_set import ImageSet
from clearance.data.pixel_store import PixelStore, read_facts, write_facts, write_pixels
from clearance.data.preprocessing import Preprocessing
from clearance.data.stored import StoredImageSet

_VERSION = 1  # of what is decoded: another number makes old files useless
_NAMED = 3


def default_cache() -> Path:
    """Where decoded pictures and features are kept: ``$CLEARANCE_CACHE``, or ``clearance`` in the user's cache."""
    given = os.environ.get("CLEARANCE_CACHE")
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clearance"


def open_folder(
    path: str | PathLike[str],
    preprocessing: Preprocessing | None = None,
    *,
    cache: str | PathLike[str] | None = None,
) -> ImageSet:
    """Pictures from ``path/<class>/*.jpg`` (and the like) as an evaluation transform gives them, of any number.

    Pictures are decoded once into a file of bytes in `cache`, whose name is a hash of the files' names, sizes and
    times and of the transform. A set of at most `stored.IN_MEMORY` bytes is then an ordinary ImageSet; a larger one
    stays on disk and is read in batches. Grey and palette pictures become RGB, transparency is dropped, and a
    camera's orientation mark is obeyed. Files that cannot be read are left out, counted and named in a warning.

    Args:
        path: Folder whose inner folders are the classes; its name becomes the name of the set.
        preprocessing: Its `image_size`, `short_side` and `interpolation` are used, as torchvision's Resize and
            CenterCrop do; by default pictures are taken as they are, and must be of one size.
        cache: Folder for decoded pictures; by default `default_cache`.

    Raises:
        FileNotFoundError: If `path` is no folder, or has no inner folder.
        ValueError: If a class has no picture that can be read, or sizes differ without an `image_size`.

    Warns:
        UserWarning: If files cannot be read.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, size in (("cats", (20, 16)), ("dogs", (9, 30))):
    ...         Path(folder, "pets", name).mkdir(parents=True)
    ...         Image.new("L", size).save(Path(folder, "pets", name, "a.png"))
    ...     open_folder(Path(folder, "pets"), Preprocessing(image_size=8, short_side=9), cache=folder)
    ImageSet('pets', 2 images of shape (3, 8, 8), 2 classes)
    """
    return _opened(_Listing.of(Path(path)), preprocessing or Preprocessing(), cache)


def open_pictures(
    path: str | PathLike[str],
    preprocessing: Preprocessing | None = None,
    *,
    cache: str | PathLike[str] | None = None,
) -> ImageSet:
    """Every picture in a folder and in the folders inside it, without labels; else as `open_folder`.

    Args:
        path: Folder of pictures, flat or not; its name becomes the name of the set.
        preprocessing: As in `open_folder`.
        cache: As in `open_folder`.

    Raises:
        FileNotFoundError: If `path` is no folder, or holds no picture.
        ValueError: If no picture can be read, or sizes differ without an `image_size`.

    Warns:
        UserWarning: If files cannot be read.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Path(folder, "others", "more").mkdir(parents=True)
    ...     for place in ("a.png", "more/b.png"):
    ...         Image.new("L", (8, 8)).save(Path(folder, "others", place))
    ...     open_pictures(Path(folder, "others"), cache=folder)
    ImageSet('others', 2 images of shape (3, 8, 8), 1 classes)
    """
    return _opened(_Listing.flat(Path(path)), preprocessing or Preprocessing(), cache)


def _opened(found: "_Listing", how: Preprocessing, cache: str | PathLike[str] | None) -> ImageSet:
    folder = default_cache() if cache is None else Path(cache)
    kept = folder / f"{found.slug}-{found.key(how)}.pixels"
    store, facts = read_facts(kept) or _decoded(found, how, kept)
    _warn_of_unreadable(found, facts["unreadable"])
    return found.stored(store, facts["labels"], facts.get("digest")).in_memory_if_small()


@dataclass(frozen=True)
class _Listing:
    """The files of a folder, by class; without classes where nobody has labelled them."""

    root: Path
    name: str
    classes: Sequence[str]
    files: Sequence[tuple[Path, int]]

    @classmethod
    def of(cls, root: Path) -> "_Listing":
        folders = class_folders(root)
        files = [(file, label) for label, folder in enumerate(folders) for file in pictures_in(folder)]
        return cls(root, root.resolve().name, [folder.name for folder in folders], files)

    @classmethod
    def flat(cls, root: Path) -> "_Listing":
        return cls(root, root.resolve().name, [], [(file, 0) for file in pictures_below(root)])

    def stored(self, store: PixelStore, labels: Sequence[int], digest: str | None = None) -> StoredImageSet:
        if not self.classes:
            return StoredImageSet.of_store(store, self.name, digest)
        return StoredImageSet(store, torch.tensor(labels), tuple(self.classes), self.name, digest)

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:30] or "images"

    def key(self, how: Preprocessing) -> str:
        """What the decoded pictures depend on; normalisation is the model's."""
        stats = [(self.short(file), file.stat().st_size, file.stat().st_mtime_ns) for file, _ in self.files]
        settings = {name: asdict(how)[name] for name in ("image_size", "short_side", "interpolation")}
        told: list[Any] = [_VERSION, str(self.root.resolve()), settings, stats]
        told += [] if self.classes else ["unlabelled"]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]

    def short(self, file: Path) -> str:
        return file.relative_to(self.root).as_posix()


def _decoded(found: _Listing, how: Preprocessing, kept: Path) -> tuple[PixelStore, dict[str, Any]]:
    kept.parent.mkdir(parents=True, exist_ok=True)
    labels: list[int] = []
    unreadable: list[list[str]] = []
    store = write_pixels(kept, _pixels(found, how, labels, unreadable))
    digest = found.stored(store, labels).digest()
    facts = {"labels": labels, "unreadable": unreadable, "digest": digest}
    write_facts(store, facts)
    return store, facts


def _pixels(
    found: _Listing, how: Preprocessing, labels: list[int], unreadable: list[list[str]]
) -> Iterator[NDArray]:
    """One picture after the other; those that cannot be read are noted and passed over."""
    first: tuple[str, NDArray] | None = None
    for file, label in found.files:
        try:
            picture = opened(file)
        except ValueError as error:
            unreadable.append([found.short(file), str(error)])
            continue
        pixels = transformed(picture, how)
        first = first or (found.short(file), pixels)
        if pixels.shape != first[1].shape:
            raise ValueError(
                f"all pictures must have one size; got {_measures(first[1])} in {first[0]} and {_measures(pixels)} in "
                f"{found.short(file)}; give `image_size`, to which they are resized and cropped."
            )
        labels.append(label)
        yield pixels
    if first is None:
        raise ValueError(f"no picture in {found.root} can be read: {_named(unreadable)}.")


def _measures(pixels: NDArray) -> str:
    return f"{pixels.shape[2]}x{pixels.shape[1]}"


def _warn_of_unreadable(found: _Listing, unreadable: Sequence[Sequence[str]]) -> None:
    if unreadable:
        warnings.warn(
            f"{len(unreadable)} of {len(found.files)} files of {found.name!r} cannot be read and are left out: "
            f"{_named(unreadable)}.",
            UserWarning,
            stacklevel=3,
        )


def _named(unreadable: Sequence[Sequence[str]]) -> str:
    more = f", and {len(unreadable) - _NAMED} more" if len(unreadable) > _NAMED else ""
    return ", ".join(f"{name} ({why})" for name, why in unreadable[:_NAMED]) + more
