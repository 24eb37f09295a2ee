"""Contrastive loss: pairs of one class pulled together, pairs of two classes pushed apart."""

import torch
import torch.nn.functional as F
from torch import Tensor

from clearance._checks import check_non_negative, check_positive
from clearance._precision import at_least_float32
from clearance.losses._joint import check_features, joint_batch, weighted_gradient
from clearance.losses._loss import Loss, check_labels
from clearance.losses.cross_entropy import with_cross_entropy
from clearance.tensors import LossTerms, Outputs


def contrastive(features: Tensor, labels: Tensor, margin: float = 1.0) -> Tensor:
    r"""The loss of each pair of samples.

    1/2 ||x_i - x_j||^2 for one class,    1/2 max(0, margin - ||x_i - x_j||)^2 for two

    The hinge is on the distance itself, not on its square as in Caffe's older variant.

    Features are (B, D), labels (B,); `margin` is in the features' unit, above 0.

    Returns:
        (B (B - 1) / 2,), pairs (0, 1), (0, 2), ... as torch.pdist lists them, at least float32.

    >>> contrastive(torch.tensor([[0.0], [2.0], [0.5]]), torch.tensor([0, 0, 1]))
    tensor([2.0000, 0.1250, 0.0000])
    """
    check_features(features, labels)
    # Each distance on its own: the gradient at 0 is 0, and small distances are not lost to rounding.
    distances = F.pdist(at_least_float32(features))
    first, second = torch.triu_indices(len(labels), len(labels), 1, device=labels.device)
    same = labels[first] == labels[second]
    return 0.5 * torch.where(same, distances, (margin - distances).clamp(min=0)).square()


class ContrastiveLoss(Loss):
    r"""Cross-entropy, and the contrastive loss averaged over all pairs of a batch.

    L = w_CE mean_i CE_i + w mean_{i<j} 1/2 {||x_i - x_j||^2 or max(0, margin - ||x_i - x_j||)^2}

    Source: Hadsell, Chopra, LeCun (2006), Eq. 4; with softmax Sun et al. (2014, DeepID2), Eq. 3, which Wan et
    al. (2018) cite.

    Args:
        margin: Between two classes, in the features' unit, above 0; the default is our choice.
        weight: w, at least 0; 0.05 as in DeepID2.
        cross_entropy_weight: w_CE, at least 0.

    Shapes:
        outputs.features (B, D), outputs.logits (B, C); labels (B,). A batch of one sample has no pairs: its term
        is 0.

    Raises:
        ValueError: If a number is out of range.

    Costs B^2 D / 2 operations. Under torch.distributed pairs are formed over the batches of all processes; under
    gradient accumulation within each batch.

    Misleads across networks: the margin is in the features' unit.

    >>> outputs = Outputs(torch.zeros(4, 2), torch.zeros(4, 3), torch.nn.Identity())
    >>> list(ContrastiveLoss()(outputs, torch.tensor([0, 1, 2, 0])).terms)
    ['cross_entropy', 'contrastive']
    """

    def __init__(self, margin: float = 1.0, weight: float = 0.05, cross_entropy_weight: float = 1.0) -> None:
        super().__init__()
        check_positive("margin", margin)
        check_non_negative("weight", weight)
        check_non_negative("cross_entropy_weight", cross_entropy_weight)
        self.margin, self.weight, self.cross_entropy_weight = margin, weight, cross_entropy_weight

    @property
    def _trains_head(self) -> bool:  # type: ignore[override]
        return self.cross_entropy_weight > 0

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """Terms ``cross_entropy``, unless its weight is 0, and ``contrastive``."""
        check_labels(outputs.logits, labels)
        features, classes, share = joint_batch(outputs.features, labels)
        losses = contrastive(features, classes, self.margin)
        mean = weighted_gradient(losses.sum() / max(len(losses), 1), share)
        terms = {"contrastive": self.weight * mean}
        return with_cross_entropy(terms, self.cross_entropy_weight, outputs, labels)
