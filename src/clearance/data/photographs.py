"""Patches of the two photographs inside scikit-learn: out-of-distribution images for the digits."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clearance._checks import check_choice
from clearance.data.image_set import ImageSet

_SIDE, _REDUCED = 8, 4  # patches of 8x8 pixels, each the mean of 4x4 pixels of the photograph
_FILES = {"temple": "china.jpg", "flower": "flower.jpg"}


def read_photographs(split: str) -> ImageSet:
    """8x8 grey patches of a photograph of a temple and one of a flower: 260 of each in all, half of them to test on.

    Source: sklearn.datasets.load_sample_images. Both are reduced by four and cut into patches without overlap;
    every second patch is for testing. They have the size of the digits, for which they are out of distribution.

    `split` is ``"train"`` or ``"test"``.

    Shapes:
        images (260, 1, 8, 8).

    Raises:
        ValueError: If `split` is another word.

    >>> read_photographs("test")
    ImageSet('photographs', 260 images of shape (1, 8, 8), 2 classes)
    """
    from sklearn.datasets import load_sample_image  # slow to import, and only this reader needs it

    check_choice("split", split, ("train", "test"))
    start = 1 if split == "test" else 0
    parts = [_patches(load_sample_image(file))[start::2] for file in _FILES.values()]
    labels = torch.arange(len(parts)).repeat_interleave(torch.tensor([len(part) for part in parts]))
    images = torch.from_numpy(np.concatenate(parts)).float().unsqueeze(1)
    return ImageSet(images, labels, tuple(_FILES), name="photographs")


def _patches(photograph: NDArray[Any]) -> NDArray[Any]:
    """(N, 8, 8) in [0, 1], row by row; incomplete patches are cut off."""
    grey = photograph.astype(np.float64).mean(axis=2) / 255
    step = _SIDE * _REDUCED
    high, wide = (side // step for side in grey.shape)
    whole = grey[: high * step, : wide * step]
    small = whole.reshape(high * _SIDE, _REDUCED, wide * _SIDE, _REDUCED).mean(axis=(1, 3))
    return small.reshape(high, _SIDE, wide, _SIDE).transpose(0, 2, 1, 3).reshape(-1, _SIDE, _SIDE)
