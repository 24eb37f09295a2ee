"""The multi-class hinge: how far the true logit is short of a margin over the others."""

import math
from typing import Literal

import torch
from torch import Tensor

from clearance._checks import check_choice, check_positive
from clearance._precision import at_least_float32
from clearance.losses._loss import Loss, check_labels
from clearance.tensors import LossTerms, Outputs

HingeForm = Literal["max", "sum"]


def hinge(logits: Tensor, labels: Tensor, margin: float = 1.0, form: HingeForm = "max") -> Tensor:
    """How far the true logit is short of `margin` over the others, for each sample.

    ``"max"``: max(0, margin + max_{i != y} z_i - z_y)         (Crammer & Singer, 2001)
    ``"sum"``: sum_{i != y} max(0, margin + z_i - z_y)         (Weston & Watkins, 1999)

    Logits are (..., B, C), with at least two classes, labels (B,), the same for every leading index of `logits`; the
    result is (..., B), at least float32. `margin` is in units of logits, above 0; for two classes both forms are
    equal.

    Raises:
        ValueError: If there is only one class.

    >>> hinge(torch.tensor([[2.0, 1.5, 1.2]]), torch.tensor([0]))
    tensor([0.5000])
    """
    if logits.shape[-1] < 2:
        raise ValueError(
            f"logits must have at least two classes; got shape {tuple(logits.shape)}. Of one logit make two: 0 and it."
        )
    logits = at_least_float32(logits)
    own = labels.expand(logits.shape[:-1]).unsqueeze(-1)
    short = margin + logits - logits.gather(-1, own)
    if form == "max":
        return torch.relu(short.scatter(-1, own, -math.inf).amax(dim=-1))
    return torch.relu(short).scatter(-1, own, 0.0).sum(dim=-1)


class HingeLoss(Loss):
    """Multi-class hinge loss, averaged over samples (and over heads, where K heads read the features).

    L = mean_i max(0, margin + max_{j != y_i} z_ij - z_{i y_i})       (Crammer-Singer, the default form)

    Source: Crammer & Singer (2001); with ``form="sum"`` Weston & Watkins (1999). Elsayed et al. (2018) compare
    with a hinge loss whose form they do not give.

    Args:
        margin: In units of logits, above 0; 1 as usual.
        form: ``"max"`` uses the highest wrong logit, ``"sum"`` adds the violations of all.

    Shapes:
        outputs.logits (B, C) or (K, B, C); labels (B,).

    Raises:
        ValueError: If `margin` is not above 0 or `form` is unknown.

    Misleads as a margin: scaling the logits meets it without moving a boundary.

    >>> outputs = Outputs(torch.zeros(4, 2), torch.zeros(4, 10), torch.nn.Identity())
    >>> float(HingeLoss()(outputs, torch.arange(4)).total)
    1.0
    """

    reads_logits_only = True

    def __init__(self, margin: float = 1.0, form: HingeForm = "max") -> None:
        super().__init__()
        check_positive("margin", margin)
        check_choice("form", form, ("max", "sum"))
        self.margin, self.form = margin, form

    def sample_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The hinge of each sample; heads on fixed features are trained with it."""
        return hinge(logits, labels, self.margin, self.form)

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """One term, ``hinge``."""
        check_labels(outputs.logits, labels)
        return LossTerms({"hinge": self.sample_loss(outputs.logits, labels).mean()})
