"""Audits: one question about a trained classifier per file.

An audit takes a classifier, the images it was trained on and held-out ones, and returns measurements:

>>> import torch
>>> from clearance.data import gaussian_images
>>> from clearance.models import Classifier
>>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=50, seed=1)
>>> model = Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 3))      # pixels as features
>>> findings = CoAdaptation(per_class=(1, 5), repetitions=(10, 5))(model, train, test)
>>> errors = {(m.context["head"], m.context["samples"]): m.value for m in findings.measurements
...           if m.name == "error"}
>>> errors["class mean", 15] < errors["class mean", 3]
True
"""

from clearance.audits._audit import Audit, Findings, Subject
from clearance.audits.accuracy import Accuracy
from clearance.audits.boundary_distance import BoundaryDistance
from clearance.audits.calibration import Calibration
from clearance.audits.churn import Churn
from clearance.audits.class_scatter import ClassScatter
from clearance.audits.co_adaptation import CoAdaptation
from clearance.audits.common_corruptions import CommonCorruptions
from clearance.audits.confusions import Confusions
from clearance.audits.deeper_cut import DeeperCut
from clearance.audits.duplicates import Duplicates
from clearance.audits.geodesic import Geodesic
from clearance.audits.goodness_of_fit import GoodnessOfFit
from clearance.audits.high_confidence_adversarials import (
    HighConfidenceAdversarials as HighConfidenceAdversarials,
)
from clearance.audits.label_suspects import LabelSuspects
from clearance.audits.likelihood import Likelihood
from clearance.audits.linear_probe import LinearProbe
from clearance.audits.low_dimension import LowDimension
from clearance.audits.minimal_perturbation import MinimalPerturbation
from clearance.audits.mistakes import Mistakes
from clearance.audits.neural_collapse import NeuralCollapse
from clearance.audits.new_classes import NewClasses
from clearance.audits.out_of_distribution import OutOfDistribution
from clearance.audits.performance import Performance
from clearance.audits.preprocessing import PreprocessingMismatch
from clearance.audits.rejection import rejection_threshold
from clearance.audits.robustness import Robustness
from clearance.audits.set_facts import SetFacts
from clearance.audits.weight_scale import WeightScale, decayed_parameters

__all__ = [
    "Accuracy",
    "Audit",
    "BoundaryDistance",
    "Calibration",
    "Churn",
    "ClassScatter",
    "CoAdaptation",
    "CommonCorruptions",
    "Confusions",
    "DeeperCut",
    "Duplicates",
    "Findings",
    "Geodesic",
    "GoodnessOfFit",
    "HighConfidenceAdversarials",
    "LabelSuspects",
    "Likelihood",
    "LinearProbe",
    "LowDimension",
    "MinimalPerturbation",
    "Mistakes",
    "NeuralCollapse",
    "NewClasses",
    "OutOfDistribution",
    "Performance",
    "PreprocessingMismatch",
    "Robustness",
    "SetFacts",
    "Subject",
    "WeightScale",
    "decayed_parameters",
    "rejection_threshold",
]
