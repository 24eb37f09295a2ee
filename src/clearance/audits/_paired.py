"""The interval of a mean of paired differences, image by image."""

import math

from torch import Tensor

from clearance.audits.accuracy import Z_95


def paired_interval(gained: Tensor) -> tuple[float, float, float]:
    """The mean of differences in [-1, 1] with its normal 95 % interval, cut to [-1, 1]; all of it for one image.

    mean +- 1.96 s / sqrt(N),   s = standard deviation of the differences

    Args:
        gained: (N,), for example whether one way is wrong on an image less whether another is.

    Misleads below some ten images that differ: it has no width where all differences are equal.

    >>> import torch
    >>> [round(x, 3) for x in paired_interval(torch.tensor([1.0, 0.0, 0.0, 0.0]))]
    [0.25, -0.24, 0.74]
    """
    mean = float(gained.mean())
    half = Z_95 * float(gained.std()) / math.sqrt(len(gained)) if len(gained) > 1 else 1.0
    return mean, max(-1.0, mean - half), min(1.0, mean + half)
