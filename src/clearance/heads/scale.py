"""The unit of features, so that heads do not depend on their scale or width."""

import math

import torch
from torch import Tensor

from clearance._precision import at_least_float32

_REFERENCE_WIDTH = 128


def feature_unit(features: Tensor) -> Tensor:
    """The divisor of features before a head is trained on them: 0-dim, in the features' unit.

    unit = rms(features) * sqrt(D / 128)

    Dividing by the overall root mean square makes features x c the same features. The constant factor
    makes the mean squared norm of a sample 128 at every width D: the curvature of a linear softmax layer
    grows with that norm, so the same step size and initial weights fit every width. (128 is the width for which
    the step sizes of FOCA's heads were published.)

    Args:
        features: (..., D). Values that are not finite are left out.

    >>> import torch
    >>> features = torch.full((3, 512), 4.0)
    >>> float((features / feature_unit(features)).square().sum(dim=1)[0])
    128.0
    """
    features = at_least_float32(features.detach())  # the square of 256 is infinite in float16
    rms = features.square().mean().sqrt()
    smallest = math.sqrt(torch.finfo(rms.dtype).tiny)
    if not smallest < float(rms) < math.inf:  # not finite, or squares that overflow or lose digits
        finite = features[features.isfinite()]
        peak = finite.abs().amax() if finite.numel() else finite.new_tensor(1)
        rms = peak * (finite / torch.where(peak > 0, peak, 1)).square().mean().sqrt()
    return rms * math.sqrt(features.shape[-1] / _REFERENCE_WIDTH)
