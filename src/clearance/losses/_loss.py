"""The contract of a loss: what it takes, returns and declares."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clearance.losses.watch import TrainingWatch
from clearance.tensors import GivenOutputs, LossTerms, Outputs, check_class_numbers


class Loss(nn.Module):
    """Turns a batch's outputs and labels into named loss terms.

    A subclass implements ``forward(outputs, labels) -> LossTerms``. Its parameters are put into the
    optimiser with the model's, and its parameters and buffers into the same checkpoint.

    It is called with (outputs, labels), or without a Classifier with (logits, labels) or (features, logits, labels), if
    it reads no more than these.

    Attributes:
        layers: Names of the activations that ``forward`` reads from ``outputs.activations``.
        reads_logits_only: Whether ``forward`` uses only ``outputs.logits``; it must then accept logits of
            shape (K, B, C) and average over K. Other losses are called once per head.
        sample_loss: The loss of each sample, from logits (m, C) and labels (m,). Heads that are trained on fixed
            features (FOCA's weak heads and its final one) use it; None is softmax cross-entropy.

    >>> from torch.nn.functional import cross_entropy
    >>> class Smoothed(Loss):
    ...     def forward(self, outputs, labels):
    ...         return LossTerms({"smoothed": cross_entropy(outputs.logits, labels, label_smoothing=0.1)})
    >>> Smoothed().layers
    ()
    >>> Smoothed()(torch.zeros(2, 4), torch.tensor([0, 3])).total    # log 4
    tensor(1.3863)
    """

    layers: Sequence[str] = ()
    reads_logits_only: bool = False
    sample_loss: Callable[[Tensor, Tensor], Tensor] | None = None
    _watched = True  # a part of a sum is not

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call ``forward`` with (outputs, labels), (logits, labels) or (features, logits, labels); watch for failures.

        Raises:
            TypeError: If the loss reads more than the tensors that were given, or returns no LossTerms.

        Warns:
            TrainingWarning: In training mode, with gradients: see :class:`~clearance.losses.watch.TrainingWatch`.
        """
        if given and isinstance(given[0], Tensor):
            given = _gathered(*given, *(named.pop("labels") for _ in range("labels" in named)))
        terms = super().__call__(*given, **named)
        if not isinstance(terms, LossTerms):
            raise TypeError(
                f"forward of {type(self).__name__} must return LossTerms({{'name': loss}}); got {type(terms).__name__}."
            )
        if self.training and self._watched and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self._watch.note(
                given[0] if given else named["outputs"],
                given[1] if len(given) > 1 else named["labels"],
                terms,
            )
        return terms

    @property
    def _watch(self) -> TrainingWatch:
        """Made on first use, because a subclass need not call our ``__init__``."""
        watch: TrainingWatch = self.__dict__.setdefault("_watch_of_this", TrainingWatch())
        return watch

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """The loss of a batch: named 0-dim terms, already weighted, averaged over samples."""
        raise NotImplementedError

    def after_step(self, outputs: Outputs, labels: Tensor) -> None:
        """Called without gradient after each optimiser step; does nothing by default."""


def _gathered(*tensors: Tensor) -> tuple[Outputs, Tensor]:
    """(logits, labels) or (features, logits, labels) as outputs and labels.

    Raises:
        TypeError: If there are fewer or more tensors.
    """
    if len(tensors) not in (2, 3):
        raise TypeError(
            "a loss must be called with (model.outputs(images, loss.layers), labels), (logits, labels) or (features, "
            f"logits, labels); got {len(tensors)} arguments."
        )
    *features, logits, labels = tensors
    return GivenOutputs(logits, *features), labels


def check_labels(logits: Tensor, labels: Tensor) -> None:
    """Check that labels hold one class for every sample of logits (B, C), or (K, B, C) of several heads.

    Raises:
        TypeError: If they are not int64.
        ValueError: If labels and samples differ in number, there is none, or a label is not a class.

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
