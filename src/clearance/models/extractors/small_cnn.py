"""A small convolutional extractor for square images of any size from 8 pixels up."""

import math
from collections.abc import Sequence
from typing import Literal

from torch import nn

from clearance._checks import check_choice, check_count
from clearance.models.extractors._stages import convolution

MAPS = (16, 32, 64)
LAST_SIZE = 4


def tiny_cnn(
    channels: int, size: int, norm: Literal["none", "batch"] = "none", width: int = 0
) -> nn.Sequential:
    """:func:`small_cnn` with half as many maps: 8, 16, 32; for experiments of many runs on a CPU.

    A 28 x 28 image of one channel takes 508,032 multiply-adds and gives 288 features.

    >>> import torch
    >>> tiny_cnn(1, 28)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 288])
    """
    return small_cnn(channels, size, norm, width, tuple(maps // 2 for maps in MAPS))


def small_cnn(
    channels: int,
    size: int,
    norm: Literal["none", "batch"] = "none",
    width: int = 0,
    maps: Sequence[int] = MAPS,
) -> nn.Sequential:
    """Three stages (more for images above 32 pixels) of convolution, ReLU and, down to 4 x 4, pooling.

    A stage is 3 x 3 convolution > (batch normalisation) > ReLU > 2 x 2 max pooling while the maps are
    larger than 4 x 4; 16, 32 and then always 64 maps. The end is flattened: 1,024 features for 8 x 8 and
    32 x 32 images, 576 for 28 x 28. Their weights start as He et al. (2015) for ReLU, biases at 0. A 28 x 28 image of
    one channel takes 1,919,232 multiply-adds (2.01 million with a head of 128-128-10).

    Args:
        channels: Channels of an image, at least 1.
        size: Height and width in pixels, at least 8.
        norm: ``"batch"`` puts batch normalisation after every layer.
        width: Of a linear layer with ReLU behind the flattened maps, which cuts the network one layer later; 0 is
            without.
        maps: Of the stages; more stages have the number of the last.

    Raises:
        ValueError: If a setting is out of range or unknown.

    Shapes:
        images (B, channels, size, size); features (B, D).

    >>> import torch
    >>> small_cnn(1, 28)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 576])
    >>> small_cnn(1, 28, width=128)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 128])
    """
    check_count("channels", channels)
    check_count("width", width, minimum=0)
    check_count("size", size, minimum=8)
    check_choice("norm", norm, ("none", "batch"))
    stages = max(len(maps), math.ceil(math.log2(size / LAST_SIZE)))
    layers: list[nn.Module] = []
    maps_in = channels
    for stage in range(stages):
        maps_out = maps[min(stage, len(maps) - 1)]
        layers += convolution(maps_in, maps_out, norm)
        if size > LAST_SIZE:
            layers.append(nn.MaxPool2d(2))
            size //= 2
        maps_in = maps_out
    layers.append(nn.Flatten())
    if width:
        layers.append(nn.Linear(maps_in * size**2, width))
        if norm == "batch":
            layers.append(nn.BatchNorm1d(width))
        layers.append(nn.ReLU())
    return nn.Sequential(*layers)
