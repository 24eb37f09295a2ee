"""Center loss: cross-entropy, and features pulled to their class centre, Wen et al. (2016)."""

from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from clearance._checks import check_choice, check_count, check_fraction, check_non_negative
from clearance._precision import at_least_float32
from clearance._processes import process_count
from clearance.heads.gaussian_mixture import own_half_distance
from clearance.losses._loss import Loss, check_labels
from clearance.losses.cross_entropy import with_cross_entropy
from clearance.tensors import LossTerms, Outputs

CentreUpdate = Literal["paper", "gradient"]


def centre_shift(features: Tensor, labels: Tensor, centres: Tensor) -> Tensor:
    r"""The step that is subtracted from every centre: sum_i 1(y_i = j) (c_j - x_i) / (1 + n_j), 0 for absent classes.

    Wen et al. (2016), Eq. 4. Under torch.distributed, sums and counts are taken over all processes. Samples that are
    not finite are left out.

    Features are (B, D), labels (B,), centres and the result (K, D), in the dtype of `centres`.

    >>> centre_shift(torch.tensor([[2.0]]), torch.tensor([0]), torch.zeros(2, 1)).flatten().tolist()
    [-1.0, 0.0]
    """
    classes = len(centres)
    # a sample that is not finite would stay in its centre for ever: it goes to an extra row, which is cut off
    rows = torch.where(features.isfinite().all(dim=1), labels, classes)
    counts = torch.bincount(rows, minlength=classes + 1)[:classes].to(centres.dtype)
    offsets = centres[labels] - features.to(centres.dtype)
    sums = centres.new_zeros(classes + 1, centres.shape[1]).index_add_(0, rows, offsets)[:classes]
    if process_count() > 1:
        both = torch.cat([sums, counts[:, None]], dim=1)
        dist.all_reduce(both)
        sums, counts = both[:, :-1], both[:, -1]
    return sums / (1 + counts)[:, None]


class CenterLoss(Loss):
    r"""Cross-entropy, and half the squared distance of each feature vector from the centre of its class.

    L = w_CE mean_i CE_i + w mean_i 1/2 ||x_i - c_{y_i}||^2

    Source: Wen, Zhang, Li, Qiao (2016), "A discriminative feature learning approach for deep face recognition"; a sum
    over samples in the paper, a mean here as in its authors' code. In contrast to `GaussianMixtureLoss`, the head's
    weights are not the centres.

    Args:
        in_features: D, at least 1.
        classes: K, at least 1.
        weight: w, at least 0; 0.01 as the authors' MNIST example (0.008 for faces).
        rate: Share of the paper's shift that a centre moves after each step, in (0, 1]; 0.5 in the paper. One
            sample moves its centre by half of that share of its offset. It does not depend on `weight`.
        update: ``"paper"`` moves centres after each step by :func:`centre_shift`, outside the optimiser;
            ``"gradient"`` makes them parameters, which the optimiser moves (`rate` is then not used).
        cross_entropy_weight: w_CE, at least 0.

    Shapes:
        outputs.features (B, D), outputs.logits (B, K); labels (B,).

    Raises:
        ValueError: If a number is out of range; in ``forward``, if features are not of width D, or a label has no
            centre.

    Centres start at 0. Your own loop must call ``after_step``, or they stay there; after 50 batches without it a
    `TrainingWarning` says so.

    Misleads without cross-entropy: its optimum is then all features at one point.

    >>> loss = CenterLoss(2, 3)(Outputs(torch.ones(4, 2), torch.zeros(4, 3), nn.Identity()), torch.tensor([0, 1, 2, 0]))
    >>> round(float(loss.terms["center"]), 4)
    0.01
    """

    centres: Tensor

    def __init__(
        self,
        in_features: int,
        classes: int,
        weight: float = 0.01,
        rate: float = 0.5,
        update: CentreUpdate = "paper",
        cross_entropy_weight: float = 1.0,
    ) -> None:
        super().__init__()
        check_count("in_features", in_features)
        check_count("classes", classes)
        check_non_negative("weight", weight)
        check_fraction("rate", rate, open_below=True)
        check_choice("update", update, ("paper", "gradient"))
        check_non_negative("cross_entropy_weight", cross_entropy_weight)
        self.in_features, self.classes, self.weight, self.rate = in_features, classes, weight, rate
        self.update, self.cross_entropy_weight = update, cross_entropy_weight
        start = torch.zeros(classes, in_features)
        if update == "gradient":
            self.centres = nn.Parameter(start)
        else:
            self.register_buffer("centres", start)

    @property
    def _trains_head(self) -> bool:  # type: ignore[override]
        return self.cross_entropy_weight > 0

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """Terms ``cross_entropy``, unless its weight is 0, and ``center``."""
        check_labels(outputs.logits, labels)
        features = outputs.features
        if features.shape[1:] != (self.in_features,):
            raise ValueError(
                f"features must be (B, {self.in_features}); got {tuple(features.shape)}. Give the loss the network's "
                f"number of features."
            )
        distance = own_half_distance(at_least_float32(features), at_least_float32(self.centres), labels)
        terms = {"center": self.weight * distance.mean()}
        return with_cross_entropy(terms, self.cross_entropy_weight, outputs, labels)

    def _weights_of_classes(self, outputs: Outputs) -> Tensor | None:
        del outputs
        return self.centres if self.update == "gradient" and self.weight > 0 else None

    @property
    def _without_steps(self) -> str | None:  # type: ignore[override]
        if self.update == "gradient":
            return None
        return "the centres have not moved, so features are only pulled to where centres were"

    @torch.no_grad()
    def after_step(self, outputs: Outputs | Tensor, labels: Tensor) -> None:
        """Move the centres of the classes in the batch if `update` is ``"paper"``; features may stand for outputs."""
        super().after_step(outputs, labels)  # type: ignore[arg-type]  # reads neither
        if self.update == "paper":
            features = outputs if isinstance(outputs, Tensor) else outputs.features
            shift = centre_shift(features, labels, self.centres)
            self.centres.sub_(shift, alpha=self.rate)
