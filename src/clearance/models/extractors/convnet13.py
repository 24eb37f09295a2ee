"""The network of thirteen convolutions that Wan et al. (2018) train on CIFAR-100."""

from typing import Literal

from torch import nn

from clearance.models.extractors._stages import check_halved_twice, started

STAGES = ((96,) * 5, (192,) * 4, (384,) * 4)
MOMENTUM = 0.03  # 1 - the 0.97 by which that code keeps its running statistics


def convnet13(channels: int, size: int, norm: Literal["none", "batch"] = "batch") -> nn.Sequential:
    """Thirteen 3 x 3 convolutions with batch normalisation and ReLU, then an average over all pixels: 384 features.

    Five convolutions of 96 maps, four of 192, four of 384; a 2 x 2 max pooling between them.

    Source: ``examples/cifar100/simple`` of the code that the authors of Wan et al. (2018) published. With a
    head of 100 means 6,184,416 parameters, and 937 million multiply-adds a 32 x 32 image of three channels. Weights
    start as He et al. (2015) for ReLU, as theirs.

    Args:
        channels: Channels of an image, at least 1; 3 for CIFAR.
        size: Height and width in pixels, a multiple of 4; 32 for CIFAR.
        norm: ``"batch"`` as in that code, its convolutions without a bias; ``"none"`` leaves it out and gives biases.

    Shapes:
        images (B, channels, size, size); features (B, 384), none below 0.

    Raises:
        ValueError: If `size` is no multiple of 4, or `norm` is unknown.

    Misleading: features that are never negative are no Gaussian's, so that a likelihood fits them worse than those of
    :func:`~clearance.models.lenet_plus`.

    >>> import torch
    >>> convnet13(3, 32)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 384])
    """
    check_halved_twice("convnet13", channels, size, norm)
    layers: list[nn.Module] = []
    maps_in = channels
    for stage in STAGES:
        layers += [nn.MaxPool2d(2)] if layers else []
        for maps in stage:
            layers += _convolution(maps_in, maps, norm)
            maps_in = maps
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _convolution(maps_in: int, maps: int, norm: str) -> list[nn.Module]:
    layer = started(nn.Conv2d(maps_in, maps, 3, padding=1, bias=norm == "none"))
    normalised = [nn.BatchNorm2d(maps, momentum=MOMENTUM)] if norm == "batch" else []
    return [layer, *normalised, nn.ReLU()]
