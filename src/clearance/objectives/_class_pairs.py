"""The gap between the scores of a sample's own class and of a rival, and its gradient in the logits."""

from typing import Any, Literal

import torch
from torch import Tensor

Score = Literal["logits", "softmax"]


def wide(tensor: Tensor) -> Tensor:
    """At least float32."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def class_gaps(logits: Tensor, labels: Tensor, rivals: Tensor, score: Score) -> Tensor:
    """s_y - s_i for each rival i: positive where the sample is on its own side.

    Args:
        logits: (B, C).
        labels: y, (B,).
        rivals: i, (k, B), none equal to the label.
        score: s is the logit, or its softmax over classes.

    Returns:
        (k, B), at least float32.

    >>> class_gaps(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0]), torch.tensor([[1], [2]]), "logits")
    tensor([[2.],
            [3.]])
    """
    if score == "softmax" and logits.requires_grad:
        return _SoftmaxGaps.apply(wide(logits), labels, rivals)
    return _gaps(wide(logits) if score == "logits" else wide(logits).softmax(dim=1), labels, rivals)


def _gaps(scores: Tensor, labels: Tensor, rivals: Tensor) -> Tensor:
    return scores.gather(1, labels.unsqueeze(1)).mT - scores.gather(1, rivals.mT).mT


class _SoftmaxGaps(torch.autograd.Function):
    """Gaps of probabilities whose gradient is :func:`gap_cotangents`, as that in a distance's denominator is.

    Softmax's own derivative subtracts p_y from 1, and so has no digit left where the network is sure: of a rival that
    is ahead by 17 the gap would pull the label up and nothing down.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, rivals: Tensor) -> Tensor:
        ctx.save_for_backward(logits, labels, rivals)
        return _gaps(logits.softmax(dim=1), labels, rivals)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None]:
        logits, labels, rivals = ctx.saved_tensors
        each = gap_cotangents(logits, labels, rivals, "softmax")
        return (slopes[0].unsqueeze(-1) * each).sum(dim=0), None, None


def gap_cotangents(logits: Tensor, labels: Tensor, rivals: Tensor, score: Score) -> Tensor:
    """The gradient of each gap in the logits: what a backward sweep starts from, (k, B, C).

    e_y - e_i for logits, and p * (e_y - e_i - (p_y - p_i)) for softmax probabilities p.

    Entry y of the second is written p_y (sum_{j != y} p_j + p_i), and entry i alike, because 1 - p_y would
    lose every digit where the network is sure.

    Args:
        logits: (B, C).
        labels: (B,).
        rivals: (k, B).
        score: As in :func:`class_gaps`.
    """
    scores = wide(logits)
    own = labels.expand_as(rivals).unsqueeze(-1)
    other = rivals.unsqueeze(-1)
    zeros = torch.zeros((*rivals.shape, logits.shape[1]), dtype=scores.dtype, device=logits.device)
    if score == "logits":
        one = zeros.new_ones(()).expand_as(own)
        return zeros.scatter_(2, own, one).scatter_(2, other, -one)
    probabilities = scores.softmax(dim=1)
    each = probabilities.expand_as(zeros)
    p_y, p_i = each.gather(2, own), each.gather(2, other)
    others_y = each.scatter(2, own, 0.0).sum(dim=2, keepdim=True)
    others_i = each.scatter(2, other, 0.0).sum(dim=2, keepdim=True)
    rest = -each * (p_y - p_i)
    return rest.scatter(2, own, p_y * (others_y + p_i)).scatter(2, other, -p_i * (others_i + p_y))
