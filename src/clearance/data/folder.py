"""Folders of pictures as image sets: decoded once, stored as bytes, read in batches."""

import hashlib
import io
import json
import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from clearance._files import make_private
from clearance._text import visible
from clearance.data.image_set import UNLABELLED, ImageSet, PictureFiles, check_classes
from clearance.data.preprocessing import Preprocessing, check_extent, transformed
from clearance.data.slices import HELD_OUT, TRAINING
from clearance.data.stored import (
    PixelStore,
    StoredImageSet,
    read_facts,
    while_used,
    write_facts,
    write_pixels,
)

_SUFFIXES = (".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".gif", ".webp", ".ppm", ".pgm")
# formats by content, not by name; Pillow starts no other program for them
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM")
_GREY_MODES = ("1", "L")
_DEEP_MODES = ("I", "F")  # and I;16 ...: more than 8 bits, which Pillow would clip, not scale
_LARGEST_FILE = 2**29  # bytes
_VERSION = 4  # of the decoded file; files of another version are decoded again
_SHOWN_FILES = 3  # of those that cannot be read, in a message


def open_folder(
    path: str | PathLike[str],
    preprocessing: Preprocessing | None = None,
    *,
    cache: str | PathLike[str] | None = None,
    like: ImageSet | None = None,
) -> ImageSet:
    """Pictures from ``path/<class>/*.png`` (jpg, jpeg, bmp, gif, webp, ppm), in sorted order.

    A file's content decides its format: PNG, JPEG, BMP, GIF, WebP or PPM. Other formats are not decoded, whatever the
    file's name, so that no picture starts another program (PostScript would start Ghostscript). Grey and palette
    pictures become RGB, transparency is dropped, an animation gives its first frame, and EXIF orientation is applied.
    Names that begin with a dot, other files and deeper folders are ignored. Files that cannot be read are left out,
    counted and named in a warning.

    Pictures are decoded once into a file in `cache`, whose name is a hash of the files' names and contents and of the
    transform; its checksum is verified before it is used. A set of at most 1 GiB is then an ordinary ImageSet; a larger
    one stays on disk and is read in batches. Only the user may read that file, and the folder if it is made.

    A picture of more than 100 million pixels, or with a side of more than 65,535, is left out like one that cannot be
    read: a small file can claim any size.

    Args:
        path: Folder whose inner folders are the classes; its name becomes the name of the set.
        preprocessing: Its `size`, `short_side`, `interpolation` and `squash` are used as by torchvision's Resize and
            CenterCrop. By default pictures are unchanged, and must have one size.
        cache: Folder for decoded pictures; by default `default_cache`. If it cannot be written or is full, they are
            kept in a temporary folder while they are used.
        like: A set whose classes these are: if it has a class for every inner folder, a class may have no folder
            here, or an empty one.

    Shapes:
        images (N, 3, H, W).

    Raises:
        FileNotFoundError: If `path` is not a folder, or has no inner folder.
        ValueError: If a class has no picture that can be read, or sizes differ without a `size`.

    Warns:
        UserWarning: If files cannot be read.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, size in (("cats", (20, 16)), ("dogs", (9, 30))):
    ...         Path(folder, "pets", name).mkdir(parents=True)
    ...         Image.new("L", size).save(Path(folder, "pets", name, "a.png"))
    ...     open_folder(Path(folder, "pets"), Preprocessing(size=8, short_side=9), cache=folder)
    ImageSet('pets', 2 images of shape (3, 8, 8), 2 classes)
    """
    return _opened(_Listing.of(Path(path), like), preprocessing or Preprocessing(), cache)


def open_pictures(
    path: str | PathLike[str],
    preprocessing: Preprocessing | None = None,
    *,
    cache: str | PathLike[str] | None = None,
) -> ImageSet:
    """Every picture in a folder and in the folders inside it, without labels; otherwise like `open_folder`.

    The folder's name becomes the name of the set; `preprocessing` and `cache` are as in `open_folder`.

    Raises:
        FileNotFoundError: If `path` is not a folder, or holds no picture.
        ValueError: If no picture can be read, or sizes differ without a `size`.

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


def default_cache() -> Path:
    """Folder for decoded pictures and features: ``$CLEARANCE_CACHE``, or ``clearance`` in the user's cache."""
    given = os.environ.get("CLEARANCE_CACHE")
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clearance"


def _opened(found: "_Listing", how: Preprocessing, cache: str | PathLike[str] | None) -> ImageSet:
    folder = default_cache() if cache is None else Path(cache)
    if not _writable(folder):
        return while_used(lambda temporary: _kept(found, how, temporary))
    try:
        data = _kept(found, how, folder)
    except OSError:  # a full disk, for example
        return while_used(lambda temporary: _kept(found, how, temporary))
    return data.in_memory() if data.is_small() else data


def _writable(folder: Path) -> bool:
    try:
        make_private(folder)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


@dataclass(frozen=True)
class _Listing:
    """The files of a folder, by class; without classes if they have no labels."""

    root: Path
    name: str
    classes: Sequence[str]
    files: Sequence[tuple[Path, int]]
    partial: bool = False  # whether a class may have no file

    @classmethod
    def of(cls, root: Path, like: ImageSet | None = None) -> "_Listing":
        folders = _class_folders(root)
        classes = [visible(folder.name) for folder in folders]
        partial = like is not None and set(classes) <= set(like.classes)
        if like is not None and partial:
            classes = list(like.classes)
        files = [
            (file, classes.index(visible(folder.name)))
            for folder in folders
            for file in _pictures_in(folder, like, partial=partial)
        ]
        if not files:
            raise ValueError(f"{root} must hold pictures ({', '.join(_SUFFIXES)}); got none.")
        check_classes(tuple(classes))  # before pictures are decoded
        return cls(root, visible(root.resolve().name), classes, files, partial)

    @classmethod
    def flat(cls, root: Path) -> "_Listing":
        return cls(root, visible(root.resolve().name), [], [(file, 0) for file in _pictures_below(root)])

    def stored(self, store: PixelStore, facts: Mapping[str, Any]) -> StoredImageSet:
        files = PictureFiles(
            tuple(facts["names"]),
            tuple((width, height) for width, height in facts["sizes"]),
            tuple((name, why) for name, why in facts["unreadable"]),
        )
        labels, classes = torch.tensor(facts["labels"]), tuple(self.classes) or (UNLABELLED,)
        digest = facts.get("digest")
        return StoredImageSet(store, labels, classes, self.name, digest, files, partial=self.partial)

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:30] or "images"

    def key(self, how: Preprocessing, contents: Sequence[str]) -> str:
        """A hash of everything on which the decoded pictures depend; normalisation belongs to the model."""
        settings = {name: asdict(how)[name] for name in ("size", "short_side", "interpolation", "squash")}
        names = [self.short(file) for file, _ in self.files]
        parts: list[Any] = [_VERSION, settings, names, list(contents), [label for _, label in self.files]]
        return hashlib.sha256(json.dumps([*parts, list(self.classes)]).encode()).hexdigest()[:32]

    def check_unchanged(self, key: str, how: Preprocessing, contents: Sequence[str]) -> None:
        if self.key(how, contents) != key:
            raise ValueError(f"the pictures in {self.root} changed while they were read; run this again.")

    def short(self, file: Path) -> str:
        return "/".join(map(visible, file.relative_to(self.root).parts))


def _kept(found: "_Listing", how: Preprocessing, folder: Path) -> StoredImageSet:
    key = found.key(how, [_content_hash(file) for file, _ in found.files])
    kept = folder / f"{found.slug}-{key}.pixels"
    store, facts = read_facts(kept) or _decoded(found, how, kept, key)
    _warn_of_unreadable(found, facts["unreadable"])
    return found.stored(store, facts)


def _decoded(found: _Listing, how: Preprocessing, kept: Path, key: str) -> tuple[PixelStore, dict[str, Any]]:
    labels: list[int] = []
    unreadable: list[list[str]] = []
    contents: list[str] = []
    read: list[tuple[str, tuple[int, int]]] = []
    store = write_pixels(kept, _pixels(found, how, labels, unreadable, contents, read))
    try:
        _check_no_class_unreadable(found, labels, unreadable)
        found.check_unchanged(key, how, contents)
    except ValueError:
        store.path.unlink()
        raise
    facts: dict[str, Any] = {"labels": labels, "unreadable": unreadable}
    facts["names"], facts["sizes"] = [name for name, _ in read], [size for _, size in read]
    facts["digest"] = found.stored(store, facts).digest()
    with suppress(OSError):  # a full disk: they are decoded again the next time
        write_facts(store, facts)
    return store, facts


_HASHES: dict[Path, tuple[tuple[int, ...], str]] = {}  # of this process, by file, each with the file's status
_SETTLED = 2_000_000_000  # nanoseconds after which another change has another time


def _content_hash(file: Path) -> str:
    """SHA-256 of a file, or why it cannot be read; read again if its status differs from that at the last time."""
    place, status = file.absolute(), file.stat()
    mark = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)
    known = _HASHES.get(place)
    if known is not None and known[0] == mark:
        return known[1]
    try:
        with file.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:  # a file that is closed to this user, for example: it is left out
        return f"{error.strerror}"
    if time.time_ns() - status.st_ctime_ns > _SETTLED:
        _HASHES[place] = (mark, found)
    return found


def _pixels(
    found: _Listing,
    how: Preprocessing,
    labels: list[int],
    unreadable: list[list[str]],
    contents: list[str],
    read: list[tuple[str, tuple[int, int]]],
) -> Iterator[NDArray[Any]]:
    """The pixels of one picture after another; unreadable files are added to `unreadable` and skipped.

    The hash of every file's bytes, the very ones that were decoded, is added to `contents`, and the name, width and
    height of every picture to `read`.
    """
    first: tuple[str, NDArray[Any]] | None = None
    for file, label in found.files:
        try:
            content = _content(file)
        except (OSError, ValueError) as error:
            contents.append(_content_hash(file))
            unreadable.append([found.short(file), getattr(error, "strerror", None) or str(error)])
            continue
        contents.append(hashlib.sha256(content).hexdigest())
        try:
            picture = _picture(content)
            pixels = transformed(picture, how)
        except ValueError as error:
            unreadable.append([found.short(file), str(error)])
            continue
        first = first or (found.short(file), pixels)
        if pixels.shape != first[1].shape:
            raise ValueError(
                f"all pictures must have one size; got {_measures(first[1])} in {first[0]} and {_measures(pixels)} in "
                f"{found.short(file)}; give `size` to crop them."
            )
        labels.append(label)
        read.append((found.short(file), picture.size))
        yield pixels
    if first is None:
        raise ValueError(f"no picture in {found.root} can be read: {_named(unreadable)}.")


def _check_no_class_unreadable(
    found: _Listing, labels: Sequence[int], unreadable: Sequence[Sequence[str]]
) -> None:
    listed = {label for _, label in found.files}
    empty = [found.classes[label] for label in sorted(listed - set(labels)) if found.classes]
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
    more = f", and {len(unreadable) - _SHOWN_FILES} more" if len(unreadable) > _SHOWN_FILES else ""
    return ", ".join(f"{name} ({why})" for name, why in unreadable[:_SHOWN_FILES]) + more


def _class_folders(path: Path) -> list[Path]:
    """The inner folders of a folder of pictures, in sorted order: its classes."""
    if not path.is_dir():
        raise FileNotFoundError(f"no folder {path}; correct the path, or unpack the archive first.")
    named = {each.name: each for each in path.iterdir() if each.is_dir() and not each.name.startswith(".")}
    folders = [named[name] for name in sorted(named)]  # paths of Windows would not tell capitals apart
    if not folders:
        raise FileNotFoundError(
            f"{path} must hold one folder of pictures for each class; got no folder in it."
        )
    return folders


def _pictures_in(folder: Path, like: ImageSet | None, *, partial: bool) -> list[Path]:
    """The pictures of one class, in sorted order; at least one, if the set is not partial."""
    found = sorted((each for each in folder.iterdir() if _is_picture(each)), key=lambda each: each.name)
    if not (found or partial) and folder.name.lower() in (*TRAINING, *HELD_OUT):
        raise ValueError(
            f"a set must hold one folder of pictures for each class; got {folder.parent}, which holds {folder.name}. "
            f"Name that folder: folder:{folder}."
        )
    if not (found or partial) and like is not None and visible(folder.name) not in like.classes:
        raise ValueError(
            f"the training images have no class {visible(folder.name)}, and {folder} holds no pictures; remove it."
        )
    if not (found or partial):
        raise ValueError(
            f"every class must have at least one image; got none in {folder} ({', '.join(_SUFFIXES)}). Add pictures. "
            "The folder of a class may be empty only among the test images of clearance.audit; for a network that is "
            "yet to be trained, remove it from both sets."
        )
    return found


def _pictures_below(path: Path) -> list[Path]:
    """Every picture in a folder and the folders inside it, in sorted order, at least one."""
    if not path.is_dir():
        raise FileNotFoundError(f"no folder {path}; correct the path, or unpack the archive first.")
    below = (each for each in path.rglob("*") if _is_picture(each))
    parts = {each.relative_to(path).parts: each for each in below}
    found = [parts[one] for one in sorted(parts) if not any(part.startswith(".") for part in one)]
    if not found:
        raise FileNotFoundError(f"{path} must hold pictures ({', '.join(_SUFFIXES)}); got none.")
    return found


def _is_picture(file: Path) -> bool:
    return file.suffix.lower() in _SUFFIXES and not file.name.startswith(".") and file.is_file()


def _content(file: Path) -> bytes:
    size = file.stat().st_size
    if size > _LARGEST_FILE:
        raise ValueError(f"{size >> 20} MiB, more than {_LARGEST_FILE >> 20}")
    return file.read_bytes()


def _picture(content: bytes) -> Image.Image:
    """A file's bytes as an upright RGB picture; grey and palettes become RGB, transparency is dropped.

    Raises:
        ValueError: If it cannot be read, or would be too large; the message does not name the path.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", Image.DecompressionBombWarning
            )  # `check_extent` has a bound of its own
            with Image.open(io.BytesIO(content), formats=_FORMATS) as picture:
                check_extent(*picture.size)
                return Image.fromarray(picture_array(_upright(picture), keep_grey=False))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = (
            "not a picture, or damaged" if isinstance(error, Image.UnidentifiedImageError) else str(error)
        )
        raise ValueError(reason.partition(";")[0]) from error


def _upright(picture: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(picture)
    except Exception:  # noqa: BLE001 - Pillow raises anything on damaged EXIF, which names no orientation
        return picture


def picture_array(picture: Image.Image, *, keep_grey: bool) -> NDArray[Any]:
    """A Pillow image as uint8, (H, W) if grey and `keep_grey`, else (H, W, 3); transparency is dropped.

    >>> picture_array(Image.new("L", (5, 4)), keep_grey=False).shape
    (4, 5, 3)
    """
    check_extent(*picture.size)
    if picture.mode.startswith(_DEEP_MODES):
        raise ValueError(
            f"an image must have 8 bits per channel; got mode {picture.mode!r}; scale it to 8 bits first."
        )
    if keep_grey and picture.mode in _GREY_MODES:
        return np.array(picture.convert("L"))
    if "transparency" in picture.info:
        picture = picture.convert("RGBA")  # as Pillow recommends for palettes with transparency
    return np.array(picture.convert("RGB"))
