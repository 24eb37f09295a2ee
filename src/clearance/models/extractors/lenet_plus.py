"""The network of the pictures of Wan et al. (2018) on MNIST, whose last layer is as wide as one likes."""

import math
from collections.abc import Sequence
from typing import Literal

from torch import nn

from clearance._checks import check_choice, check_count
from clearance.models.extractors._stages import check_halved_twice

PAIRS = ((32, 32), (64, 64), (128,))
SMALL_PAIRS = ((16, 16), (32, 32))
WIDTH = 100
SLOPE = 0.25  # of a PReLU below 0 at the start, torch's own


def lenet_plus(
    channels: int, size: int, norm: Literal["none", "batch"] = "none", width: int = WIDTH
) -> nn.Sequential:
    """Five convolutions in three groups and one linear layer, without an activation after it: the "LeNet+" of L-GM.

    A group is its convolutions, 2 x 2 max pooling, (batch normalisation) and PReLU with a slope for each map; nothing
    stands between the convolutions of a pair. 32, 64 and 128 maps; the first convolution is 5 x 5 without padding, the
    others are 3 x 3 and keep the size. Features may be negative, as those of a Gaussian are.

    Source: ``examples/mnist/train_test.prototxt`` of the code that the authors of Wan et al. (2018) published. With the
    ten means of a Gaussian mixture 255,884 parameters on 28 x 28 images of one channel. First weights keep the mean
    square of what enters a layer (He et al., 2015, for PReLU); biases at 0: ours.

    Args:
        channels: Channels of an image, at least 1; 1 for MNIST.
        size: Height and width in pixels, 4 more than a multiple of 8; 28 for MNIST.
        norm: ``"none"`` as in that code; ``"batch"`` puts batch normalisation before every PReLU.
        width: Of the features, D, at least 1; 100 as in that code, 2 for pictures.

    Shapes:
        images (B, channels, size, size); features (B, width).

    Raises:
        ValueError: If `size` does not fit the poolings, or another number is out of range.

    >>> import torch
    >>> lenet_plus(1, 28, width=2)(torch.zeros(4, 1, 28, 28)).shape
    torch.Size([4, 2])
    """
    check_count("channels", channels)
    check_count("width", width)
    check_choice("norm", norm, ("none", "batch"))
    check_count("size", size, minimum=12)
    if (size - 4) % 8:
        raise ValueError(
            f"`size` must be 4 more than a multiple of 8 for lenet_plus, whose first convolution has no padding; got "
            f"{size}. Resize the images to 28 x 28, or use tiny_lenet_plus."
        )
    return _paired(channels, (size - 4) // 8, PAIRS, 5, norm, width)


def tiny_lenet_plus(
    channels: int, size: int, norm: Literal["none", "batch"] = "none", width: int = WIDTH
) -> nn.Sequential:
    """The form of :func:`lenet_plus` for the small images of scikit-learn's digits: two pairs of 3 x 3 convolutions.

    16 and 32 maps, all convolutions keep the size; ours. With a width of 100 and ten means 30,316 parameters on 8 x 8
    images of one channel.

    `channels` and `width`, D, are at least 1, `size` is a multiple of 4, in pixels; ``"batch"`` puts batch
    normalisation before every PReLU.

    Shapes:
        images (B, channels, size, size); features (B, width).

    Raises:
        ValueError: If `size` is no multiple of 4, or another number is out of range.

    >>> import torch
    >>> tiny_lenet_plus(1, 8, width=2)(torch.zeros(4, 1, 8, 8)).shape
    torch.Size([4, 2])
    """
    check_halved_twice("tiny_lenet_plus", channels, size, norm)
    check_count("width", width)
    return _paired(channels, size // 4, SMALL_PAIRS, 3, norm, width)


def _paired(
    channels: int, last_size: int, groups: Sequence[Sequence[int]], first_kernel: int, norm: str, width: int
) -> nn.Sequential:
    layers: list[nn.Module] = []
    maps_in, gain, kernel = channels, 1.0, first_kernel
    for group in groups:
        for maps in group:
            layers.append(_started(nn.Conv2d(maps_in, maps, kernel, padding=0 if kernel == 5 else 1), gain))
            maps_in, gain, kernel = maps, 1.0, 3  # the second of a pair follows the first directly
        layers.append(nn.MaxPool2d(2))
        layers += [nn.BatchNorm2d(maps_in)] if norm == "batch" else []
        layers.append(nn.PReLU(maps_in, init=SLOPE))
        gain = math.sqrt(2 / (1 + SLOPE**2))
    dense = _started(nn.Linear(maps_in * last_size**2, width), gain)
    return nn.Sequential(*layers, nn.Flatten(), dense)


def _started(layer: nn.Conv2d | nn.Linear, gain: float) -> nn.Module:
    """Weights N(0, gain^2 / fan_in), biases 0."""
    nn.init.normal_(layer.weight, std=gain / math.sqrt(layer.weight[0].numel()))
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer
