"""How pictures become a model's input: read from other libraries, and applied to a picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from clearance._checks import check_choice, check_count

_SLACK = 1e-6  # so that a share such as 224 / 232 gives 232 again
_MOST_PIXELS, _LONGEST_SIDE = 100_000_000, 65_535  # of a picture, decoded or resized
_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


@dataclass(frozen=True)
class Preprocessing:
    """The steps of an evaluation transform: resize the short side, crop the centre, normalise.

    Args:
        mean: Subtracted from images in [0, 1], one value per channel; None if unknown.
        std: Divides images after that.
        size: Side of the centre crop, in pixels.
        short_side: Length of the short side before the crop, in pixels, at least `size`; None is `size`.
        interpolation: ``"nearest"``, ``"bilinear"``, ``"bicubic"`` or ``"lanczos"``.
        squash: Whether both sides are resized to `short_side`, as by a Hugging Face size of height and width and by
            timm's crop mode of this name; a picture that is not square is then distorted, and nothing of it is cut off.

    Raises:
        ValueError: If `size` or `short_side` is not a whole number above 0, `short_side` is less than `size`, `mean`
            or `std` is no tuple, or `interpolation` none of these.

    >>> Preprocessing(size=224, short_side=256).crop
    0.875
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    size: int | None = None
    short_side: int | None = None
    interpolation: str = "bilinear"
    squash: bool = False

    def __post_init__(self) -> None:
        for name in ("size", "short_side"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if self.short_side is not None and (self.size is None or self.short_side < self.size):
            raise ValueError(
                "`short_side` must be at least `size`, because the square is cut out of the resized picture; got "
                f"short_side={self.short_side} and size={self.size}."
            )
        for name in ("mean", "std"):
            if getattr(self, name) is not None and not _numbers(getattr(self, name)):
                raise ValueError(
                    f"`{name}` must be a tuple, one value per channel; got {getattr(self, name)!r}."
                )
        check_choice("interpolation", self.interpolation, _FILTERS)

    @property
    def crop(self) -> float | None:
        """The share of the short side that is kept."""
        if self.size is None or self.short_side is None:
            return None
        return self.size / self.short_side

    def __str__(self) -> str:
        size = "unchanged"
        if self.size is not None:
            squashed = ", squashed" if self.squash else ""
            size = f"{self.short_side or self.size} -> {self.size} px ({self.interpolation}{squashed})"
        given = {"mean": self.mean, "std": self.std}
        return f"images {size}" + "".join(
            f", {name} {_short(of)}" for name, of in given.items() if of is not None
        )


def preprocessing_of(source: Any) -> Preprocessing:
    """The preprocessing that a model's own library gives for its input.

    A `Preprocessing` is returned as it is. Others are read by duck typing: a timm model, its `pretrained_cfg` or
    `default_cfg` (mean, std, input_size, crop_pct); torchvision's ``weights.transforms()`` or the weights themselves
    (mean, std, crop_size, resize_size); a composition of transforms (its Resize, CenterCrop and Normalize); a Hugging
    Face image processor (image_mean, image_std, size, crop_size, crop_pct).

    Raises:
        ValueError: If `source` is none of these, resizes or crops to sides that differ, crops without resizing or
            before it, or takes further steps, such as turning channels round.

    >>> found = preprocessing_of({"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "input_size": (3, 224, 224),
    ...                           "crop_pct": 0.9, "interpolation": "bicubic"})
    >>> found.size, found.short_side, found.interpolation
    (224, 248, 'bicubic')
    """
    if isinstance(source, Preprocessing):
        return source
    for kept in (source, *_inside(source)):
        for read in (_timm, _processor, _preset, _composed):
            found = read(kept)
            if found is not None:
                return found
    raise ValueError(
        "`preprocessing` must be a timm model or its pretrained_cfg, torchvision weights or their transforms(), a "
        f"composition of transforms, or a Hugging Face image processor; got {type(source).__name__}. Give "
        "clearance.data.Preprocessing(mean=..., std=..., size=...)."
    )


def short_side_of(size: int, crop: float) -> int:
    """The short side before a centre crop that keeps the share `crop` of it, rounded down as in timm.

    Raises:
        ValueError: If `size` is not a whole number above 0 or `crop` is not in (0, 1].

    >>> short_side_of(224, 0.875), short_side_of(224, 0.9), short_side_of(224, 224 / 232)
    (256, 248, 232)
    """
    check_count("size", size)
    if not 0 < crop <= 1:
        raise ValueError(f"`crop` must lie in (0, 1], the share of the short side that is kept; got {crop}.")
    return int(size / crop + _SLACK)


def check_extent(width: int, height: int) -> None:
    """Raise ValueError for a picture that would take too much memory; called before it is decoded or resized.

    >>> check_extent(12_000, 8_000)
    """
    if width * height > _MOST_PIXELS or max(width, height) > _LONGEST_SIDE:
        raise ValueError(
            f"a picture of {width}x{height} (decoded or resized) has more than {_MOST_PIXELS:,} pixels or a side of "
            f"more than {_LONGEST_SIDE:,}; make it smaller, or leave it out."
        )


def transformed(picture: Image.Image, how: Preprocessing) -> NDArray[Any]:
    """The picture as (C, H, W) bytes; sizes and offsets are rounded as torchvision's Resize and CenterCrop do.

    >>> transformed(Image.new("RGB", (30, 20)), Preprocessing(size=8, short_side=10)).shape
    (3, 8, 8)
    """
    if how.size is not None:
        short = how.size if how.short_side is None else how.short_side
        picture = _middle(_resized(picture, short, how), how.size)
    pixels = np.asarray(picture)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _resized(picture: Image.Image, short_side: int, how: Preprocessing) -> Image.Image:
    width, height = picture.size
    short, long = min(width, height), max(width, height)
    other = short_side if how.squash else int(short_side * long / short)
    size = (short_side, other) if width <= height else (other, short_side)
    check_extent(*size)
    return picture if size == picture.size else picture.resize(size, _FILTERS[how.interpolation])


def _middle(picture: Image.Image, side: int) -> Image.Image:
    width, height = picture.size
    left, top = round((width - side) / 2), round((height - side) / 2)
    return picture.crop((left, top, left + side, top + side))


def _inside(source: Any) -> list[Any]:
    """The preprocessing settings that a model or its weights hold."""
    found = [getattr(source, name, None) for name in ("pretrained_cfg", "default_cfg")]
    transforms = getattr(source, "transforms", None)
    # torchvision's weights have a method that returns them
    if callable(transforms) and not hasattr(source, "forward"):
        found.append(transforms())
    return [each for each in found if each is not None]


def _get(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)


def _timm(source: Any) -> Preprocessing | None:
    mean, std, size = (_get(source, name) for name in ("mean", "std", "input_size"))
    if not (_numbers(mean) and _numbers(std) and _numbers(size)) or len(size) != 3:
        return None
    side, crop = _side(tuple(size)[1:]), float(_get(source, "crop_pct") or 1.0)
    squash = _get(source, "crop_mode") == "squash"
    assert side is not None
    return _made(mean, std, side, short_side_of(side, crop), _get(source, "interpolation"), squash)


def _processor(source: Any) -> Preprocessing | None:
    mean, std = _get(source, "image_mean"), _get(source, "image_std")
    if not (_numbers(mean) and _numbers(std)):
        return None
    if _get(source, "do_flip_channel_order") or _kind(source).startswith("PPLCNet"):
        raise ValueError(
            "an image processor must keep red, green and blue in their order; this one turns them round. Let your "
            "module do so, and give clearance.data.Preprocessing(mean=..., std=..., size=..., short_side=...)."
        )
    if _get(source, "do_normalize") is False:
        mean, std = [0.0] * len(mean), [1.0] * len(std)
    elif _get(source, "include_top"):  # EfficientNet divides by std twice
        std = [value**2 for value in std]
    factor = 1 if _get(source, "do_rescale") is False else _get(source, "rescale_factor")
    offset = 1 if _get(source, "rescale_offset") else 0  # EfficientNet's bytes to -1 .. 1
    if factor and (offset or abs(255 * factor - 1) > _SLACK):  # mean and std are of what it makes of bytes
        mean, std = [(one + offset) / (255 * factor) for one in mean], [one / (255 * factor) for one in std]
    size = _get(source, "size") if _get(source, "do_resize") is not False else None
    resized, squash = _side(size), _is_squashed(size)
    if isinstance(size, int) and not _kind(source).startswith(_KEEP_PROPORTIONS):
        squash = True
    if size is not None and resized is None:
        raise ValueError(
            f"an image processor must resize to `shortest_edge`, or to `height` and `width`; got {size}. Give "
            "clearance.data.Preprocessing(mean=..., std=..., size=..., short_side=...)."
        )
    cropped = _side(_get(source, "crop_size")) if _get(source, "do_center_crop") is not False else None
    crop, kept = _get(source, "crop_pct"), cropped or resized
    if resized is not None and crop:  # `size` is the side after the crop
        squash = squash or (cropped is None and resized >= _CONVNEXT_SQUASHES)
        resized = resized if squash else short_side_of(resized, float(crop))
    elif resized is not None and not squash and _kind(source).startswith("Levit"):
        resized = int(resized * 256 / 224)
    return _made(mean, std, kept, resized, _get(source, "resample"), squash)


_KEEP_PROPORTIONS = (
    "Bit",
    "BridgeTower",
    "ChineseCLIP",
    "CLIP",
    "ConvNext",
    "Levit",
    "MobileNet",
    "MobileViT",
    "PoolFormer",
    "Siglip",
    "TextNet",
)
"""Kinds whose size, where it is one number, is that of the short side; to others it is both sides."""

_CONVNEXT_SQUASHES = 384  # from this side on its processor cuts nothing off


def _kind(source: Any) -> str:
    """The name of a processor's class, from its file or itself."""
    named = _get(source, "image_processor_type") or _get(source, "feature_extractor_type")
    return str(named or type(source).__name__)


def _preset(source: Any) -> Preprocessing | None:
    mean, std = _get(source, "mean"), _get(source, "std")
    kept, resized = _side(_get(source, "crop_size")), _side(_get(source, "resize_size"))
    if not (_numbers(mean) and _numbers(std)) or kept is None:
        return None
    return _made(mean, std, kept, resized, _get(source, "interpolation"))


_STEPS = ("Resize", "CenterCrop", "Normalize")
_CONVERSIONS = frozenset(
    {"ToTensor", "PILToTensor", "ToImage", "ToDtype", "ToPureTensor", "ConvertImageDtype", "MaybeToTensor"}
)


def _composed(source: Any) -> Preprocessing | None:
    """From the parts of a composition, by the names of their classes."""
    inner = _get(source, "transforms")
    if not isinstance(inner, list | tuple):
        return None
    parts = {type(part).__name__: part for part in inner}
    if not parts.keys() & set(_STEPS):
        return None
    steps = [name for part in inner if (name := type(part).__name__) not in _CONVERSIONS]
    if steps != [name for name in _STEPS if name in steps]:
        raise ValueError(
            "a composition must hold Resize, CenterCrop and Normalize in this order, each at most once, and else only "
            f"conversions to tensors; got {', '.join(steps)}. Give clearance.data.Preprocessing(mean=..., std=..., "
            "size=..., short_side=...), if that can say it, or prepare the images yourself."
        )
    if _get(parts.get("Resize"), "max_size") is not None:
        raise ValueError(
            "a Resize with `max_size` cannot be followed; leave it out, or prepare the images yourself."
        )
    resize, crop, norm = (parts.get(name) for name in _STEPS)
    resized, kept = _side(_get(resize, "size")), _side(_get(crop, "size"))
    mean, std = (
        (one,) if isinstance(one, int | float) else one for one in (_get(norm, "mean"), _get(norm, "std"))
    )
    squash = _is_squashed(_get(resize, "size"))
    return _made(mean, std, kept or resized, resized, _get(resize, "interpolation"), squash)


def _made(
    mean: Any, std: Any, kept: int | None, resized: int | None, interpolation: Any, squash: bool = False
) -> Preprocessing:
    if kept is not None and resized is None:
        raise ValueError(
            f"a crop must follow a resize; got one to {kept} pixels alone. Give clearance.data.Preprocessing(size="
            f"{kept}, short_side=...), with the short side of your pictures."
        )
    return Preprocessing(
        None if mean is None else tuple(float(each) for each in mean),
        None if std is None else tuple(float(each) for each in std),
        kept,
        resized,
        _interpolation(interpolation),
        squash,
    )


def _is_squashed(size: Any) -> bool:
    """Whether a size of a resize has two sides, so that a picture loses its proportions.

    Raises:
        ValueError: If they differ, because images here are square.
    """
    named = _named_sides(size)
    sides = size if named is None else [named.get("height"), named.get("width")]
    if not isinstance(sides, Sequence) or isinstance(sides, str) or len(sides) != 2 or None in sides:
        return False
    if sides[0] != sides[1]:
        raise ValueError(
            "a resize must keep the proportions of a picture or make it square, and a crop must be square; got "
            f"{sides[0]} x {sides[1]}. Give clearance.data.Preprocessing(size=..., squash=True) if a square will do, "
            "or resize the pictures first."
        )
    return True


def _named_sides(size: Any) -> dict[str, Any] | None:
    """The sides of a mapping, or of the object that transformers 5 has in its place; None of anything else."""
    if not isinstance(size, Mapping) and not hasattr(size, "shortest_edge"):
        return None
    given = {name: _get(size, name) for name in ("shortest_edge", "height", "width")}
    return {name: side for name, side in given.items() if side is not None}


def _side(size: Any) -> int | None:
    """A side in pixels, from a number, a sequence or a mapping.

    Raises:
        ValueError: If there are two that differ.
    """
    _is_squashed(size)
    named = _named_sides(size)
    if named is not None:
        size = named.get("shortest_edge", named.get("height"))
    if isinstance(size, Sequence) and not isinstance(size, str) and size:
        size = size[0]
    return int(size) if isinstance(size, int | float) else None


def _interpolation(value: Any) -> str:
    known = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers
    if value is None:
        return "bilinear"
    text = (
        known.get(int(value), "") if isinstance(value, int) else str(getattr(value, "value", value)).lower()
    )
    found = next((name for name in known.values() if name in text), None)
    if found is None:
        raise ValueError(f"an interpolation must be one of {', '.join(known.values())}; got {value!r}.")
    return found


def _numbers(values: Any) -> bool:
    """Whether this is a tuple, list, array or tensor that is not empty."""
    if isinstance(values, str | Mapping) or not hasattr(values, "__len__") or isinstance(values, type):
        return False
    return getattr(values, "ndim", 1) > 0 and len(values) > 0


def _short(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
