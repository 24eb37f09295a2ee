"""Extractors: networks that turn images into features."""

from clearance.models.extractors.convnet32 import convnet32 as convnet32
from clearance.models.extractors.small_cnn import small_cnn as small_cnn
from clearance.models.extractors.vgg16 import vgg16 as vgg16

__all__ = ["convnet32", "small_cnn", "vgg16"]
