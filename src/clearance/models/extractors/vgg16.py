"""The convolutions of VGG-16 as an extractor for 32 x 32 images."""

from typing import Literal

from torch import nn

from clearance.models.extractors._stages import check_images_of_32, convolution_stages

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16(channels: int, size: int, norm: Literal["none", "batch"] = "none") -> nn.Sequential:
    """The 13 convolutions of VGG-16, whose five poolings leave 512 features of a 32 x 32 image.

    A stage is two or three times 3 x 3 convolution > (batch normalisation) > ReLU, then 2 x 2 max pooling;
    64, 128, 256, 512, 512 maps. Weights start as He et al. (2015) for ReLU, biases at 0.

    Source: Simonyan & Zisserman (2015), configuration D, without its three linear layers; the extractor of
    Sato et al. (2019), section 4, on CIFAR-100.

    Args:
        channels: Channels of an image, at least 1; 3 for CIFAR.
        size: Height and width in pixels; 32 and nothing else.
        norm: ``"batch"`` puts batch normalisation after every convolution; none in the paper.

    Shapes:
        images (B, channels, 32, 32); features (B, 512).

    Raises:
        ValueError: If `size` is not 32.

    Misleading: without batch normalisation, so deep a network is easily lost in its first steps even from
    these weights; raise the learning rate slowly and clip gradients.

    >>> import torch
    >>> vgg16(3, 32)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 512])
    """
    check_images_of_32("vgg16", channels, size, norm)
    return convolution_stages(channels, STAGES, norm)
