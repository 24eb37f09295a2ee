"""The network that the published code of the large-margin loss trains on MNIST, as an extractor."""

from collections import OrderedDict
from typing import Literal

from torch import nn

from clearance.models.extractors._stages import check_halved_twice, started

MAPS = (32, 64)
FEATURES = 512


def large_margin_cnn(channels: int, size: int, norm: Literal["none", "batch"] = "batch") -> nn.Sequential:
    """Two blocks of 5 x 5 convolution, ReLU, pooling and batch normalisation, then a layer of 512 features.

    Images keep their size in the convolutions (32 and 64 maps) and are halved by each block's 2 x 2 max pooling;
    batch normalisation comes after the pooling. The parts are called ``block1``, ``block2`` and ``dense``, so
    that a classifier's layers are ``"extractor.block1"`` and so on: the layers of the published code are
    ``"input"``, ``"extractor.block1"``, ``"extractor.block2"``.

    Source: the MNIST network of the code that the authors of Elsayed et al. (2018) published, without dropout
    (its rate there is 0). With a linear layer to 10 classes, on 28 x 28 images of one channel, 1,663,466
    parameters and 12.3 million multiply-adds an image. First weights after He et al. (2015), biases at 0: ours.

    Args:
        channels: Channels of an image, at least 1; 1 for MNIST.
        size: Height and width in pixels, a multiple of 4; 28 for MNIST.
        norm: ``"batch"`` as in that code, its convolutions without a bias; ``"none"`` leaves it out.

    Shapes:
        images (B, channels, size, size); features (B, 512).

    Raises:
        ValueError: If `size` is no multiple of 4, or `norm` is unknown.

    >>> import torch
    >>> large_margin_cnn(1, 28)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 512])
    """
    check_halved_twice("large_margin_cnn", channels, size, norm)
    widths = (channels, *MAPS)
    parts: OrderedDict[str, nn.Module] = OrderedDict(
        (f"block{k + 1}", _block(widths[k], widths[k + 1], norm)) for k in range(len(MAPS))
    )
    dense = started(nn.Linear(MAPS[-1] * (size // 4) ** 2, FEATURES))
    parts["dense"] = nn.Sequential(nn.Flatten(), dense, nn.ReLU())
    return nn.Sequential(parts)


def _block(maps_in: int, maps: int, norm: str) -> nn.Sequential:
    convolution = started(nn.Conv2d(maps_in, maps, 5, padding=2, bias=norm == "none"))
    normalised = [nn.BatchNorm2d(maps)] if norm == "batch" else []
    return nn.Sequential(convolution, nn.ReLU(), nn.MaxPool2d(2), *normalised)
