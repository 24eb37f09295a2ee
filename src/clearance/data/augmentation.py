"""Random flips, shifts and holes, for a whole batch at once."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from clearance._checks import check_count


@dataclass(frozen=True)
class Augmentation:
    """What to do to every training batch: flip, then shift, then cut a hole.

    Five numbers an image are drawn on the CPU, whatever is switched on: a seed means the same changes on
    every device, and switching one of the three off leaves the other two as they were.

    Args:
        flip: Mirror each image left to right with probability 1/2. Misleads where left and right mean
            something (digits, letters).
        pad: Shift by up to `pad` pixels each way, zeros coming in; 0 is off, 4 is usual for 32x32 images.
        cutout: Side in pixels of a square set to zero, cut off at the border; 0 is off.

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
        """Images (B, C, H, W) changed at random, each in its own way."""
        mirror, top, left, row, column = _chances(5, images, generator)
        if self.flip:
            images = _flipped(images, mirror < 0.5)
        if self.pad:
            images = _shifted(images, _whole(top, 2 * self.pad), _whole(left, 2 * self.pad), self.pad)
        if self.cutout:
            height, width = images.shape[2:]
            images = _cut(images, _whole(row, height - 1), _whole(column, width - 1), self.cutout)
        return images


def flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image left to right with probability 1/2.

    Shapes:
        images (B, C, H, W), any device; returns the same.

    >>> image = torch.tensor([[[[1.0, 2.0]]]])
    >>> generator = torch.Generator().manual_seed(0)
    >>> sorted({tuple(flip(image, generator).flatten().tolist()) for _ in range(20)})
    [(1.0, 2.0), (2.0, 1.0)]
    """
    (mirror,) = _chances(1, images, generator)
    return _flipped(images, mirror < 0.5)


def pad_crop(images: Tensor, pad: int, generator: torch.Generator) -> Tensor:
    """Surround each image by `pad` zeros and cut it out again at a random place, offsets 0..2 pad inclusive.

    Shapes:
        images (B, C, H, W), any device; returns the same.

    Raises:
        ValueError: If `pad` is negative or not whole.

    >>> pad_crop(torch.ones(2, 1, 4, 4), 1, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 1, 4, 4])
    """
    check_count("pad", pad, minimum=0)
    top, left = _chances(2, images, generator)
    return _shifted(images, _whole(top, 2 * pad), _whole(left, 2 * pad), pad)


def cutout(images: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Set a square of each image to zero; its centre is any pixel, and what lies outside the image is lost.

    The square covers rows ``centre - side // 2`` to ``centre - side // 2 + side - 1``, and columns likewise
    (DeVries and Taylor 2017, whose zero is the mean colour because they cut after normalising; here it is
    black).

    Shapes:
        images (B, C, H, W), any device; returns the same.

    Raises:
        ValueError: If `side` is negative or not whole.

    >>> holed = cutout(torch.ones(1, 1, 5, 5), 1, torch.Generator().manual_seed(0))
    >>> int((holed == 0).sum())
    1
    """
    check_count("side", side, minimum=0)
    row, column = _chances(2, images, generator)
    height, width = images.shape[2:]
    return _cut(images, _whole(row, height - 1), _whole(column, width - 1), side)


def _chances(count: int, images: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform numbers in [0, 1), shape (count, B), drawn on the CPU and then brought to the images."""
    drawn = torch.rand(count, len(images), generator=generator, dtype=torch.float64)
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
    """Which of `length` places a stretch of `side` around each centre covers, shape (B, length)."""
    distance = torch.arange(length, device=centre.device) - (centre[:, None] - side // 2)
    return (distance >= 0) & (distance < side)
