"""What plain convolutional extractors are made of: stages of convolutions, each closed by pooling."""

from collections.abc import Sequence
from typing import Literal

from torch import nn

from clearance._checks import check_choice, check_count

PIXELS = 32


def check_images_of_32(
    extractor: str, channels: int, size: int, norm: str, norms: Sequence[str] = ("none", "batch")
) -> None:
    """Raise ValueError unless the images are those that `extractor` is built for."""
    check_count("channels", channels)
    check_choice("norm", norm, norms)
    if size != PIXELS:
        raise ValueError(
            f"`size` must be {PIXELS} for {extractor}, which is made for that; got {size!r}. Resize "
            f"the images to {PIXELS} x {PIXELS}, or use small_cnn, which takes any size from 8."
        )


def check_halved_twice(extractor: str, channels: int, size: int, norm: str, least: int = 4) -> None:
    """Raise ValueError unless `extractor` can halve images of this size twice."""
    check_count("channels", channels)
    check_count("size", size, minimum=least)
    check_choice("norm", norm, ("none", "batch"))
    if size % 4:
        raise ValueError(
            f"`size` must be a multiple of 4 for {extractor}, which halves it twice; got {size}. Resize the images, or "
            "use small_cnn, which takes any size from 8."
        )


def convolution_stages(
    channels: int, stages: Sequence[Sequence[int]], norm: str, averaged: bool = False
) -> nn.Sequential:
    """For each stage 3 x 3 convolutions with ReLU, one for each number of maps, then 2 x 2 max pooling.

    With `averaged` the last pooling is an average over the whole map. The end is flattened.
    """
    layers: list[nn.Module] = []
    maps_in = channels
    for number, stage in enumerate(stages, start=1):
        for maps in stage:
            layers += convolution(maps_in, maps, norm)
            maps_in = maps
        last = number == len(stages)
        layers.append(nn.AdaptiveAvgPool2d(1) if averaged and last else nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten())


def convolution(maps_in: int, maps: int, norm: str) -> list[nn.Module]:
    """A 3 x 3 convolution that keeps the size, batch normalisation where `norm` is "batch", and ReLU.

    Weights start at N(0, 2 / fan_in), so that what a layer hands on is as large as what it got; biases at 0.
    """
    layer = started(nn.Conv2d(maps_in, maps, kernel_size=3, padding=1))
    return [layer, nn.BatchNorm2d(maps), nn.ReLU()] if norm == "batch" else [layer, nn.ReLU()]


def started(layer: nn.Linear | nn.Conv2d, mode: Literal["fan_in", "fan_out"] = "fan_in") -> nn.Module:
    """The layer with weights as He et al. (2015) start them for ReLU, and biases, if any, at 0."""
    nn.init.kaiming_normal_(layer.weight, mode=mode, nonlinearity="relu")
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
