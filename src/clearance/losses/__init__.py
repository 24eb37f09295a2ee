"""Losses: one published loss per file, each a function of a batch's outputs and labels.

| loss | reads | it asks for |
|---|---|---|
| CrossEntropyLoss | logits | the true class's probability to be high |
| SquaredErrorLoss | logits | logits equal to the label's one-hot vector |
| HingeLoss | logits | the true logit to be a margin above the others |
| GaussianMixtureLoss | features, head | features of each class as a Gaussian, with a margin and a likelihood |
| CenterLoss | features, logits | cross-entropy, and features near their class centre |
| LargeMarginSoftmaxLoss | features, head | the angle to the true class's weight to be m times as small |
| ContrastiveLoss | features, logits | cross-entropy, pairs of one class near and pairs of two classes apart |
| TripletLoss | features, logits | cross-entropy, and each sample nearer to its own class than to others |
| LargeMarginLoss | any layers | every sample to be a margin away from its class boundaries, at those layers |
| SumLoss | as its parts | the weighted sum of its parts |

Every loss returns named terms and their sum:

>>> import torch
>>> from clearance.tensors import Outputs
>>> features, head, labels = torch.randn(8, 4), torch.nn.Linear(4, 3), torch.randint(3, (8,))
>>> loss = CrossEntropyLoss()(Outputs(features, head(features), head), labels)
>>> list(loss.terms)
['cross_entropy']
>>> loss.total.backward()

Your own loss is a subclass of :class:`Loss` with a ``forward``; it needs no registration.
"""

from clearance.losses._loss import Loss, TrainingWarning
from clearance.losses.center import CenterLoss
from clearance.losses.contrastive import ContrastiveLoss
from clearance.losses.cross_entropy import CrossEntropyLoss
from clearance.losses.gaussian_mixture import GaussianMixtureLoss
from clearance.losses.hinge import HingeLoss
from clearance.losses.large_margin import DistanceSettings, GammaQuantile, LargeMarginLoss
from clearance.losses.large_margin_softmax import LargeMarginSoftmaxLoss
from clearance.losses.margins import margin_distances
from clearance.losses.schedules import InverseDecay, StepUp
from clearance.losses.squared_error import SquaredErrorLoss
from clearance.losses.sum import SumLoss
from clearance.losses.triplet import TripletLoss

__all__ = [
    "CenterLoss",
    "ContrastiveLoss",
    "CrossEntropyLoss",
    "DistanceSettings",
    "GammaQuantile",
    "GaussianMixtureLoss",
    "HingeLoss",
    "InverseDecay",
    "LargeMarginLoss",
    "LargeMarginSoftmaxLoss",
    "Loss",
    "SquaredErrorLoss",
    "StepUp",
    "SumLoss",
    "TrainingWarning",
    "TripletLoss",
    "margin_distances",
]
