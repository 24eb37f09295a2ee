"""The one list of losses that the contract tests run; a new loss is one more entry."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from clearance import LossTerms, Outputs
from clearance.heads import GaussianMixture
from clearance.losses import (
    CenterLoss,
    ContrastiveLoss,
    CrossEntropyLoss,
    DistanceSettings,
    GaussianMixtureLoss,
    HingeLoss,
    LargeMarginLoss,
    LargeMarginSoftmaxLoss,
    Loss,
    SquaredErrorLoss,
    StepUp,
    SumLoss,
    TripletLoss,
)

CLASSES, FEATURE_WIDTH, INPUT_WIDTH = 4, 5, 6
"""Sizes of the world in which losses are tested; its layers are called "input" and "hidden"."""


class OwnLoss(Loss):
    """A loss as a user may write it: two terms, a parameter, a buffer, a layer, and a rule after a step."""

    layers = ("hidden",)
    mean_norm: Tensor

    def __init__(self, weight: float = 0.1) -> None:
        super().__init__()
        self.weight = weight
        self.log_temperature = nn.Parameter(torch.tensor(0.3))
        self.register_buffer("mean_norm", torch.tensor(1.0))

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """Cross-entropy at a learnt temperature, and the distance of hidden norms from their running mean."""
        wide = torch.promote_types(outputs.logits.dtype, torch.float32)
        logits = outputs.logits.to(wide) * self.log_temperature.exp()
        norms = outputs.activations["hidden"].to(wide).square().sum(dim=1)
        return LossTerms(
            {
                "cross_entropy": nn.functional.cross_entropy(logits, labels),
                "norm": self.weight * (norms - self.mean_norm).square().mean(),
            }
        )

    def after_step(self, outputs: Outputs, labels: Tensor) -> None:
        """Move the running mean."""
        found = outputs.activations["hidden"].square().sum(dim=1).mean()
        self.mean_norm.lerp_(found.to(self.mean_norm.dtype), 0.5)

    def extra_repr(self) -> str:
        """The setting."""
        return f"weight={self.weight}"


@dataclass(frozen=True)
class LossCase:
    """A loss under test.

    Args:
        make: A fresh loss, for the sizes above.
        terms: Names of the terms that it returns.
        parameters_per_class: Names of parameters and buffers whose first axis counts classes.
        head: The head that it reads.
        compares_samples: Whether it is a mean over pairs or triplets of samples, so that every sample twice is
            another loss.
    """

    make: Callable[[], Loss]
    terms: tuple[str, ...]
    parameters_per_class: tuple[str, ...] = ()
    head: Callable[[], nn.Module] = lambda: nn.Linear(FEATURE_WIDTH, CLASSES)
    compares_samples: bool = False


def mixture(covariance: str = "class_diagonal") -> GaussianMixture:
    """A mixture whose priors are learned, so that a gradient reaches all of its parameters."""
    return GaussianMixture(FEATURE_WIDTH, CLASSES, covariance, priors="learned")  # type: ignore[arg-type]


LOSSES = {
    "cross-entropy": LossCase(CrossEntropyLoss, ("cross_entropy",)),
    "squared error": LossCase(SquaredErrorLoss, ("squared_error",)),
    "hinge": LossCase(HingeLoss, ("hinge",)),
    "hinge, sum": LossCase(lambda: HingeLoss(0.5, "sum"), ("hinge",)),
    # The denominator in the gradient, so that it can be checked; every=2, so that a step leaves something behind.
    "large margin": LossCase(
        lambda: LargeMarginLoss(
            ("hidden", "features", "logits"),
            gamma=2.0,
            top_k=2,
            distance=DistanceSettings(denominator="full"),
            every=2,
        ),
        ("margin", "cross_entropy"),
    ),
    "gaussian mixture": LossCase(
        partial(GaussianMixtureLoss, bounded=False),
        ("classification", "likelihood", "variance_prior"),
        head=mixture,
    ),
    "gaussian mixture, full, scheduled": LossCase(
        lambda: GaussianMixtureLoss(StepUp(0.1, 2.0, 2, 0.3), bounded=False),
        ("classification", "likelihood", "variance_prior"),
        head=lambda: mixture("full"),
    ),
    "gaussian mixture, classification alone": LossCase(
        lambda: GaussianMixtureLoss(0.3, 0.0, bounded=False),
        ("classification",),
        head=lambda: mixture("class_scalar"),
    ),
    "center": LossCase(lambda: CenterLoss(FEATURE_WIDTH, CLASSES), ("cross_entropy", "center"), ("centres",)),
    "center, gradient": LossCase(
        lambda: CenterLoss(FEATURE_WIDTH, CLASSES, update="gradient"),
        ("cross_entropy", "center"),
        ("centres",),
    ),
    "large-margin softmax": LossCase(
        lambda: LargeMarginSoftmaxLoss(4, {"start": 3.0, "rate": 0.1, "power": 2.0}),
        ("large_margin_softmax",),
    ),
    "contrastive": LossCase(ContrastiveLoss, ("cross_entropy", "contrastive"), compares_samples=True),
    "triplet": LossCase(TripletLoss, ("cross_entropy", "triplet"), compares_samples=True),
    "triplet, all": LossCase(
        lambda: TripletLoss(1.0, "all"), ("cross_entropy", "triplet"), compares_samples=True
    ),
    "sum": LossCase(
        lambda: SumLoss(
            {
                "mixture": GaussianMixtureLoss(bounded=False),
                "margin": LargeMarginLoss(
                    ("hidden",),
                    gamma=2.0,
                    distance=DistanceSettings(denominator="full"),
                    cross_entropy_weight=0.0,
                ),
                "center": CenterLoss(FEATURE_WIDTH, CLASSES, cross_entropy_weight=0.0),
            },
            {"margin": 0.5},
        ),
        (
            "mixture/classification",
            "mixture/likelihood",
            "mixture/variance_prior",
            "margin/margin",
            "center/center",
        ),
        ("parts.center.centres",),
        head=mixture,
    ),
    "own": LossCase(OwnLoss, ("cross_entropy", "norm")),
}
