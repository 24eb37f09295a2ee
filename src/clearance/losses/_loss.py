"""The contract of a loss."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from clearance.tensors import LossTerms, Outputs, check_class_numbers


def check_labels(logits: Tensor, labels: Tensor) -> None:
    """Refuses labels that are not one class for every sample of logits (B, C), or (K, B, C) of several heads.

    Raises:
        TypeError: If they are not whole numbers of 64 bits.
        ValueError: If they are not as many as samples, there is none, or one is no class.

    >>> import torch
    >>> check_labels(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    Traceback (most recent call last):
        ...
    ValueError: a batch must hold at least 1 sample, because its loss is a mean; got none.
    """
    samples, classes = logits.shape[-2:]
    check_class_numbers(labels, samples, classes)
    if samples == 0:
        raise ValueError("a batch must hold at least 1 sample, because its loss is a mean; got none.")


class Loss(nn.Module):
    """Turns a batch's outputs and labels into named loss terms.

    A subclass implements ``forward(outputs, labels) -> LossTerms``. Its parameters are put into the
    optimiser with the model's, and its parameters and buffers into the same checkpoint.

    Attributes:
        layers: Names of the activations that ``forward`` reads from ``outputs.activations``.
        reads_logits_only: Whether ``forward`` uses ``outputs.logits`` alone; then it must accept logits of
            shape (K, B, C) and average over K. Others are called once per head.
        sample_loss: The loss of logits (m, C) and labels (m,) sample by sample, by which heads are trained
            alone (FOCA's weak heads and its last one); None is softmax cross-entropy.

    >>> from torch.nn.functional import cross_entropy
    >>> class Smoothed(Loss):
    ...     def forward(self, outputs, labels):
    ...         return LossTerms({"smoothed": cross_entropy(outputs.logits, labels, label_smoothing=0.1)})
    >>> Smoothed().layers
    ()
    """

    layers: Sequence[str] = ()
    reads_logits_only: bool = False
    sample_loss: Callable[[Tensor, Tensor], Tensor] | None = None

    def __call__(self, *given: Any, **named: Any) -> Any:
        """As of any module; what a subclass takes and returns is checked."""
        if given and isinstance(given[0], Tensor):
            raise TypeError(
                f"{type(self).__name__} takes what model.outputs(images, loss.layers) returns, and labels; got a "
                "tensor in place of the first. A loss of logits alone would be torch.nn.functional.cross_entropy."
            )
        loss = super().__call__(*given, **named)
        if not isinstance(loss, LossTerms):
            raise TypeError(
                f"forward of {type(self).__name__} must return LossTerms({{'name': loss}}); got {type(loss).__name__}."
            )
        return loss

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """The loss of a batch: named 0-dim terms, already weighted, averaged over samples."""
        raise NotImplementedError

    def after_step(self, outputs: Outputs, labels: Tensor) -> None:
        """Called without gradient after the optimiser moved; by default does nothing."""
