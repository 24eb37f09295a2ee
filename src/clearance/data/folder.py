"""A folder of pictures, one inner folder a class, as an ImageSet."""

from os import PathLike
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from clearance._checks import check_count
from clearance.data._pixels import as_pixels, picture_array
from clearance.data.image_set import ImageSet

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm")


def read_folder(path: str | PathLike[str], size: int | None = None) -> ImageSet:
    """Pictures from ``path/<class>/*.png`` (jpg, jpeg, bmp, gif, webp, ppm), in sorted order, always as RGB.

    Grey and palette pictures become RGB, transparency is dropped, an animation gives its first frame, and a
    camera's orientation mark is obeyed. Names that begin with a dot, other files and deeper folders are
    passed over.

    Args:
        path: Folder whose inner folders are the classes; its name becomes the name of the set.
        size: Side in pixels: the short side is resized to it (bilinear with antialiasing), then the middle
            square is kept. None takes pictures as they are, and they must all be of one size.

    Shapes:
        images (N, 3, H, W).

    Raises:
        FileNotFoundError: If `path` is no folder, or has no inner folder.
        ValueError: If a class has no picture, a file cannot be read, or sizes differ without `size`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("cats", "dogs"):
    ...         Path(folder, "pets", name).mkdir(parents=True)
    ...         Image.new("RGB", (20, 16)).save(Path(folder, "pets", name, "a.png"))
    ...     read_folder(Path(folder, "pets"), size=8)
    ImageSet('pets', 2 images of shape (3, 8, 8), 2 classes)
    """
    path = Path(path)
    if size is not None:
        check_count("size", size)
    folders = class_folders(path)
    files = [pictures_in(folder) for folder in folders]
    pixels = _stacked([file for some in files for file in some], size)
    labels = torch.arange(len(folders)).repeat_interleave(torch.tensor([len(some) for some in files]))
    return ImageSet(
        as_pixels(pixels), labels, tuple(folder.name for folder in folders), name=path.resolve().name
    )


def class_folders(path: Path) -> list[Path]:
    """The inner folders of a folder of pictures, in sorted order: its classes."""
    if not path.is_dir():
        raise FileNotFoundError(f"no folder {path}; correct the path, or unpack the archive first.")
    folders = sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))
    if not folders:
        raise FileNotFoundError(
            f"{path} must hold one folder of pictures for each class; got no folder in it."
        )
    return folders


def pictures_in(folder: Path) -> list[Path]:
    """The pictures of one class, in sorted order, at least one."""
    found = sorted(each for each in folder.iterdir() if _is_picture(each))
    if not found:
        raise ValueError(
            f"every class must have at least one image; got none in {folder} ({', '.join(SUFFIXES)}); "
            "add pictures or remove the folder."
        )
    return found


def pictures_below(path: Path) -> list[Path]:
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


def _stacked(files: list[Path], size: int | None) -> NDArray:
    first = _picture(files[0], size)
    pixels = np.empty((len(files), *first.shape), dtype=np.uint8)
    for i, file in enumerate(files):
        found = _picture(file, size)
        if found.shape != first.shape:
            raise ValueError(
                "all pictures must have one size; "
                f"got {_measures(first)} in {files[0]} and {_measures(found)} in {file}; give `size=`."
            )
        pixels[i] = found
    return pixels


def _measures(pixels: NDArray) -> str:
    return f"{pixels.shape[1]}x{pixels.shape[0]}"


def _picture(file: Path, size: int | None) -> NDArray:
    try:
        with Image.open(file) as picture:
            upright = ImageOps.exif_transpose(picture)
            found = picture_array(upright, keep_grey=False)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{file} cannot be read as a picture ({error}); repair or remove it.") from error
    return found if size is None else _middle_square(found, size)


def _middle_square(pixels: NDArray, size: int) -> NDArray:
    height, width = pixels.shape[:2]
    short = min(height, width)
    wide, high = max(size, round(width * size / short)), max(size, round(height * size / short))
    resized = Image.fromarray(pixels).resize((wide, high), Image.Resampling.BILINEAR)
    left, top = (wide - size) // 2, (high - size) // 2
    return np.array(resized.crop((left, top, left + size, top + size)))
