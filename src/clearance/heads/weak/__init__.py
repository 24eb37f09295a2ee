"""FOCA's weak heads: one way to draw them per file, all with the same ``draw``."""

from typing import Protocol

import torch
from torch import Tensor, nn

from clearance.heads.train import TrainedHeads
from clearance.heads.weak.gaussian_mixture import GaussianMixtureHeads as GaussianMixtureHeads
from clearance.heads.weak.gradient import GradientHeads as GradientHeads
from clearance.heads.weak.ridge import RidgeHeads as RidgeHeads


class WeakHeads(Protocol):
    """The contract of a way to draw heads."""

    def draw(
        self,
        architecture: nn.Module,
        features: Tensor,
        labels: Tensor,
        generator: torch.Generator,
        least_unit: Tensor | None = None,
    ) -> TrainedHeads:
        """K heads for features (K, n, D) and labels (K, n); the heads read raw features."""
        ...
