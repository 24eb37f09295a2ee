"""The only place for names: what a dataset, model, objective, method or audit is called, and where it lives.

Nothing is imported until it is used, so that ``clearance list`` and ``--help`` answer at once.
"""

import importlib
from dataclasses import dataclass
from typing import Any

from clearance._checks import check_choice


@dataclass(frozen=True)
class Entry:
    """Where a thing lives, ``"module:Object"``, and one line on what it is."""

    place: str
    summary: str


DATASETS = {
    "digits": Entry(
        "clearance.data.digits:read_digits",
        "scikit-learn's handwritten digits: 8x8, 1,300 + 497, embedded (no files needed)",
    ),
    "mnist": Entry(
        "clearance.data.idx:read_idx", "handwritten digits: 28x28, 60,000 + 10,000, IDX files under --root"
    ),
    "fashion-mnist": Entry(
        "clearance.data.idx:read_idx", "clothes: 28x28, 60,000 + 10,000, IDX files under --root"
    ),
    "cifar10": Entry(
        "clearance.data.cifar:read_cifar10",
        "photographs: 32x32x3, 50,000 + 10,000, binary files under --root",
    ),
    "cifar100": Entry(
        "clearance.data.cifar:read_cifar100", "the same with 100 classes, binary files under --root"
    ),
    "folder:PATH": Entry(
        "clearance.data.folder:read_folder",
        "an image folder, one subfolder a class (PATH/train and PATH/test, or split 80/20)",
    ),
    "npz:PATH": Entry("clearance.data.npz:read_npz", "a .npz file with images and labels (split 80/20)"),
}

MODELS = {
    "small-cnn": Entry(
        "clearance.models.extractors.small_cnn:small_cnn",
        "three convolutions for square images of any size from 8; its flattened maps are the features",
    ),
}

OBJECTIVES = {
    "cross-entropy": Entry("clearance.objectives.cross_entropy:CrossEntropyLoss", "softmax cross-entropy"),
    "squared-error": Entry(
        "clearance.objectives.squared_error:SquaredErrorLoss", "squared error against one-hot labels"
    ),
}

METHODS = {
    "plain": "extractor and head trained together by SGD",
    "noisy": "plain, with fresh Gaussian noise on the head's parameters in every step",
    "dropout": "plain, with dropout in a wider head",
    "batchnorm": "plain, with batch normalisation in extractor and head",
    "foca": "the extractor never meets the same head twice (Sato et al. 2019)",
}

AUDITS = {
    "accuracy": Entry("clearance.audits.accuracy:Accuracy", "How often is the classifier wrong?"),
    "co_adaptation": Entry(
        "clearance.audits.co_adaptation:CoAdaptation",
        "How much do the features depend on the head they grew up with?",
    ),
    "class_scatter": Entry(
        "clearance.audits.class_scatter:ClassScatterAudit", "How point-like are the classes in feature space?"
    ),
}


def resolve(kind: str, name: str, entries: dict[str, Entry]) -> Any:
    """The object that a name stands for.

    Raises:
        ValueError: If there is no such name; the message offers the nearest.

    >>> resolve("model", "small-cnn", MODELS).__name__
    'small_cnn'
    """
    check_choice(kind, name, entries)
    module, _, attribute = entries[name].place.partition(":")
    return getattr(importlib.import_module(module), attribute)
