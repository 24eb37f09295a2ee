"""Clearance: train, audit and compare image classifiers.

A loss turns a batch's outputs and labels into a number; a way of training decides which parameters that
number may move, and which head is in use. An audit turns a trained classifier into measurements and exhibits; a report
shows only what is stored.

Importing this package imports nothing else; names are looked up when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearance import attacks as attacks
    from clearance import audits as audits
    from clearance import data as data
    from clearance import geometry as geometry
    from clearance import heads as heads
    from clearance import linear as linear
    from clearance import losses as losses
    from clearance import models as models
    from clearance import training as training
    from clearance.data import ImageSet as ImageSet
    from clearance.experiments.audit import audit as audit
    from clearance.experiments.compare import compare as compare
    from clearance.experiments.datasets import load_dataset as load_dataset
    from clearance.experiments.diff import diff as diff
    from clearance.experiments.method import Method as Method
    from clearance.experiments.saved import load_model as load_model
    from clearance.models import Classifier as Classifier
    from clearance.models import wrap as wrap
    from clearance.models.pretrained import load_pretrained as load_pretrained
    from clearance.report import Card as Card
    from clearance.tensors import LossTerms as LossTerms
    from clearance.tensors import Outputs as Outputs
    from clearance.training import fit as fit
    from clearance.vocabulary import Exhibit as Exhibit
    from clearance.vocabulary import Measurement as Measurement

__version__ = "0.1.0"

_PLACES = {
    "Card": "clearance.report",
    "Classifier": "clearance.models",
    "Exhibit": "clearance.vocabulary",
    "ImageSet": "clearance.data",
    "LossTerms": "clearance.tensors",
    "Measurement": "clearance.vocabulary",
    "Method": "clearance.experiments.method",
    "Outputs": "clearance.tensors",
    "audit": "clearance.experiments.audit",
    "compare": "clearance.experiments.compare",
    "diff": "clearance.experiments.diff",
    "fit": "clearance.training",
    "load_dataset": "clearance.experiments.datasets",
    "load_model": "clearance.experiments.saved",
    "load_pretrained": "clearance.models.pretrained",
    "wrap": "clearance.models",
}
_ROOMS = ("attacks", "audits", "data", "geometry", "heads", "linear", "models", "losses", "training")

__all__ = [
    "Card",
    "Classifier",
    "Exhibit",
    "ImageSet",
    "LossTerms",
    "Measurement",
    "Method",
    "Outputs",
    "attacks",
    "audit",
    "audits",
    "compare",
    "data",
    "diff",
    "fit",
    "geometry",
    "heads",
    "linear",
    "load_dataset",
    "load_model",
    "load_pretrained",
    "losses",
    "models",
    "training",
    "wrap",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"clearance.{name}")
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'clearance' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
