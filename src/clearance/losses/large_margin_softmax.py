"""A margin on the angle between features and the true class's weight: L-Softmax, Liu et al. (2016)."""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearance.heads.stack import linear_layers
from clearance.losses._loss import Loss, check_labels
from clearance.losses.schedules import InverseDecay, scheduled
from clearance.tensors import LossTerms, Outputs

_MNIST_DECAY = InverseDecay(1000.0, 2.5e-5, 35.0)  # the softmax weight in the authors' MNIST file
_TINY = 1e-12  # smallest norm of a vector that has a direction


def angular_margin(cosine: Tensor, multiplier: int) -> Tensor:
    r"""psi(theta) = (-1)^k cos(m theta) - 2k for theta in [k pi / m, (k + 1) pi / m]: continuous, decreasing.

    Liu et al. (2016), Eq. 6. cos(m theta) is computed as the Chebyshev polynomial T_m of the cosine, without the
    angle, so the gradient is finite at theta = 0 and pi too; k is a constant in the gradient.

    `cosine` is in [-1, 1], of any shape; m, a whole number, is at least 1, which gives the cosine itself.

    >>> angular_margin(torch.tensor([1.0, 0.0, -1.0]), 2).tolist()
    [1.0, -1.0, -3.0]
    """
    before, multiple = torch.ones_like(cosine), cosine
    for _ in range(multiplier - 1):
        before, multiple = multiple, 2 * cosine * multiple - before
    bounds = [math.cos(k * math.pi / multiplier) for k in range(1, multiplier)]
    k = sum((cosine.detach() < bound).to(cosine.dtype) for bound in bounds)
    return multiple * (1 - 2 * (k % 2)) - 2 * k if bounds else multiple


class LargeMarginSoftmaxLoss(Loss):
    r"""Cross-entropy whose true logit is lowered as if the angle to its weight were m times as wide.

    f_y = z_y + ||W_y|| ||x|| (psi(theta_y) - cos theta_y) / (1 + beta),    f_j = z_j elsewhere

    Source: Liu, Wen, Yu, Yang (2016), "Large-Margin Softmax Loss for Convolutional Neural Networks", Eq. 4 to 6;
    beta, lambda in the code released with it, weighs softmax against the margin. Heads have no bias there; a bias is
    added unchanged here.

    Args:
        multiplier: m in 1, 2, 3, 4; 4 as the authors' MNIST file (2 in that for CIFAR-10); 1 is softmax.
        softmax_weight: beta, at least 0: a number or :class:`~clearance.losses.schedules.InverseDecay`. The default
            is the schedule of the authors' MNIST file; without it training often fails.

    Shapes:
        outputs.head one linear layer, outputs.features (B, D), outputs.logits (B, C); labels (B,).

    Raises:
        TypeError: If `softmax_weight` is not a number or InverseDecay; in ``forward``, if the head is not one linear
            layer.
        ValueError: If a number is out of range, or a setting of `softmax_weight` is unknown or missing.

    A schedule counts steps by ``after_step``, which your own loop must call as ``fit`` does.

    Misleads across runs of different length: with a schedule, the loss rises while the softmax weight decays. The
    default schedule is nearly softmax for the first thousands of steps (a weight of 896 after 126); a short run needs
    another, as ``InverseDecay(start=10.0, rate=0.036, power=1.0, least=1.0)`` of the digits recipe.

    >>> head, features = nn.Linear(2, 3, bias=False), torch.ones(4, 2)
    >>> outputs, labels = Outputs(features, head(features), head), torch.tensor([0, 1, 2, 0])
    >>> bool(LargeMarginSoftmaxLoss(4, 0.0)(outputs, labels).total > LargeMarginSoftmaxLoss(1)(outputs, labels).total)
    True
    """

    steps: Tensor

    def __init__(
        self,
        multiplier: int = 4,
        softmax_weight: float | InverseDecay | Mapping[str, float] = _MNIST_DECAY,
    ) -> None:
        super().__init__()
        if isinstance(multiplier, bool) or not isinstance(multiplier, int) or multiplier not in (1, 2, 3, 4):
            raise ValueError(f"`multiplier` must be a whole number, 1, 2, 3 or 4; got {multiplier!r}.")
        self.multiplier = multiplier
        self.softmax_weight = scheduled("softmax_weight", softmax_weight, InverseDecay)
        if not isinstance(self.softmax_weight, float):
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    @property
    def current_softmax_weight(self) -> float:
        """The weight of softmax against the margin at this step."""
        weight = self.softmax_weight
        return weight(int(self.steps)) if callable(weight) else float(weight)

    @property
    def _without_steps(self) -> str | None:  # type: ignore[override]
        if "steps" not in self._buffers:
            return None
        return f"the weight of softmax is still {self.current_softmax_weight:g}, as at the start"

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """One term, ``large_margin_softmax``."""
        check_labels(outputs.logits, labels)
        weight, logits = _weight_of(outputs.head), outputs.logits
        dtype = torch.promote_types(torch.promote_types(logits.dtype, outputs.features.dtype), torch.float32)
        own, x = weight[labels].to(dtype), outputs.features.to(dtype)
        size = _norm(own) * _norm(x)
        cosine = ((own * x).sum(dim=1) / size.clamp(min=_TINY**2)).clamp(-1, 1)
        share = 1 / (1 + self.current_softmax_weight)
        lowered = size * (angular_margin(cosine, self.multiplier) - cosine) * share
        scores = logits.to(dtype).scatter_add(1, labels[:, None], lowered[:, None])
        return LossTerms({"large_margin_softmax": F.cross_entropy(scores, labels)})

    @torch.no_grad()
    def after_step(self, outputs: Outputs, labels: Tensor) -> None:
        """Count the step if the softmax weight follows a schedule."""
        super().after_step(outputs, labels)
        if "steps" in self._buffers:
            self.steps += 1


def _norm(vectors: Tensor) -> Tensor:
    """Euclidean norms of rows, with gradient 0 at 0 in place of NaN."""
    return vectors.square().sum(dim=1).clamp(min=_TINY**2).sqrt()


def _weight_of(head: object) -> Tensor:
    names = linear_layers(head) if isinstance(head, nn.Module) else None
    if names is None or len(names) != 1:
        kind = type(head).__name__
        raise TypeError(
            "LargeMarginSoftmaxLoss needs a head that is one linear layer, because it reads the angle between "
            f"features and a class's weight; got {kind}. Put the layers before the last into the extractor (hidden: [] "
            "in a recipe)."
        )
    assert isinstance(head, nn.Module)
    return head.get_parameter(names[0][0])
