"""The interval of a mean of paired differences, image by image."""

import math

from torch import Tensor

from clearance.audits.accuracy import Z_95

PAIRED = "paired over images, adjusted Wald 95 %"


def paired_interval(gained: Tensor) -> tuple[float, float, float]:
    """The mean of differences in [-1, 1] with its adjusted Wald 95 % interval, cut to [-1, 1].

    With one image more at +1 and one at -1, N + 2 in all:

    m' = sum d / (N + 2),   v' = (sum d^2 + 2) / (N + 2) - m'^2,   m' +- 1.96 sqrt(v' / (N + 2))

    Never without width, so that few images say little: it leaves out 0 from six images on, all on one side, where
    the sign test does, too.

    Source: Bonett and Price, J. Educ. Behav. Stat. 37 (2012), for differences of -1, 0 and 1.

    Args:
        gained: (N,), for example whether one way is wrong on an image less whether another is.

    >>> import torch
    >>> [round(x, 3) for x in paired_interval(torch.tensor([1.0, 0.0, 0.0, 0.0]))]
    [0.25, -0.383, 0.717]
    """
    count = len(gained) + 2
    middle = float(gained.sum()) / count
    variance = (float(gained.square().sum()) + 2) / count - middle**2
    half = Z_95 * math.sqrt(variance / count)
    return float(gained.mean()), max(-1.0, middle - half), min(1.0, middle + half)
