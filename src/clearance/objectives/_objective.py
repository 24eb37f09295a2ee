"""The contract of an objective."""

from collections.abc import Sequence

from torch import Tensor, nn

from clearance.tensors import LossTerms, Outputs


class Objective(nn.Module):
    """Turns a batch's outputs and labels into named loss terms.

    A subclass implements ``forward(outputs, labels) -> LossTerms``. Its parameters are put into the
    optimiser with the model's, and its parameters and buffers into the same checkpoint.

    Attributes:
        layers: Names of the activations that ``forward`` reads from ``outputs.activations``.
        reads_logits_only: Whether ``forward`` uses ``outputs.logits`` alone; then it must accept logits of
            shape (K, B, C) and average over K. Others are called once per head.
    """

    layers: Sequence[str] = ()
    reads_logits_only: bool = False

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """The loss of a batch: named 0-dim terms, already weighted, averaged over samples."""
        raise NotImplementedError

    def after_step(self, outputs: Outputs, labels: Tensor) -> None:
        """Called without gradient after the optimiser moved; by default does nothing."""
