"""The names of datasets, models, losses, methods and audits, and where each is defined.

Objects are imported on first use, so that ``clearance list`` and ``--help`` are fast.
"""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from clearance._checks import check_choice


@dataclass(frozen=True)
class Entry:
    """The place of an object, ``"module:Object"``, and one line that describes it."""

    place: str
    summary: str


DATASETS = {
    "digits": Entry(
        "clearance.data.digits:read_digits",
        "scikit-learn's handwritten digits: 8x8, 1,300 + 497, embedded (no files needed)",
    ),
    "photographs": Entry(
        "clearance.data.photographs:read_photographs",
        "patches of scikit-learn's two photographs: 8x8, 260 + 260, embedded; out of distribution for digits",
    ),
    "mnist": Entry(
        "clearance.data.idx:read_idx", "handwritten digits: 28x28, 60,000 + 10,000, IDX files under --root"
    ),
    "fashion-mnist": Entry(
        "clearance.data.idx:read_idx", "clothes: 28x28, 60,000 + 10,000, IDX files under --root"
    ),
    "cifar10": Entry(
        "clearance.data.cifar:read_cifar",
        "photographs: 32x32x3, 50,000 + 10,000, binary files under --root",
    ),
    "cifar100": Entry(
        "clearance.data.cifar:read_cifar", "the same with 100 classes, binary files under --root"
    ),
    "folder:PATH": Entry(
        "clearance.data.folder:open_folder",
        "an image folder, one subfolder per class (PATH/train and PATH/test, or split 80/20)",
    ),
    "npz:PATH": Entry("clearance.data.npz:read_npz", "a .npz file with images and labels (split 80/20)"),
}

MODELS = {
    "small-cnn": Entry(
        "clearance.models.extractors.small_cnn:small_cnn",
        "three convolutions for square images of any size from 8; its flattened maps are the features",
    ),
    "tiny-cnn": Entry(
        "clearance.models.extractors.small_cnn:tiny_cnn",
        "small-cnn with half as many maps, for many runs on a CPU",
    ),
    "convnet13": Entry(
        "clearance.models.extractors.convnet13:convnet13",
        "thirteen convolutions and an average over pixels, the CIFAR-100 network of Wan et al. (2018); 384 features",
    ),
    "convnet32": Entry(
        "clearance.models.extractors.convnet32:convnet32",
        "six convolutions for 32x32 images, as three stages; 4,096 features",
    ),
    "small-convnet32": Entry(
        "clearance.models.extractors.convnet32:small_convnet32",
        "four convolutions of half as many maps, for 32x32 images on a CPU; 2,048 features",
    ),
    "averaged-convnet32": Entry(
        "clearance.models.extractors.convnet32:averaged_convnet32",
        "small-convnet32 with an average over each map in place of the last pooling; 128 features",
    ),
    "large-margin-cnn": Entry(
        "clearance.models.extractors.large_margin_cnn:large_margin_cnn",
        "two 5x5 convolutions and a layer of 512 features, the MNIST network of Elsayed et al. (2018)",
    ),
    "lenet-plus": Entry(
        "clearance.models.extractors.lenet_plus:lenet_plus",
        "five convolutions and a linear layer of any width (`features`), the MNIST network of Wan et al. (2018)",
    ),
    "tiny-lenet-plus": Entry(
        "clearance.models.extractors.lenet_plus:tiny_lenet_plus",
        "the same form for images of 8 x 8: four convolutions and a linear layer of any width",
    ),
    "lenet": Entry(
        "clearance.models.extractors.lenet:lenet",
        "two 5x5 convolutions and a layer of 500 features with the only ReLU, after Tanay and Griffin (2018)",
    ),
    "resnet20": Entry(
        "clearance.models.extractors.resnet20:resnet20",
        "the residual network of 20 layers for 32x32 images; 64 features",
    ),
    "vgg16": Entry(
        "clearance.models.extractors.vgg16:vgg16",
        "the 13 convolutions of VGG-16 for 32x32 images; 512 features",
    ),
}

LOSSES = {
    "cross-entropy": Entry("clearance.losses.cross_entropy:CrossEntropyLoss", "softmax cross-entropy"),
    "squared-error": Entry(
        "clearance.losses.squared_error:SquaredErrorLoss", "squared error against one-hot labels"
    ),
    "hinge": Entry("clearance.losses.hinge:HingeLoss", "multi-class hinge: a margin between logits"),
    "gaussian-mixture": Entry(
        "clearance.losses.gaussian_mixture:GaussianMixtureLoss",
        "Gaussian classes with a margin and a likelihood, L-GM; needs mixture (Wan et al. 2018)",
    ),
    "center": Entry(
        "clearance.losses.center:CenterLoss",
        "cross-entropy, with features near their class centre (Wen et al. 2016)",
    ),
    "large-margin-softmax": Entry(
        "clearance.losses.large_margin_softmax:LargeMarginSoftmaxLoss",
        "cross-entropy with a margin between angles; needs hidden: [] (Liu et al. 2016)",
    ),
    "contrastive": Entry(
        "clearance.losses.contrastive:ContrastiveLoss",
        "cross-entropy, with pairs of one class near and pairs of two apart (Sun et al. 2014)",
    ),
    "triplet": Entry(
        "clearance.losses.triplet:TripletLoss",
        "cross-entropy, with each sample nearer to its class than to others (Schroff et al. 2015)",
    ),
    "large-margin": Entry(
        "clearance.losses.large_margin:LargeMarginLoss",
        "a margin around the boundary at any layers, with cross-entropy (Elsayed et al. 2018)",
    ),
    "sum": Entry(
        "clearance.losses.sum:SumLoss",
        "several losses at once: parts: {NAME: {loss: ..., its settings}}, and weights: {NAME: ...}",
    ),
}

METHODS = {
    "plain": "extractor and head trained together by SGD",
    "noisy": "plain, with fresh Gaussian noise on the head's parameters in every step",
    "dropout": "plain, with dropout in a wider head",
    "batchnorm": "plain, with batch normalisation in extractor and head",
    "foca": "the extractor never meets the same head twice (Sato et al. 2019)",
    "hinge": "plain, with a margin between logits in place of cross-entropy",
    "large-margin": "plain, with a margin around the boundary at input and features (Elsayed et al. 2018)",
    "lgm": "features of each class as one Gaussian, with a margin and a likelihood (Wan et al. 2018)",
    "center": "plain, with features near their class centre (Wen et al. 2016)",
    "l-softmax": "plain, with a margin between angles in place of cross-entropy (Liu et al. 2016)",
    "contrastive": "plain, with pairs of one class near and pairs of two apart (Sun et al. 2014)",
    "triplet": "plain, with each sample nearer to its own class than to others (Schroff et al. 2015)",
}

AUDITS = {
    "accuracy": Entry("clearance.audits.accuracy:Accuracy", "How often is the classifier wrong?"),
    "duplicates": Entry(
        "clearance.audits.duplicates:Duplicates",
        "Which images are there more than once, and how accurate is the classifier without those in test?",
    ),
    "co_adaptation": Entry(
        "clearance.audits.co_adaptation:CoAdaptation",
        "How much do the features depend on the head they were trained with?",
    ),
    "deeper_cut": Entry(
        "clearance.audits.deeper_cut:DeeperCut",
        "How much does co-adaptation change where the network is cut one layer later?",
    ),
    "geodesic": Entry(
        "clearance.audits.geodesic:Geodesic",
        "How far does a head move when it is trained on few images instead of all?",
    ),
    "class_scatter": Entry(
        "clearance.audits.class_scatter:ClassScatter", "How compact are the classes in feature space?"
    ),
    "low_dimension": Entry(
        "clearance.audits.low_dimension:LowDimension", "How many dimensions do the classes need?"
    ),
    "neural_collapse": Entry(
        "clearance.audits.neural_collapse:NeuralCollapse",
        "How close are features and head to neural collapse?",
    ),
    "churn": Entry(
        "clearance.audits.churn:Churn",
        "How much do independently trained heads disagree on the same features?",
    ),
    "label_suspects": Entry(
        "clearance.audits.label_suspects:LabelSuspects",
        "Which labels look wrong, one by one and between two classes?",
    ),
    "set_facts": Entry(
        "clearance.audits.set_facts:SetFacts",
        "Is anything odd about the sets themselves: errors, files, sizes, colours, class sizes?",
    ),
    "preprocessing": Entry(
        "clearance.audits.preprocessing:PreprocessingMismatch",
        "Would another preprocessing of the images raise its accuracy?",
    ),
    "linear_probe": Entry(
        "clearance.audits.linear_probe:LinearProbe",
        "How accurate is a linear layer trained on the frozen features?",
    ),
    "confusions": Entry(
        "clearance.audits.confusions:Confusions",
        "Which two classes are confused most?",
    ),
    "performance": Entry(
        "clearance.audits.performance:Performance",
        "How often is it right on each class and on each slice of the images?",
    ),
    "mistakes": Entry(
        "clearance.audits.mistakes:Mistakes", "Which images are wrong, and how sure is it of them?"
    ),
    "minimal_perturbation": Entry(
        "clearance.audits.minimal_perturbation:MinimalPerturbation",
        "What is the smallest change of an image that changes the prediction?",
    ),
    "common_corruptions": Entry(
        "clearance.audits.common_corruptions:CommonCorruptions",
        "How accurate is the classifier on images with common corruptions?",
    ),
    "out_of_distribution": Entry(
        "clearance.audits.out_of_distribution:OutOfDistribution",
        "How many out-of-distribution images does a threshold reject?",
    ),
    "new_classes": Entry(
        "clearance.audits.new_classes:NewClasses",
        "How well do the features separate classes left out of training?",
    ),
    "robustness": Entry("clearance.audits.robustness:Robustness", "How many images stay right under attack?"),
    "boundary_distance": Entry(
        "clearance.audits.boundary_distance:BoundaryDistance",
        "How far are images from the decision boundary?",
    ),
    "likelihood": Entry(
        "clearance.audits.likelihood:Likelihood",
        "Does a low likelihood detect images that the classifier was not trained for?",
    ),
    "calibration": Entry(
        "clearance.audits.calibration:Calibration", "Does its confidence match its accuracy?"
    ),
    "goodness_of_fit": Entry(
        "clearance.audits.goodness_of_fit:GoodnessOfFit",
        "Are the features of each class distributed as a Gaussian?",
    ),
    "high_confidence_adversarials": Entry(
        "clearance.audits.high_confidence_adversarials:HighConfidenceAdversarials",
        "How far must an image change until another class is predicted with high confidence?",
    ),
    "weight_scale": Entry(
        "clearance.audits.weight_scale:WeightScale", "How large are the weights and the logits?"
    ),
}


def resolve(kind: str, name: str, entries: Mapping[str, Entry]) -> Any:
    """The object with this name.

    Raises:
        ValueError: If the name is unknown; the message suggests the nearest.

    >>> resolve("model", "small-cnn", MODELS).__name__
    'small_cnn'
    """
    check_choice(kind, name, entries)
    module, _, attribute = entries[name].place.partition(":")
    return getattr(importlib.import_module(module), attribute)


AUDIT_GROUPS = {"all": tuple(AUDITS), "few-labels": ("co_adaptation", "linear_probe")}
"""Names that stand for several audits."""


def audit_names(asked: Iterable[str]) -> tuple[str, ...]:
    """The names, each once, with those that a group's name stands for.

    >>> audit_names(["accuracy", "few-labels"])
    ('accuracy', 'co_adaptation', 'linear_probe')
    """
    return tuple(dict.fromkeys(each for name in asked for each in AUDIT_GROUPS.get(name, (name,))))


def loss_defaults(kind: Callable[..., Any]) -> dict[str, Any]:
    """Every setting that a recipe may give a loss, and its default; settings in a group are listed one by one.

    >>> from clearance.losses import LargeMarginLoss
    >>> loss_defaults(LargeMarginLoss)["unit"]
    'layer'
    """
    taken = inspect.signature(kind).parameters.values()
    found = {one.name: one.default for one in taken if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    for group, made_of in getattr(kind, "groups", {}).items():
        del found[group]
        found |= vars(made_of())
    return found
