"""Shares of classes, as an argument."""

from collections.abc import Sequence

import torch
from torch import Tensor


def checked_priors(priors: Sequence[float] | Tensor, classes: int) -> Tensor:
    """The priors as float64.

    Raises:
        ValueError: Unless they are so many probabilities above 0 that sum to one.
    """
    given = torch.as_tensor(priors, dtype=torch.float64)
    if given.shape != (classes,) or not bool((given > 0).all()) or abs(float(given.sum()) - 1) > 1e-6:
        raise ValueError(
            f"`priors` must be {classes} probabilities above 0 that sum to one; got {given.tolist()}. "
            "Divide counts by their sum; a class that never occurs needs a small share."
        )
    return given
