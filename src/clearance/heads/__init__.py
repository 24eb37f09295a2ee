"""Heads: modules from features to logits, one at a time or K at once.

FOCA and the audits train many small heads on frozen features. Here twenty heads are trained on ten images each, in
one loop of batched products:

>>> import torch
>>> centres = torch.eye(10, 64)
>>> features = torch.stack([centres + 0.1 * torch.randn(10, 64) for _ in range(20)])   # (K, n, D)
>>> labels = torch.arange(10)
>>> stack = HeadStack.initialised(MLP((64, 32, 10)), 20, torch.Generator().manual_seed(0))
>>> trained = train_heads(stack, features, labels, HeadTraining(steps=200, lr=0.3))
>>> int((trained.stack.predictions(centres) == labels).sum()) > 190
True
"""

from clearance.heads.gaussian_mixture import (
    GaussianMixture,
    linear_from_mixture,
    mixture_from_linear,
    mixture_groups,
)
from clearance.heads.mlp import MLP
from clearance.heads.stack import HeadStack
from clearance.heads.train import HeadTraining, train_heads
from clearance.heads.weak import GaussianMixtureHeads, GradientHeads, RidgeHeads

__all__ = [
    "MLP",
    "GaussianMixture",
    "GaussianMixtureHeads",
    "GradientHeads",
    "HeadStack",
    "HeadTraining",
    "RidgeHeads",
    "linear_from_mixture",
    "mixture_from_linear",
    "mixture_groups",
    "train_heads",
]
