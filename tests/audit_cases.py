"""The one list of audits that the contract tests run; a new audit is one more entry."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearance.audits import (
    Accuracy,
    Audit,
    BoundaryDistance,
    Calibration,
    Churn,
    ClassScatter,
    CoAdaptation,
    CommonCorruptions,
    Confusions,
    DeeperCut,
    Duplicates,
    Findings,
    Geodesic,
    GoodnessOfFit,
    HighConfidenceAdversarials,
    LabelSuspects,
    Likelihood,
    LinearProbe,
    LowDimension,
    MinimalPerturbation,
    Mistakes,
    NeuralCollapse,
    NewClasses,
    OutOfDistribution,
    Performance,
    PreprocessingMismatch,
    Robustness,
    SetFacts,
    WeightScale,
)
from clearance.data import ImageSet
from clearance.data.synthetic import GaussianClasses
from clearance.heads import MLP
from clearance.models import Classifier

WORLD = GaussianClasses(class_count=3, shape=(1, 4, 4), separation=2.5, noise=0.05)
"""Classes that overlap, so that no error is 0 by luck."""


@dataclass(frozen=True)
class AuditCase:
    """An audit under test.

    Args:
        audit: With settings that keep it under a second on the world above.
        worst: For each measurement the value of a model whose every number is NaN.
        new_classes: Whether the audit looks at classes that were left out; here the same images stand for them.
        neither: Names of measurements that have no better direction.
    """

    audit: Audit
    worst: dict[str, float]
    new_classes: bool = False
    neither: frozenset[str] = frozenset()

    def __call__(self, model: Classifier, train: Any, test: Any) -> Findings:
        """What the audit finds."""
        return self.audit(model, train, test, new_classes=(train, test) if self.new_classes else None)


STRANGE = GaussianClasses(class_count=5, shape=(1, 4, 4), separation=2.0, noise=0.05).images(20, seed=9)
"""Images of none of these classes."""

AUDITS = {
    "accuracy": AuditCase(Accuracy(), {"error": 1.0}, neither=frozenset({"largest_class"})),
    "co_adaptation": AuditCase(
        CoAdaptation(per_class=(1, 5), repetitions=(6, 3), hidden=(8,)),
        {"error": 1 - 1 / 3},
        neither=frozenset({"gap"}),
    ),
    "deeper_cut": AuditCase(
        DeeperCut(per_class=(1, 5), repetitions=(6, 3), hidden=(8,)),
        {"error": 1 - 1 / 3},
        neither=frozenset({"gap"}),
    ),
    "geodesic": AuditCase(
        # raw features are an audit of features in their own unit, which the contract forbids elsewhere
        Geodesic(segments=4, repetitions=3, hidden=(8,), readings=("rms",)),
        {
            "distance": float("inf"),
            "length": float("inf"),
            "path_error_rise": 2 / 3,
            "worst_path_error": 2 / 3,
        },
    ),
    "class_scatter": AuditCase(
        ClassScatter(), dict.fromkeys(("within_between", "cdnv", "nc1"), float("inf"))
    ),
    "low_dimension": AuditCase(
        LowDimension(),
        {
            "lda_eigenvalue": 0.0,
            "threshold_error": 1.0,
            "first_axis_share": 0.0,
            "plane_axis_share": 0.0,
            "effective_rank": 6.0,
        },
    ),
    "neural_collapse": AuditCase(
        NeuralCollapse(heads=2),
        {
            **dict.fromkeys(("nc1", "nc2_equinorm", "nc2_equiangle", "nc2_simplex", "nc3"), float("inf")),
            "nc4": 1.0,
            "effective_rank": 6.0,
        },
    ),
    "churn": AuditCase(
        Churn(per_class=(1, 5), hidden=(8,), heads=3), {"disagreement": 1.0, "worst_class_disagreement": 1.0}
    ),
    "duplicates": AuditCase(Duplicates(other=STRANGE), {"error": 1.0}),
    "label_suspects": AuditCase(
        LabelSuspects(), {"model_agrees": 0.0}, neither=frozenset({"model_agrees", "agreement"})
    ),
    "set_facts": AuditCase(SetFacts(), {"train_minus_test": 0.0}),
    "common_corruptions": AuditCase(CommonCorruptions(images=30), {"error": 1.0, "mean_error": 1.0}),
    "preprocessing": AuditCase(PreprocessingMismatch(images=30), {"gain": 0.0, "train_gain": 0.0}),
    "linear_probe": AuditCase(LinearProbe(), {"error": 1 - 1 / 3, "gain": 1 / 3}),
    "confusions": AuditCase(Confusions(), {"worst_share": 0.0}),
    "performance": AuditCase(Performance(), {"recall": 0.0, "behind": 0.0}),
    "mistakes": AuditCase(Mistakes(confident=0.37), {"confident_share": 1.0}),
    "minimal_perturbation": AuditCase(
        MinimalPerturbation(images=12, steps=5, queries=5),
        {"median_flip": 0.0, "noise_flipped": 1.0, "accuracy_under_attack": 0.0},
    ),
    "robustness": AuditCase(
        Robustness(epsilons={"inf": (0.03,), "2": (0.07,)}, steps=5, queries=10),
        {"robust_accuracy": 0.0, "cross_entropy_attack_accuracy": 0.0, "noise_accuracy": 0.0},
    ),
    "boundary_distance": AuditCase(
        BoundaryDistance(searched=12, steps=5),
        {
            "first_order_distance": float("-inf"),
            "minimum_distance": 0.0,
            "adversarial_distance": float("-inf"),
            "error_distance": float("inf"),
            "bisected_distance": 0.0,
            "unreliable_share": 1.0,
            "tilting_angle": math.pi,
        },
        neither=frozenset({"local_scale", "mirror_share", "mirror_stretch"}),
    ),
    "high_confidence_adversarials": AuditCase(
        HighConfidenceAdversarials(images=12, grey_levels=10.0, steps=60, search=5),
        {"confident_distance": 0.0, "nearest_distance": 0.0},
        neither=frozenset({"reached", "temperature"}),
    ),
    "weight_scale": AuditCase(
        WeightScale(),
        {
            **dict.fromkeys(("weight_rms", "spectral_norm", "logit_scale", "temperature"), float("inf")),
            "active_share": 1.0,
        },
        neither=frozenset(
            {"weight_rms", "spectral_norm", "logit_scale", "temperature", "active_share", "normalised_layers"}
        ),
    ),
    "likelihood": AuditCase(
        Likelihood(epsilons=(0.03,), steps=3, adaptive_images=12, adaptive_steps=5, betas=(1.0,)),
        {"auroc": 0.5, "aupr": 0.5},
    ),
    "calibration": AuditCase(
        Calibration(),
        {"nll": float("inf"), "brier": 2.0, "overconfidence": 1.0, "ece": 1.0, "ece_debiased": 1.0},
        neither=frozenset({"overconfidence", "temperature", "confidence"}),
    ),
    "goodness_of_fit": AuditCase(
        GoodnessOfFit(),
        {"distance_ratio": float("inf"), "ks_distance": 1.0, "coverage": 0.0},
        neither=frozenset({"distance_ratio", "coverage"}),
    ),
    "out_of_distribution": AuditCase(OutOfDistribution(other=STRANGE), {"rejected": 0.0, "auroc": 0.5}),
    "new_classes": AuditCase(
        NewClasses(per_class=(1, 5), repetitions=(6, 3), hidden=(8,)), {"error": 1 - 1 / 3}, new_classes=True
    ),
}


class Times(nn.Module):
    """Multiplies by a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, features: Tensor) -> Tensor:
        """Features in another unit."""
        return self.factor * features


def train_set() -> ImageSet:
    """48 images of 3 classes."""
    return WORLD.images(per_class=16, seed=0)


def test_set() -> ImageSet:
    """90 other ones."""
    return WORLD.images(per_class=30, seed=1)


test_set.__test__ = False  # type: ignore[attr-defined] # a name that pytest would collect


def classifier(scale: float = 1.0) -> Classifier:
    """A random network with dropout; `scale` gives its features another unit and leaves its logits alone."""
    torch.manual_seed(5)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Tanh())  # no ReLU: points at 0 are ties
    head = MLP((6, 5, 3), dropout=0.5)
    if scale == 1.0:
        return Classifier(extractor, head, mean=0.5, std=0.1)
    scaled = nn.Sequential(*extractor, Times(scale))
    return Classifier(scaled, nn.Sequential(Times(1 / scale), head), mean=0.5, std=0.1)


def constant_features() -> Classifier:
    """A network that sees every image alike."""
    model = classifier()
    for parameter in model.extractor.parameters():
        nn.init.constant_(parameter, 0.0)
    nn.init.constant_(model.extractor[1].bias, 0.3)  # type: ignore[index]
    return model


def broken() -> Classifier:
    """A network whose every number is NaN, as after a diverged training."""
    model = classifier()
    for parameter in model.parameters():
        nn.init.constant_(parameter, float("nan"))
    return model
