"""Checks and conversion of arguments to float64 tensors."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

Points = Tensor | ArrayLike
"""A tensor, or anything that NumPy makes an array of."""

SMALLEST = 1e-150  # smaller numbers have squares that float64 cannot hold to all digits


def as_rows(name: str, values: Points) -> Tensor:
    """Finite float64 values of shape (n, d).

    Raises:
        ValueError: If the shape is another, or a value is not finite.
    """
    rows = as_float64(values)
    if rows.ndim != 2:
        raise ValueError(f"`{name}` must have shape (n, d); got {tuple(rows.shape)}; flatten images first.")
    check_finite(name, rows)
    return rows


def as_signs(labels: Points, count: int) -> Tensor:
    """Labels -1 and +1 as float64, shape (count,).

    Raises:
        ValueError: If the shape is another, or a label is neither -1 nor +1.
    """
    signs = as_float64(labels)
    if signs.shape != (count,):
        raise ValueError(f"`y` must have one label for each of {count} points; got {tuple(signs.shape)}.")
    odd = signs[signs.abs() != 1]
    if len(odd):
        raise ValueError(f"`y` must hold -1 and +1; got {odd[0].item()}; name one class -1 and the other +1.")
    return signs


def as_float64(values: Points) -> Tensor:
    """Values as a float64 tensor on the CPU without a graph; arrays are copied unless they are writable and in C order.

    Torch refuses negative strides, and warns of read-only memory.
    """
    if isinstance(values, Tensor):
        return values.detach().cpu().double()
    return torch.as_tensor(np.require(values, dtype=np.float64, requirements=["C", "W"]))


def check_both_classes(signs: Tensor) -> None:
    """Raise ValueError unless -1 and +1 both occur."""
    for side in (-1, 1):
        if not bool((signs == side).any()):
            raise ValueError(f"`y` must hold both classes; got none of {side:+d}: one class has no boundary.")


def check_finite(name: str, values: Tensor) -> None:
    """Raise ValueError unless every value is finite."""
    # a sum is finite only if every term is; checking each term costs ten times as much
    if bool(torch.isfinite(values.sum())):
        return
    bad = values[~torch.isfinite(values)]
    if len(bad):
        raise ValueError(f"`{name}` must be finite; got {bad[0].item()}; remove or correct those values.")
