"""Whether labels are one class for each sample."""

import torch
from torch import Tensor


def check_class_numbers(labels: Tensor, samples: int, classes: int) -> None:
    """Refuse labels that are not one of the classes for each sample.

    Whether they lie in range is looked at on the CPU alone: elsewhere looking would wait for the device at every
    step, and torch itself stops there. Nor is it looked at while a step is traced or compiled.

    Raises:
        TypeError: If they are not whole numbers of 64 bits.
        ValueError: If they are not as many as samples, or one is no class.

    >>> check_class_numbers(torch.tensor([0, 3]), 2, 3)
    Traceback (most recent call last):
        ...
    ValueError: `labels` must lie in 0 .. 2, because there are 3 classes; got 0 .. 3. Number the classes from 0.
    """
    if labels.dtype != torch.int64:
        raise TypeError(f"`labels` must be int64 class numbers; got {labels.dtype}. Write labels.long().")
    if labels.shape != (samples,):
        raise ValueError(
            f"`labels` must have shape ({samples},), one for each sample; got {tuple(labels.shape)}. "
            "One-hot labels: labels.argmax(1)."
        )
    traced = type(labels) is not Tensor or torch.compiler.is_compiling()
    if samples == 0 or labels.device.type != "cpu" or traced:
        return
    smallest, largest = (int(end) for end in torch.aminmax(labels))
    if smallest < 0 or largest >= classes:
        raise ValueError(
            f"`labels` must lie in 0 .. {classes - 1}, because there are {classes} classes; got "
            f"{smallest} .. {largest}. Number the classes from 0."
        )
