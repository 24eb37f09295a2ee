"""What every loss asks of its labels."""

from torch import Tensor

from clearance.heads._labels import check_class_numbers


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
