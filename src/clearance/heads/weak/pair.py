"""Weak heads on one sample of each of two classes: the setting of FOCA's proposition."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearance._checks import check_positive
from clearance.heads.ridge import pair_head
from clearance.heads.train import TrainedHeads
from clearance.heads.weak._linear import check_batches, linear_names, solved_heads


@dataclass(frozen=True)
class PairHeads:
    r"""Linear heads for two classes, each the closed form for one sample of either class.

    s(f) = theta_bar . f + theta_0,   theta_bar = 2 (f_1 - f_0) / (lambda + ||f_1 - f_0||^2),   s = 0 halfway,

    for targets -1 (class 0, features f_0) and +1 (class 1, features f_1). A model's head has two logits, so
    the head that is returned gives z = ((1 - s) / 2, (1 + s) / 2). That is the same head: z_1 - z_0 = s; one-hot
    targets are ((1 - t) / 2, (1 + t) / 2); and ||z - e_y||^2 = (s - t)^2 / 2, so that gradients with respect
    to features are half of those in the paper. Ridge regression of one-hot targets under the same penalty
    gives exactly these two logits, because it is linear in the targets.

    Source: Sato et al. (2019), conditions C1 to C5 and Eq. 11; :func:`clearance.heads.ridge.pair_head`.

    Args:
        penalty: lambda of condition C5, above 0, in squared units of the features; 4 times that of Eq. 4.
            No default: it depends on the unit of the features, and the paper gives no value.

    Raises:
        ValueError: If `penalty` is not above 0.

    The penalty is fixed, as in the proof. Under it classes contract relative to their distance, but features
    grow slowly without bound: there is no finite optimum. `RidgeHeads` with one image per class is the same head
    for any number of classes, with a penalty that can follow the scale.

    >>> features, labels = torch.tensor([[[1.0, 0.0], [3.0, 0.0]]]), torch.tensor([[0, 1]])
    >>> drawn = PairHeads(1e-6).draw(nn.Linear(2, 2), features, labels, torch.Generator())
    >>> drawn.stack(torch.tensor([[1.0, 7.0], [2.0, 7.0], [3.0, 7.0]]))[0].round(decimals=3).abs()
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000],
            [0.0000, 1.0000]])
    """

    penalty: float

    def __post_init__(self) -> None:
        check_positive("penalty", self.penalty)

    @torch.no_grad()
    def draw(
        self,
        architecture: nn.Module,
        features: Tensor,
        labels: Tensor,
        generator: torch.Generator,
        least_unit: Tensor | None = None,
    ) -> TrainedHeads:
        """K heads, one for each pair.

        Args:
            architecture: One nn.Linear(D, 2) with a bias.
            features: (K, 2, D); head k is that of the pair ``features[k]``.
            labels: (K, 2), one 0 and one 1 in every row, in any order.
            generator: Not used: the solution is not random.
            least_unit: Not used: the fixed penalty already weakens heads of shrinking features.

        Raises:
            ValueError: If the head is not one linear layer with two outputs, or a batch is not one sample of
                each class.
        """
        del generator, least_unit
        names = linear_names(architecture, "PairHeads")
        classes = architecture.get_parameter(names[0]).shape[0]
        if classes != 2:
            raise ValueError(
                f"PairHeads need a head with 2 outputs, one for each class; got {classes}. For more classes use "
                "RidgeHeads with per_class=1."
            )
        check_batches(features, labels, classes)
        if features.shape[1] != 2 or not bool((labels.sum(dim=1) == 1).all()):
            raise ValueError(
                "PairHeads need one sample of class 0 and one of class 1 for every head; got labels "
                f"{labels.tolist()[:3]} for the first heads. Set per_class=1."
            )
        kept, targets = features.double(), 2.0 * labels - 1.0
        theta_bar, theta_0 = pair_head(kept[:, 0], kept[:, 1], targets[:, 0], targets[:, 1], self.penalty)
        signs = torch.tensor([-0.5, 0.5], dtype=kept.dtype, device=kept.device)
        weight, bias = signs[:, None] * theta_bar[:, None], 0.5 + signs * theta_0[:, None]
        return solved_heads(architecture, names, weight, bias, like=features)
