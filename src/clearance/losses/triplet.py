"""FaceNet's triplet loss: on the unit sphere, each sample nearer to its own class than to others by a margin."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from clearance._checks import check_choice, check_non_negative, check_positive
from clearance._precision import at_least_float32
from clearance.losses._joint import check_features, joint_batch, weighted_gradient
from clearance.losses._loss import Loss, check_labels
from clearance.losses.cross_entropy import with_cross_entropy
from clearance.tensors import LossTerms, Outputs

Mining = Literal["semi_hard", "all"]


def triplet(features: Tensor, labels: Tensor, margin: float = 0.2, mining: Mining = "semi_hard") -> Tensor:
    r"""Mean over triplets of max(0, ||a - p||^2 - ||a - n||^2 + margin), all three scaled to length one.

    a and p are two samples of one class, n one of another. ``"semi_hard"`` takes the triplets whose negative is
    farther than the positive but within the margin: ||a - p||^2 < ||a - n||^2 < ||a - p||^2 + margin; ``"all"``
    takes all, including those without loss. Triplets are not listed one by one: negatives are sorted once for each
    anchor, and sums over them are differences of running sums, in B^2 (D + log B) operations and B^2 memory.

    Source: Schroff, Kalenichenko, Philbin (2015, FaceNet), Eq. 3 (a sum there) and section 3.2.

    Features are (B, D), labels (B,); `margin`, above 0, is of squared distances between unit vectors, which lie in
    [0, 4]. The mean is 0-dim, at least float32; 0 where no triplet counts.

    >>> triplet(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0, 1]), 3.0)
    tensor(1.)
    """
    check_features(features, labels)
    with torch.autocast(features.device.type, enabled=False):  # half precision would select other triplets
        unit = F.normalize(at_least_float32(features), eps=1e-6)
        distances = (2 - 2 * unit @ unit.T).clamp(min=0)
    same = labels[:, None] == labels[None]
    positive = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    # The sorted negatives of each anchor; the rest of the row is infinite and not used.
    negatives = distances.masked_fill(same, torch.inf).sort(dim=1).values
    found = negatives.detach()
    limit = (distances + margin).detach()
    last = torch.minimum(torch.searchsorted(found, limit), (~same).sum(dim=1, keepdim=True))
    first = torch.searchsorted(found, distances.detach().contiguous(), right=True)
    first = torch.minimum(first, last) if mining == "semi_hard" else torch.zeros_like(last)
    running = F.pad(negatives.masked_fill(negatives.isinf(), 0.0).cumsum(dim=1), (1, 0))
    nearer = running.gather(1, last) - running.gather(1, first)
    losses = (last - first) * (distances + margin) - nearer
    chosen = (last - first) if mining == "semi_hard" else (~same).sum(dim=1, keepdim=True).expand_as(same)
    count = (chosen * positive).sum().clamp(min=1)
    unknown = 0 * unit.sum()  # NaN if any feature is NaN, even if no triplet holds its sample
    return losses.masked_fill(~positive, 0.0).sum() / count + unknown


class TripletLoss(Loss):
    r"""Cross-entropy, and FaceNet's triplet loss over the triplets of a batch.

    L = w_CE mean_i CE_i + w mean max(0, ||a - p||^2 - ||a - n||^2 + margin), see :func:`triplet`

    Source: Schroff, Kalenichenko, Philbin (2015), Eq. 3, which has no cross-entropy.

    Args:
        margin: Of squared distances between unit vectors, above 0; 0.2 in the paper.
        mining: ``"semi_hard"`` as there, or ``"all"``.
        weight: w, at least 0.
        cross_entropy_weight: w_CE, at least 0; 0 is the paper's loss, which does not train the head.

    Shapes:
        outputs.features (B, D), outputs.logits (B, C); labels (B,).

    Raises:
        ValueError: If a number is out of range or `mining` is unknown.

    A batch without two samples of one class, or without two classes, has no triplet: the term is 0. Triplets are
    formed within a batch, under torch.distributed over the batches of all processes, so many classes need large ones.

    Misleads while training: each batch has other semi-hard triplets, so their mean need not fall.

    >>> outputs = Outputs(torch.rand(4, 2), torch.zeros(4, 3), torch.nn.Identity())
    >>> list(TripletLoss()(outputs, torch.tensor([0, 1, 2, 0])).terms)
    ['cross_entropy', 'triplet']
    """

    def __init__(
        self,
        margin: float = 0.2,
        mining: Mining = "semi_hard",
        weight: float = 1.0,
        cross_entropy_weight: float = 1.0,
    ) -> None:
        super().__init__()
        check_positive("margin", margin)
        check_choice("mining", mining, ("semi_hard", "all"))
        check_non_negative("weight", weight)
        check_non_negative("cross_entropy_weight", cross_entropy_weight)
        self.margin, self.mining = margin, mining
        self.weight, self.cross_entropy_weight = weight, cross_entropy_weight

    @property
    def _trains_head(self) -> bool:  # type: ignore[override]
        return self.cross_entropy_weight > 0

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """Terms ``cross_entropy``, unless its weight is 0, and ``triplet``."""
        check_labels(outputs.logits, labels)
        features, classes, share = joint_batch(outputs.features, labels)
        mean = weighted_gradient(triplet(features, classes, self.margin, self.mining), share)
        terms = {"triplet": self.weight * mean}
        return with_cross_entropy(terms, self.cross_entropy_weight, outputs, labels)
