"""Random flips, shifts and cutout for a whole batch at once."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from clearance._checks import check_count


@dataclass(frozen=True)
class Augmentation:
    """Random changes to every training batch: flip, then shift, then cutout.

    Five numbers per image are drawn on the CPU, with any of the three on or off: a seed gives the same changes on
    every device, and switching one off does not change the other two.

    Args:
        flip: Mirror each image left to right with probability 1/2. Misleads where left and right mean
            something (digits, letters).
        pad: Shift by up to `pad` pixels in each direction, uniformly, filled with zeros; 0 is off, 4 is usual
            for 32x32 images.
        cutout: Side in pixels of a square set to zero; 0 is off. Its centre is any pixel: it covers rows
            ``centre - side // 2`` to ``centre - side // 2 + side - 1``, columns likewise, clipped to the image.
            Source: DeVries and Taylor 2017, who cut after normalising, so that their zero is the mean colour; here
            it is black.

    Raises:
        ValueError: If `pad` or `cutout` is negative or not whole.

    >>> images = torch.rand(8, 3, 32, 32)
    >>> changed = Augmentation(flip=True, pad=4)(images, torch.Generator().manual_seed(0))
    >>> changed.shape
    torch.Size([8, 3, 32, 32])
    """

    flip: bool = False
    pad: int = 0
    cutout: int = 0

    def __post_init__(self) -> None:
        check_count("pad", self.pad, minimum=0)
        check_count("cutout", self.cutout, minimum=0)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Images (B, C, H, W), each with its own random changes."""
        mirror, top, left, row, column = _chances(images, generator)
        if self.flip:
            images = _flipped(images, mirror < 0.5)
        if self.pad:
            images = _shifted(images, _whole(top, 2 * self.pad), _whole(left, 2 * self.pad), self.pad)
        if self.cutout:
            height, width = images.shape[2:]
            images = _cut(images, _whole(row, height - 1), _whole(column, width - 1), self.cutout)
        return images


def _chances(images: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform numbers in [0, 1), five for each image, (5, B), drawn on the CPU and moved to the images' device."""
    drawn = torch.rand(5, len(images), generator=generator, dtype=torch.float64)
    return drawn.to(images.device, non_blocking=True)


def _whole(chance: Tensor, largest: int) -> Tensor:
    return (chance * (largest + 1)).long()


def _flipped(images: Tensor, mirror: Tensor) -> Tensor:
    return torch.where(mirror[:, None, None, None], images.flip(3), images)


def _shifted(images: Tensor, top: Tensor, left: Tensor, pad: int) -> Tensor:
    batch, channels, height, width = images.shape
    padded = functional.pad(images, (pad, pad, pad, pad))
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.arange(width, device=images.device)
    banded = padded.gather(2, rows[:, None, :, None].expand(batch, channels, height, width + 2 * pad))
    return banded.gather(3, columns[:, None, None, :].expand(batch, channels, height, width))


def _cut(images: Tensor, row: Tensor, column: Tensor, side: int) -> Tensor:
    height, width = images.shape[2:]
    rows = _covered(row, side, height)
    columns = _covered(column, side, width)
    return images.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0.0)


def _covered(centre: Tensor, side: int, length: int) -> Tensor:
    """Whether each of `length` positions lies in the interval of `side` around each centre, (B, length)."""
    distance = torch.arange(length, device=centre.device) - (centre[:, None] - side // 2)
    return (distance >= 0) & (distance < side)
