"""The one list of audits that the contract tests run; a new audit is one more entry."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearance.audits import Accuracy, Audit, ClassScatterAudit, CoAdaptation
from clearance.data import GaussianClasses, ImageSet
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
    """

    audit: Audit
    worst: dict[str, float]


AUDITS = {
    "accuracy": AuditCase(Accuracy(), {"error": 1.0}),
    "co_adaptation": AuditCase(
        CoAdaptation(per_class=(1, 5), repetitions=(6, 3), hidden=(8,)), {"error": 1 - 1 / 3}
    ),
    "class_scatter": AuditCase(
        ClassScatterAudit(), dict.fromkeys(("within_between", "cdnv", "nc1"), float("inf"))
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
