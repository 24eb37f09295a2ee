"""A picture as an evaluation transform gives it: upright, three channels, short side resized, the middle kept."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from clearance.data._pixels import picture_array
from clearance.data.preprocessing import Preprocessing

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def opened(file: Path) -> Image.Image:
    """A file as an upright RGB picture; grey and palettes become RGB, transparency is dropped.

    Raises:
        ValueError: If it cannot be read, without its path.
    """
    try:
        with Image.open(file) as picture:
            return Image.fromarray(picture_array(ImageOps.exif_transpose(picture), keep_grey=False))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        said = "no picture, or damaged" if isinstance(error, Image.UnidentifiedImageError) else str(error)
        raise ValueError(said.partition(";")[0]) from error


def transformed(picture: Image.Image, how: Preprocessing) -> NDArray:
    """The picture as (C, H, W) bytes; sizes and offsets are rounded as torchvision's Resize and CenterCrop do.

    >>> transformed(Image.new("RGB", (30, 20)), Preprocessing(image_size=8, short_side=10)).shape
    (3, 8, 8)
    """
    if how.image_size is not None:
        short = how.image_size if how.short_side is None else how.short_side
        picture = _middle(_resized(picture, short, how.interpolation), how.image_size)
    pixels = np.asarray(picture)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _resized(picture: Image.Image, short_side: int, interpolation: str) -> Image.Image:
    width, height = picture.size
    short, long = min(width, height), max(width, height)
    other = int(short_side * long / short)
    size = (short_side, other) if width <= height else (other, short_side)
    return picture if size == picture.size else picture.resize(size, _FILTERS[interpolation])


def _middle(picture: Image.Image, side: int) -> Image.Image:
    width, height = picture.size
    left, top = round((width - side) / 2), round((height - side) / 2)
    return picture.crop((left, top, left + side, top + side))
