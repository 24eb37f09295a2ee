"""Extractors: networks that turn images into features."""

from clearance.models.extractors.convnet13 import convnet13 as convnet13
from clearance.models.extractors.convnet32 import convnet32 as convnet32
from clearance.models.extractors.large_margin_cnn import large_margin_cnn as large_margin_cnn
from clearance.models.extractors.lenet import lenet as lenet
from clearance.models.extractors.lenet_plus import lenet_plus as lenet_plus
from clearance.models.extractors.lenet_plus import tiny_lenet_plus as tiny_lenet_plus
from clearance.models.extractors.resnet20 import resnet20 as resnet20
from clearance.models.extractors.small_cnn import small_cnn as small_cnn
from clearance.models.extractors.small_cnn import tiny_cnn as tiny_cnn
from clearance.models.extractors.vgg16 import vgg16 as vgg16

__all__ = [
    "convnet13",
    "convnet32",
    "large_margin_cnn",
    "lenet",
    "lenet_plus",
    "resnet20",
    "small_cnn",
    "tiny_cnn",
    "tiny_lenet_plus",
    "vgg16",
]
