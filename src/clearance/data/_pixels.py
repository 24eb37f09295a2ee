"""Pixels as others keep them, turned into (N, C, H, W) float32: the one place for layouts and scales."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def as_pixels(images: Tensor | NDArray) -> Tensor:
    """Images of any usual layout as (N, C, H, W) float32; uint8 is divided by 255, floats keep their values.

    Three axes are (N, H, W). Four axes are (N, C, H, W), except in uint8 NumPy arrays, which are (N, H, W, C)
    with 1 or 3 channels: so do NumPy and Pillow hold pictures.

    >>> as_pixels(np.full((2, 4, 5, 3), 255, dtype=np.uint8)).shape
    torch.Size([2, 3, 4, 5])
    """
    if images.ndim not in (3, 4):
        raise ValueError(
            f"`images` must have 3 axes (N, H, W) or 4 (N, C, H, W); got shape {tuple(images.shape)}."
        )
    pixels = torch.from_numpy(_channels_first(images)) if isinstance(images, np.ndarray) else images.detach()
    if pixels.ndim == 3:
        pixels = pixels.unsqueeze(1)
    if pixels.shape[3] == 3 and pixels.shape[1] > 4:
        raise ValueError(
            f"`images` must have their channels on axis 1; got shape {tuple(pixels.shape)}, which seems "
            "to have them last; use images.permute(0, 3, 1, 2), or construct ImageSet itself if meant so."
        )
    if pixels.dtype == torch.uint8:
        return pixels.float().div_(255)
    if not pixels.is_floating_point():
        raise ValueError(f"`images` must be uint8 or floats in [0, 1]; got {pixels.dtype}; convert to uint8.")
    return pixels.float()


def _channels_first(images: NDArray) -> NDArray:
    if images.dtype.kind == "f":
        return _writeable(np.ascontiguousarray(images, dtype=np.float32))
    if images.dtype != np.uint8:
        raise ValueError(f"`images` must be uint8 or floats in [0, 1]; got {images.dtype}; convert to uint8.")
    if images.ndim == 4:
        if images.shape[3] not in (1, 3):
            raise ValueError(
                f"`images` of uint8 must be (N, H, W, C) with 1 or 3 channels; got shape {images.shape}; "
                "use images.transpose(0, 2, 3, 1) if the channels stand first."
            )
        images = images.transpose(0, 3, 1, 2)
    return _writeable(np.ascontiguousarray(images))


def _writeable(array: NDArray) -> NDArray:
    return array if array.flags.writeable else array.copy()  # torch warns of memory that it must not write


def as_labels(labels: object) -> Tensor:
    """Whole-number labels of any integer type as int64.

    >>> as_labels([0, 2, 1])
    tensor([0, 2, 1])
    """
    found = labels.detach() if isinstance(labels, Tensor) else torch.from_numpy(_label_array(labels))
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        raise ValueError(f"`labels` must be whole numbers; got {found.dtype}; number the classes from 0.")
    return found.long()


def _label_array(labels: object) -> NDArray:
    found = np.asarray(labels)
    if found.dtype.kind not in "iu":
        raise ValueError(
            f"`labels` must be whole numbers; got {found.dtype}; number the classes from 0, and give their names apart "
            "(`classes`)."
        )
    return found.astype(np.int64)


def numbered_classes(labels: Tensor) -> tuple[str, ...]:
    """Class names where none are given: "0", "1", ... up to the largest label.

    >>> numbered_classes(torch.tensor([0, 2, 1]))
    ('0', '1', '2')
    """
    largest = int(labels.max()) if labels.numel() else -1
    if largest >= labels.numel() > 0:
        raise ValueError(
            f"`labels` must be numbered from 0 without gaps; got a label {largest} among {labels.numel()} "
            "labels; renumber the classes, or construct ImageSet with their names."
        )
    return tuple(str(number) for number in range(largest + 1))
