"""LeNet as the article on L2 regularisation trains it: two convolutions, two poolings, one ReLU."""

import math
from collections import OrderedDict
from typing import Literal

from torch import nn

from clearance.models.extractors._stages import check_halved_twice

MAPS = (20, 50)
FEATURES = 500


def lenet(channels: int, size: int, norm: Literal["none", "batch"] = "none") -> nn.Sequential:
    """Two 5 x 5 convolutions of 20 and 50 maps, each pooled to a half by maxima, and a layer of 500 features with ReLU.

    There is no padding, and no ReLU after the convolutions. The parts are called ``conv1``, ``pool1``, ``conv2``,
    ``pool2``, ``flat``, ``fc1`` and ``relu``; with a linear layer to 10 classes, 431,080 parameters and 2.3 million
    multiply-adds for an image of 28 x 28.

    Source: Tanay and Griffin (2018), the figure of LeNet, which is that of MatConvNet's example. First weights are
    those of He et al. (2015) with fan-out, sqrt(2 / (positions x maps)) normal, where the last layer counts as a
    convolution over all positions, as in MatConvNet; biases 0. Ours, as the article says nothing.

    Args:
        channels: Channels of an image, at least 1.
        size: Height and width in pixels, a multiple of 4 of at least 16; 28 for MNIST.
        norm: ``"batch"`` puts batch normalisation after each of the three layers; not in the article.

    Shapes:
        images (B, channels, size, size); features (B, 500).

    Raises:
        ValueError: If `size` is another number, or `norm` is unknown.

    >>> import torch
    >>> lenet(1, 28)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 500])
    """
    check_halved_twice("lenet", channels, size, norm, least=16)
    first, second = MAPS
    flat = second * (size // 4 - 3) ** 2
    batch = norm == "batch"
    parts: list[tuple[str, nn.Module | None]] = [
        ("conv1", nn.Conv2d(channels, first, 5)),
        ("norm1", nn.BatchNorm2d(first) if batch else None),
        ("pool1", nn.MaxPool2d(2)),
        ("conv2", nn.Conv2d(first, second, 5)),
        ("norm2", nn.BatchNorm2d(second) if batch else None),
        ("pool2", nn.MaxPool2d(2)),
        ("flat", nn.Flatten()),
        ("fc1", nn.Linear(flat, FEATURES)),
        ("norm3", nn.BatchNorm1d(FEATURES) if batch else None),
        ("relu", nn.ReLU()),
    ]
    layers: OrderedDict[str, nn.Module] = OrderedDict((n, part) for n, part in parts if part is not None)
    positions = {"conv1": 25, "conv2": 25, "fc1": (size // 4 - 3) ** 2}
    for name, count in positions.items():
        layer = layers[name]
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        assert layer.bias is not None
        nn.init.normal_(layer.weight, std=math.sqrt(2 / (count * len(layer.weight))))
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers)
