"""Softmax cross-entropy."""

import torch.nn.functional as F
from torch import Tensor

from clearance._precision import at_least_float32
from clearance.losses._loss import Loss, check_labels
from clearance.tensors import LossTerms, Outputs

_NONE = -(2**62)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """-log softmax(logits)[label] for each sample.

    Logits are (..., B, C), labels (B,), the same for every leading index of `logits`; the result is (..., B), at least
    float32.
    """
    flat = at_least_float32(logits.flatten(0, -2))
    repeated = labels.expand(logits.shape[:-1]).flatten()
    # no label is passed over: torch's usual -100 would count as a loss of 0 where labels are not checked
    return F.cross_entropy(flat, repeated, reduction="none", ignore_index=_NONE).view(logits.shape[:-1])


def with_cross_entropy(
    terms: dict[str, Tensor], weight: float, outputs: Outputs, labels: Tensor
) -> LossTerms:
    """The terms after ``cross_entropy`` times its weight, which is left out if the weight is 0."""
    if weight > 0:
        terms = {"cross_entropy": weight * cross_entropy(outputs.logits, labels).mean(), **terms}
    return LossTerms(terms)


class CrossEntropyLoss(Loss):
    """Softmax cross-entropy, averaged over samples (and over heads, where K heads read the features).

    L = -mean_i log softmax(z_i)[y_i]

    Shapes:
        outputs.logits (B, C) or (K, B, C); labels (B,).

    Misleads as a measure of separation: scaling all logits lowers it without moving a boundary.

    >>> import torch
    >>> outputs = Outputs(torch.zeros(4, 2), torch.zeros(4, 10), torch.nn.Identity())
    >>> round(float(CrossEntropyLoss()(outputs, torch.arange(4)).total), 4)    # log 10
    2.3026
    """

    reads_logits_only = True

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """One term, ``cross_entropy``."""
        check_labels(outputs.logits, labels)
        return LossTerms({"cross_entropy": cross_entropy(outputs.logits, labels).mean()})
