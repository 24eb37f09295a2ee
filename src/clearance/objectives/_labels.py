"""What every loss asks of its labels."""

import torch
from torch import Tensor


def check_labels(logits: Tensor, labels: Tensor) -> None:
    """Refuses labels that are not one class for every sample of logits (B, C), or (K, B, C) of several heads.

    Whether they lie in range is looked at on the CPU alone: elsewhere looking would wait for the device at every
    step, and torch itself stops there. Nor is it looked at while a step is traced or compiled.

    Raises:
        TypeError: If they are not whole numbers of 64 bits.
        ValueError: If they are not as many as samples, there is none, or one is no class.

    >>> check_labels(torch.zeros(2, 3), torch.tensor([0, 3]))
    Traceback (most recent call last):
        ...
    ValueError: `labels` must lie in 0 .. 2, because there are 3 logits; got 0 .. 3. Number the classes from 0.
    """
    if labels.dtype != torch.int64:
        raise TypeError(f"`labels` must be int64 class numbers; got {labels.dtype}. Write labels.long().")
    samples, classes = logits.shape[-2:]
    if labels.shape != (samples,):
        raise ValueError(
            f"`labels` must have shape ({samples},), one for each sample; got {tuple(labels.shape)}. "
            "One-hot labels: labels.argmax(1)."
        )
    if samples == 0:
        raise ValueError("a batch must hold at least 1 sample, because its loss is a mean; got none.")
    if labels.device.type != "cpu" or type(labels) is not Tensor or torch.compiler.is_compiling():
        return
    smallest, largest = (int(end) for end in torch.aminmax(labels))
    if smallest < 0 or largest >= classes:
        raise ValueError(
            f"`labels` must lie in 0 .. {classes - 1}, because there are {classes} logits; got "
            f"{smallest} .. {largest}. Number the classes from 0."
        )
