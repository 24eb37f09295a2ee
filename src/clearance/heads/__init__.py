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

from clearance.heads.gaussian_mixture import GaussianMixture as GaussianMixture
from clearance.heads.gaussian_mixture import linear_from_mixture as linear_from_mixture
from clearance.heads.gaussian_mixture import mixture_from_linear as mixture_from_linear
from clearance.heads.gaussian_mixture import mixture_groups as mixture_groups
from clearance.heads.mlp import MLP as MLP
from clearance.heads.stack import HeadStack as HeadStack
from clearance.heads.train import HeadTraining as HeadTraining
from clearance.heads.train import train_heads as train_heads
from clearance.heads.weak import GaussianMixtureHeads as GaussianMixtureHeads
from clearance.heads.weak import GradientHeads as GradientHeads
from clearance.heads.weak import RidgeHeads as RidgeHeads

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
