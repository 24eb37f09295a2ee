"""Models: every classifier is an extractor and a head, with normalisation inside.

>>> import torch
>>> from clearance.heads import MLP
>>> model = Classifier(small_cnn(1, 8), MLP((1024, 128, 128, 10)), mean=0.3, std=0.4)
>>> images = torch.rand(5, 1, 8, 8)                  # in [0, 1]
>>> model(images).shape, model.features(images).shape
(torch.Size([5, 10]), torch.Size([5, 1024]))
"""

from clearance.models.black_box import black_box
from clearance.models.checkpoint import load_weights
from clearance.models.classifier import Classifier
from clearance.models.extractors.convnet13 import convnet13
from clearance.models.extractors.convnet32 import convnet32
from clearance.models.extractors.large_margin_cnn import large_margin_cnn
from clearance.models.extractors.lenet import lenet
from clearance.models.extractors.lenet_plus import lenet_plus
from clearance.models.extractors.resnet20 import resnet20
from clearance.models.extractors.small_cnn import small_cnn
from clearance.models.extractors.vgg16 import vgg16
from clearance.models.features import extract_features, predictions
from clearance.models.wrap import wrap

__all__ = [
    "Classifier",
    "black_box",
    "convnet13",
    "convnet32",
    "extract_features",
    "large_margin_cnn",
    "lenet",
    "lenet_plus",
    "load_weights",
    "predictions",
    "resnet20",
    "small_cnn",
    "vgg16",
    "wrap",
]
