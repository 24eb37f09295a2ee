"""The norms that attacks measure displacements in."""

import math
from typing import Any

import torch
from torch import Tensor

NORMS = (math.inf, 2.0, 1.0)
"""The norms that have a ball here."""


def check_norm(norm: float) -> None:
    """Raise ValueError unless there is a ball of this norm.

    >>> check_norm(3)
    Traceback (most recent call last):
    ValueError: `norm` must be one of inf, 2, 1; got 3.
    """
    if norm not in NORMS:
        raise ValueError(f"`norm` must be one of inf, 2, 1; got {norm!r}.")


def as_norm(norm: float | str) -> float:
    """A norm as a number, where it is a word, as in recipes; anything else as it is.

    >>> as_norm("inf"), as_norm("2"), as_norm(1)
    (inf, 2.0, 1)
    """
    words = {"inf": math.inf, "2": 2.0, "1": 1.0}
    found: Any = words.get(norm, norm) if isinstance(norm, str) else norm
    return found


def norm_of(delta: Tensor, norm: float) -> Tensor:
    """The norm of each displacement, of at least float32 and safe from overflow and underflow.

    Args:
        delta: (B, ...).
        norm: inf, 2 or 1.

    Returns:
        (B,).

    >>> norm_of(torch.tensor([[3.0, -4.0]]), 2), norm_of(torch.tensor([[3.0, -4.0]]), 1)
    (tensor([5.]), tensor([7.]))
    """
    check_norm(norm)
    size = wide(delta).flatten(1).abs()
    if norm == 1:
        return size.sum(dim=1)
    peak = size.amax(dim=1)
    if norm == math.inf:
        return peak
    unit = torch.where(peak > 0, peak, 1)
    return unit * (size / unit.unsqueeze(1)).square().sum(dim=1).sqrt()


def wide(tensor: Tensor) -> Tensor:
    """At least float32."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
