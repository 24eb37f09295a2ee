"""The one list of ways to draw weak heads; a new way is one more entry."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from clearance.heads import (
    GaussianMixtureHeads,
    GradientHeads,
    HeadTraining,
    RidgeHeads,
)
from clearance.losses.squared_error import squared_error

K, D = 3, 16


@dataclass(frozen=True)
class Case:
    """A way to draw heads; `follows` is what gives the same heads for features c times as large."""

    heads: Any
    classes: int = 4
    per_class: int = 2
    fixed_penalty: bool = False

    def follows(self, c):
        return replace(self.heads, penalty=c**2 * self.heads.penalty) if self.fixed_penalty else self.heads

    def batches(self, count=K, width=D, seed=1):
        """Each head's features are the first's, turned, so that all have one unit and one scatter."""
        draws = torch.Generator().manual_seed(seed)
        labels = torch.arange(self.classes).repeat_interleave(self.per_class)
        means = torch.randn(self.classes, width, generator=draws, dtype=torch.float64)
        noise = 0.3 * torch.randn(len(labels), width, generator=draws, dtype=torch.float64)
        turns = torch.linalg.qr(torch.randn(count, width, width, generator=draws, dtype=torch.float64)).Q
        return (means[labels] + noise) @ turns, labels.expand(count, -1)

    def draw(self, features, labels, heads=None, seed=0, architecture=None, least_unit=None):
        architecture = architecture or nn.Linear(features.shape[2], self.classes)
        stream = torch.Generator().manual_seed(seed)
        return (heads or self.heads).draw(architecture, features, labels, stream, least_unit)


CASES = {
    "gradient": Case(GradientHeads()),
    # The curvature of squared error is larger than that of cross-entropy, for which the defaults were chosen.
    "gradient, squared error": Case(
        GradientHeads(HeadTraining(steps=100, lr=0.005, weight_decay=0.5), loss=squared_error)
    ),
    "ridge": Case(RidgeHeads(0.01)),
    "ridge, fixed penalty": Case(RidgeHeads(0.01, relative=False), fixed_penalty=True),
    "gaussian mixture": Case(GaussianMixtureHeads()),
    "gaussian mixture, diagonal": Case(GaussianMixtureHeads("diagonal", shrinkage=0.5)),
    "pair": Case(RidgeHeads(0.1 / 4, relative=False), classes=2, per_class=1, fixed_penalty=True),
}


def same(first, second):
    return all(torch.equal(first.stack.parameters[n], second.stack.parameters[n]) for n in ("weight", "bias"))
