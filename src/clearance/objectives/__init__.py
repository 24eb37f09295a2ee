"""Objectives: one published loss per file, each a function of a batch's outputs and labels.

| objective | reads | what it asks for |
|---|---|---|
| CrossEntropyLoss | logits | the true class's probability to be high |
| SquaredErrorLoss | logits | logits equal to the label's one-hot vector |
| HingeLoss | logits | the true logit to be a margin above the others |
| LargeMarginLoss | any layers | every sample to be a margin away from its class boundaries, at those layers |

Every objective returns named terms and their sum:

>>> import torch
>>> from clearance.tensors import Outputs
>>> features, head, labels = torch.randn(8, 4), torch.nn.Linear(4, 3), torch.randint(3, (8,))
>>> loss = CrossEntropyLoss()(Outputs(features, head(features), head), labels)
>>> list(loss.terms)
['cross_entropy']
>>> loss.total.backward()

A loss of your own is a subclass of :class:`Objective` with a ``forward``; nothing has to be registered.
"""

from clearance.objectives._objective import Objective as Objective
from clearance.objectives.cross_entropy import CrossEntropyLoss as CrossEntropyLoss
from clearance.objectives.gamma import GammaQuantile as GammaQuantile
from clearance.objectives.hinge import HingeLoss as HingeLoss
from clearance.objectives.large_margin import LargeMarginLoss as LargeMarginLoss
from clearance.objectives.margins import Margins as Margins
from clearance.objectives.margins import margin_distances as margin_distances
from clearance.objectives.shortlist import Projections as Projections
from clearance.objectives.squared_error import SquaredErrorLoss as SquaredErrorLoss

__all__ = [
    "CrossEntropyLoss",
    "GammaQuantile",
    "HingeLoss",
    "LargeMarginLoss",
    "Margins",
    "Objective",
    "Projections",
    "SquaredErrorLoss",
    "margin_distances",
]
