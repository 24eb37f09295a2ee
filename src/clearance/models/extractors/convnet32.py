"""Plain convolutional extractors for 32 x 32 images, of three stages."""

from typing import Literal

from torch import nn

from clearance.models.extractors._stages import check_images_of_32, convolution_stages

STAGES = ((64, 64), (128, 128), (256, 256))
SMALL_STAGES = ((32,), (64, 64), (128,))


def convnet32(channels: int, size: int, norm: Literal["none", "batch"] = "none") -> nn.Sequential:
    """Three stages of two convolutions, ReLU and pooling, to 256 maps of 4 x 4: 4,096 features.

    A stage is twice 3 x 3 convolution > (batch normalisation) > ReLU, then 2 x 2 max pooling; 64, 128, 256
    maps. Weights start as He et al. (2015) for ReLU, biases at 0.

    Source: the width of the features is that of Sato et al. (2019), section 4, on CIFAR-10; the layers are not,
    because theirs (after Lee et al., 2016) are not published in full.

    Args:
        channels: Channels of an image, at least 1; 3 for CIFAR.
        size: Height and width in pixels; 32 and nothing else.
        norm: ``"batch"`` puts batch normalisation after every convolution.

    Shapes:
        images (B, channels, 32, 32); features (B, 4096).

    Raises:
        ValueError: If `size` is not 32.

    >>> import torch
    >>> convnet32(3, 32)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 4096])
    """
    check_images_of_32("convnet32", channels, size, norm)
    return convolution_stages(channels, STAGES, norm)


def small_convnet32(channels: int, size: int, norm: Literal["none", "batch"] = "none") -> nn.Sequential:
    """:func:`convnet32` with half as many maps and one convolution in the first and last stage: 2,048 features.

    An image of three channels takes 19.8 million multiply-adds, an eighth of convnet32's, for training on a CPU.

    >>> import torch
    >>> small_convnet32(3, 32)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 2048])
    """
    check_images_of_32("small_convnet32", channels, size, norm)
    return convolution_stages(channels, SMALL_STAGES, norm)


def averaged_convnet32(channels: int, size: int, norm: Literal["none", "batch"] = "none") -> nn.Sequential:
    """:func:`small_convnet32` with an average over each map in place of the last pooling: 128 features, none below 0.

    The network that Wan et al. (2018) train on CIFAR-100, :func:`~clearance.models.convnet13`, ends like this.

    Misleading: features that are never negative are no Gaussian's. For a mixture put a linear layer behind them.

    >>> import torch
    >>> averaged_convnet32(3, 32)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 128])
    """
    check_images_of_32("averaged_convnet32", channels, size, norm)
    return convolution_stages(channels, SMALL_STAGES, norm, averaged=True)
