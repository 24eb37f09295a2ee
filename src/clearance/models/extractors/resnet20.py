"""The residual network of 20 layers for 32 x 32 images, as an extractor with named stages."""

from collections import OrderedDict
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from clearance.models.extractors._stages import check_images_of_32, started

MAPS = (16, 32, 64)
BLOCKS = 3  # in each stage: 6 * 3 + 2 = 20 layers, the classifier's linear one included
GROUPS = 8

Norm = Literal["none", "batch", "group"]


def resnet20(channels: int = 3, size: int = 32, norm: Norm = "batch") -> nn.Sequential:
    """ResNet-20 up to its global average: 64 features of a 32 x 32 image.

    A 3 x 3 convolution to 16 maps, then three stages of three blocks with 16, 32, 64 maps at 32, 16, 8 pixels.
    A block is relu(x + conv(relu(conv(x)))), 3 x 3 each and normalised. Where a stage begins with stride 2, the
    shortcut is every second pixel and maps of zeros for those that are new: no parameters (option A). Its parts
    are called ``stem``, ``stage1``, ``stage2``, ``stage3`` and ``pool``, so that a classifier's layers are
    ``"extractor.stage1"`` and so on. Nothing works in place: every part's output can be asked for.

    Source: He et al. (2016), section 4.2, n = 3; first weights after He et al. (2015). With 3 channels, batch
    normalisation and a linear layer to 10 classes it has 269,722 parameters (the paper: 0.27 M) and makes 40.6
    million multiply-adds an image.

    Args:
        channels: Channels of an image, at least 1; 3 for CIFAR.
        size: Height and width in pixels; 32 and nothing else.
        norm: ``"batch"`` as in the paper. ``"group"``, of 8 groups, keeps the images of a batch apart, so that
            gradients of one image's scores know nothing of the others. ``"none"`` begins every block as the
            identity (its last convolution at 0) instead.

    Shapes:
        images (B, channels, 32, 32); features (B, 64).

    Raises:
        ValueError: If `size` is not 32, or `norm` is unknown.

    >>> import torch
    >>> resnet20(3, 32)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """
    check_images_of_32("resnet20", channels, size, norm, ("none", "batch", "group"))
    parts: OrderedDict[str, nn.Module] = OrderedDict(
        stem=nn.Sequential(*_convolution(channels, MAPS[0], 1, norm), nn.ReLU())
    )
    maps_in = MAPS[0]
    for stage, maps in enumerate(MAPS):
        strides = [1 if stage == 0 else 2] + [1] * (BLOCKS - 1)
        widths = [maps_in] + [maps] * (BLOCKS - 1)
        blocks = [_Block(w, maps, s, norm) for w, s in zip(widths, strides, strict=True)]
        parts[f"stage{stage + 1}"] = nn.Sequential(*blocks)
        maps_in = maps
    parts["pool"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(parts)


class _Block(nn.Module):
    """relu(shortcut(x) + residual(x))."""

    def __init__(self, maps_in: int, maps: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *_convolution(maps_in, maps, stride, norm), nn.ReLU(), *_convolution(maps, maps, 1, norm)
        )
        if norm == "none":
            last = self.residual[-1]
            assert isinstance(last, nn.Conv2d)
            nn.init.zeros_(last.weight)
        self.stride, self.new_maps = stride, maps - maps_in
        self.relu = nn.ReLU()

    def forward(self, maps: Tensor) -> Tensor:
        shortcut = maps if self.stride == 1 else maps[:, :, :: self.stride, :: self.stride]
        if self.new_maps:
            before = self.new_maps // 2
            shortcut = F.pad(shortcut, (0, 0, 0, 0, before, self.new_maps - before))
        return self.relu(shortcut + self.residual(maps))


def _convolution(maps_in: int, maps: int, stride: int, norm: Norm) -> list[nn.Module]:
    """3 x 3 and what normalises it; a bias only where no normalisation would take it off again."""
    layer = started(nn.Conv2d(maps_in, maps, 3, stride, padding=1, bias=norm == "none"), "fan_out")
    kinds: dict[str, list[nn.Module]] = {
        "batch": [nn.BatchNorm2d(maps)],
        "group": [nn.GroupNorm(GROUPS, maps)],
        "none": [],
    }
    return [layer, *kinds[norm]]
