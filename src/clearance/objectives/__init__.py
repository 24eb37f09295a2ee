"""Objectives: one published loss per file, each a function of a batch's outputs and labels.

| objective | reads | what it asks for |
|---|---|---|
| CrossEntropyLoss | logits | the true class's probability to be high |
| SquaredErrorLoss | logits | logits equal to the label's one-hot vector |

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
from clearance.objectives.squared_error import SquaredErrorLoss as SquaredErrorLoss

__all__ = ["CrossEntropyLoss", "Objective", "SquaredErrorLoss"]
