"""Gradients of score gaps where they are known without a sweep: at the logits, and at features under a linear head."""

from collections.abc import Sequence
from functools import cached_property

from torch import Tensor

from clearance.objectives._class_pairs import Score, gap_cotangents, wide
from clearance.objectives._margin_layers import affine_weight
from clearance.tensors import Outputs

HEAD = "head"


def before_head(layers: Sequence[str]) -> bool:
    """Whether none of the layers is the head or a part of it, so that all of them lead to the features.

    >>> before_head(["input", "extractor.head"]), before_head(["head.0"])
    (True, False)
    """
    return not any(name.split(".")[0] == HEAD for name in layers)


class GapGradients:
    """Gradients of the gaps s_y - s_i of k rivals at the two last layers, each computed when it is asked for.

    Args:
        outputs: Of a classifier; their head made the logits.
        labels: (B,).
        rivals: (k, B).
        score: s is the logit, or its softmax over classes.
        full: Whether they carry a graph of their own.
    """

    def __init__(
        self, outputs: Outputs, labels: Tensor, rivals: Tensor, score: Score, *, full: bool = False
    ) -> None:
        self._outputs, self._labels, self._rivals, self._score = outputs, labels, rivals, score
        self._logits = outputs.logits if full else outputs.logits.detach()
        weight = affine_weight(outputs.head)
        self._weight = weight if weight is None or full else weight.detach()

    @cached_property
    def at_logits(self) -> Tensor:
        """(k, B, C)."""
        return gap_cotangents(self._logits, self._labels, self._rivals, self._score)

    @property
    def entries_at_logits(self) -> Tensor:
        """The entries of `at_logits` that are not zero, (k, B, 2 or C): with many classes all but two of them are."""
        if self._score == "softmax":
            return self.at_logits
        return wide(self._logits).new_tensor([1.0, -1.0]).expand(*self._rivals.shape, 2)

    @cached_property
    def at_features(self) -> Tensor | None:
        """(k, B, D), or None where the head is not linear.

        W_y - W_i for logits: rows are picked, so that nothing here grows with the number of classes.
        """
        if self._weight is None:
            return None
        if self._score == "logits":
            return wide(self._weight)[self._labels] - wide(self._weight)[self._rivals]
        return self.at_logits @ wide(self._weight)

    def nearest_to(self, layers: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Where a backward sweep to these layers may begin, as far back as is known, and the gradient there."""
        if self.at_features is not None and before_head(layers):
            return self._outputs.features, self.at_features
        return self._outputs.logits, self.at_logits
