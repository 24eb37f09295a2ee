"""Folders of pictures of any size and number: decoded once, kept as bytes, read in batches."""

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

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from clearance.data.image_set import ImageSet
from clearance.data.preprocessing import Preprocessing, transformed
from clearance.data.stored import (
    PixelStore,
    StoredImageSet,
    read_facts,
    while_used,
    write_facts,
    write_pixels,
)

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm")
# of a file's content, whatever its name: pictures of pixels, for which Pillow starts no program
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM")
GREY_MODES = ("1", "L")
DEEP_MODES = ("I", "F")  # and I;16 ...: more than 8 bits, which Pillow would cut off rather than scale

_VERSION = 2  # of what is decoded: another number makes old files useless
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
    """Pictures from ``path/<class>/*.png`` (jpg, jpeg, bmp, gif, webp, ppm), in sorted order, of any number.

    A file's content decides its format, one of `FORMATS`: PNG, JPEG, BMP, GIF, WebP or PPM. Nothing else is decoded
    whatever its name says, so that no picture starts another program (as PostScript would start Ghostscript). Grey
    and palette pictures become RGB, transparency is dropped, an animation gives its first frame, and a camera's
    orientation mark is obeyed. Names that begin with a dot, other files and deeper folders are passed over. Files that
    cannot be read are left out, counted and named in a warning.

    Pictures are decoded once into a file of bytes in `cache`, whose name is a hash of the files' names, sizes and
    times and of the transform. A set of at most `stored.IN_MEMORY` bytes is then an ordinary ImageSet; a larger one
    stays on disk and is read in batches.

    Args:
        path: Folder whose inner folders are the classes; its name becomes the name of the set.
        preprocessing: Its `image_size`, `short_side` and `interpolation` are used, as torchvision's Resize and
            CenterCrop do; by default pictures are taken as they are, and must be of one size.
        cache: Folder for decoded pictures; by default `default_cache`. Where nothing can be written there, they are
            kept in a temporary folder while they are used.

    Shapes:
        images (N, 3, H, W).

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
    if not _writable(folder):
        return while_used(lambda temporary: _kept(found, how, temporary))
    data = _kept(found, how, folder)
    return data.in_memory() if data.is_small() else data


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _kept(found: "_Listing", how: Preprocessing, folder: Path) -> StoredImageSet:
    kept = folder / f"{found.slug}-{found.key(how)}.pixels"
    store, facts = read_facts(kept) or _decoded(found, how, kept)
    _warn_of_unreadable(found, facts["unreadable"])
    return found.stored(store, facts["labels"], facts.get("digest"))


@dataclass(frozen=True)
class _Listing:
    """The files of a folder, by class; without classes where nobody has labelled them."""

    root: Path
    name: str
    classes: Sequence[str]
    files: Sequence[tuple[Path, int]]

    @classmethod
    def of(cls, root: Path) -> "_Listing":
        folders = _class_folders(root)
        files = [(file, label) for label, folder in enumerate(folders) for file in _pictures_in(folder)]
        return cls(root, root.resolve().name, [folder.name for folder in folders], files)

    @classmethod
    def flat(cls, root: Path) -> "_Listing":
        return cls(root, root.resolve().name, [], [(file, 0) for file in _pictures_below(root)])

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
    labels: list[int] = []
    unreadable: list[list[str]] = []
    store = write_pixels(kept, _pixels(found, how, labels, unreadable))
    _check_no_class_unreadable(found, labels, unreadable)
    digest = found.stored(store, labels).digest()
    facts = {"labels": labels, "unreadable": unreadable, "digest": digest}
    write_facts(store, facts)
    return store, facts


def _pixels(
    found: _Listing, how: Preprocessing, labels: list[int], unreadable: list[list[str]]
) -> Iterator[NDArray[Any]]:
    """One picture after the other; those that cannot be read are noted and passed over."""
    first: tuple[str, NDArray[Any]] | None = None
    for file, label in found.files:
        try:
            picture = _picture(file)
        except ValueError as error:
            unreadable.append([found.short(file), str(error)])
            continue
        pixels = transformed(picture, how)
        first = first or (found.short(file), pixels)
        if pixels.shape != first[1].shape:
            raise ValueError(
                f"all pictures must have one size; got {_measures(first[1])} in {first[0]} and {_measures(pixels)} in "
                f"{found.short(file)}; give `image_size` (in load_dataset `size`), to which they are cut."
            )
        labels.append(label)
        yield pixels
    if first is None:
        raise ValueError(f"no picture in {found.root} can be read: {_named(unreadable)}.")


def _check_no_class_unreadable(
    found: _Listing, labels: Sequence[int], unreadable: Sequence[Sequence[str]]
) -> None:
    empty = [name for label, name in enumerate(found.classes) if label not in set(labels)]
    if empty:
        those = [each for each in unreadable if each[0].partition("/")[0] in empty]
        raise ValueError(
            f"every class must have at least one image that can be read; got none of {', '.join(map(repr, empty))}: "
            f"{_named(those)}. Repair the files or remove the class."
        )


def _measures(pixels: NDArray[Any]) -> str:
    return f"{pixels.shape[2]}x{pixels.shape[1]}"


def _warn_of_unreadable(found: _Listing, unreadable: Sequence[Sequence[str]]) -> None:
    if unreadable:
        warnings.warn(
            f"{len(unreadable)} of {len(found.files)} files of {found.name!r} cannot be read and are left out: "
            f"{_named(unreadable)}.",
            UserWarning,
            stacklevel=4,
        )


def _named(unreadable: Sequence[Sequence[str]]) -> str:
    more = f", and {len(unreadable) - _NAMED} more" if len(unreadable) > _NAMED else ""
    return ", ".join(f"{name} ({why})" for name, why in unreadable[:_NAMED]) + more


def _class_folders(path: Path) -> list[Path]:
    """The inner folders of a folder of pictures, in sorted order: its classes."""
    if not path.is_dir():
        raise FileNotFoundError(f"no folder {path}; correct the path, or unpack the archive first.")
    folders = sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))
    if not folders:
        raise FileNotFoundError(
            f"{path} must hold one folder of pictures for each class; got no folder in it."
        )
    return folders


def _pictures_in(folder: Path) -> list[Path]:
    """The pictures of one class, in sorted order, at least one."""
    found = sorted(each for each in folder.iterdir() if _is_picture(each))
    if not found:
        raise ValueError(
            f"every class must have at least one image; got none in {folder} ({', '.join(SUFFIXES)}); "
            "add pictures or remove the folder."
        )
    return found


def _pictures_below(path: Path) -> list[Path]:
    """Every picture in a folder and the folders inside it, in sorted order, at least one."""
    if not path.is_dir():
        raise FileNotFoundError(f"no folder {path}; correct the path, or unpack the archive first.")
    found = sorted(
        each
        for each in path.rglob("*")
        if _is_picture(each) and not any(part.startswith(".") for part in each.relative_to(path).parts)
    )
    if not found:
        raise FileNotFoundError(f"{path} must hold pictures ({', '.join(SUFFIXES)}); got none.")
    return found


def _is_picture(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()


def _picture(file: Path) -> Image.Image:
    """A file as an upright RGB picture; grey and palettes become RGB, transparency is dropped.

    Raises:
        ValueError: If it cannot be read, without its path.
    """
    try:
        with Image.open(file, formats=FORMATS) as picture:
            return Image.fromarray(picture_array(ImageOps.exif_transpose(picture), keep_grey=False))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        said = "no picture, or damaged" if isinstance(error, Image.UnidentifiedImageError) else str(error)
        raise ValueError(said.partition(";")[0]) from error


def picture_array(picture: Image.Image, *, keep_grey: bool) -> NDArray[Any]:
    """A Pillow image as uint8, (H, W) if grey and `keep_grey`, else (H, W, 3); transparency is dropped.

    >>> picture_array(Image.new("L", (5, 4)), keep_grey=False).shape
    (4, 5, 3)
    """
    if picture.mode.startswith(DEEP_MODES):
        raise ValueError(
            f"an image must have 8 bits a channel; got mode {picture.mode!r}; scale it to 8 bits first."
        )
    if keep_grey and picture.mode in GREY_MODES:
        return np.array(picture.convert("L"))
    if "transparency" in picture.info:
        picture = picture.convert("RGBA")  # Pillow's own way from a palette with transparency
    return np.array(picture.convert("RGB"))
