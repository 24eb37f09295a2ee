"""How fast rivals of the label gain on it: logit gaps with their gradients, as a search for a boundary needs them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearance.attacks.attack import Batch
from clearance.attacks.losses import logit_margin
from clearance.attacks.queries import gradients_of, logits_of


@dataclass(frozen=True)
class Slopes:
    """The classifier around some points, to first order.

    Args:
        broken: Where the answer at a point is wrong, (B,).
        gaps: Logit of a rival minus that of the label, the best rival first, (K, B).
        gradients: Of those gaps, (K, B, ...); 0 where one is not a number.
    """

    broken: Tensor
    gaps: Tensor
    gradients: Tensor


def rival_slopes(batch: Batch, points: Tensor, rivals: int) -> Slopes:
    """Gaps to the `rivals` wrong classes with the largest logits, and their gradients at `points`.

    Gradients of a logit gap know no saturation, and the scale of logits cancels in every step made of them.
    """
    logits = logits_of(batch.model, points, chunk=batch.chunk)
    others = logits.scatter(1, batch.labels[:, None], -torch.inf)
    best = others.topk(min(rivals, logits.shape[1] - 1), dim=1).indices
    pairs = [_rival_slope(batch, points, rival) for rival in best.T]
    gaps, gradients = (torch.stack(part) for part in zip(*pairs, strict=True))
    return Slopes(batch.broken(logits), gaps, gradients)


def margin_slope(batch: Batch, points: Tensor) -> Slopes:
    """The same for the best rival alone (K = 1), in one forward and one backward pass."""
    logits, gradients = batch.ascent(points, "logit_margin")
    gaps = logit_margin(logits, batch.labels).to(points.dtype)
    return Slopes(batch.broken(logits), _finite(gaps)[None], _finite(gradients)[None])


def _rival_slope(batch: Batch, points: Tensor, rival: Tensor) -> tuple[Tensor, Tensor]:
    pair = torch.stack([rival, batch.labels], dim=1)

    def gap(logits: Tensor, rows: slice) -> Tensor:
        high, low = logits.gather(1, pair[rows]).unbind(dim=1)
        return high - low

    logits, gradients = gradients_of(batch.model, points, gap, chunk=batch.chunk)
    return _finite(gap(logits, slice(None)).to(points.dtype)), _finite(gradients)


def _finite(numbers: Tensor) -> Tensor:
    return numbers.nan_to_num(0.0, 0.0, 0.0)
