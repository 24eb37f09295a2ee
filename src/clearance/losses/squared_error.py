"""Squared error against one-hot targets."""

import torch
from torch import Tensor

from clearance._precision import at_least_float32
from clearance.losses._loss import Loss, check_labels
from clearance.tensors import LossTerms, Outputs


def squared_error(logits: Tensor, labels: Tensor) -> Tensor:
    """||logits - onehot(label)||^2 for each sample.

    Logits are (..., B, C), labels (B,), the same for every leading index of `logits`; the result is (..., B), at least
    float32.
    """
    given = at_least_float32(logits)
    own = labels.expand(given.shape[:-1]).unsqueeze(-1)
    # one_hot reads the labels, which vmap forbids
    return (given - torch.zeros_like(given).scatter(-1, own, 1.0)).square().sum(dim=-1)


class SquaredErrorLoss(Loss):
    """Squared distance of the logits from the label's one-hot vector, averaged over samples (and heads).

    L = mean_i ||z_i - e_{y_i}||^2

    The loss for which Sato et al. (2019), section 3, prove their proposition (there with targets +1
    and -1 for two classes).

    Shapes:
        outputs.logits (B, C) or (K, B, C); labels (B,).

    >>> outputs = Outputs(torch.zeros(4, 2), torch.zeros(4, 10), torch.nn.Identity())
    >>> float(SquaredErrorLoss()(outputs, torch.arange(4)).total)
    1.0
    """

    reads_logits_only = True
    _takes_probabilities = True  # then it is the Brier score
    sample_loss = staticmethod(squared_error)

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """One term, ``squared_error``."""
        check_labels(outputs.logits, labels)
        return LossTerms({"squared_error": squared_error(outputs.logits, labels).mean()})
