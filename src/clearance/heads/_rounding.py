"""Features so far from all means that rounding of their distances, not the features, picks the class."""

import math
import warnings

import torch
from torch import Tensor

FELT = 1e-5  # of the mean of 2 d / D, which is 1
FAR = 0.1  # nats that rounding may take from a score


def rounding_of(distances: Tensor) -> Tensor:
    """About how many nats of each distance its dtype rounds away."""
    return torch.finfo(distances.dtype).eps * distances


def warn_where_rounding_picks(logits: Tensor, distances: Tensor) -> bool:
    """Warn where the two likeliest classes of a sample lie nearer to each other than its distances are rounded.

    Args:
        logits: (B, K), K at least 2.
        distances: (B, K), what they were made of.

    Returns:
        Whether it warned. Never where values cannot be looked at: while a graph is compiled or captured, and
        under ``torch.func.vmap``.
    """
    if not logits.numel() or _is_recorded(logits):
        return False
    with torch.no_grad():
        rounding = rounding_of(distances.detach()).amax(dim=1)
        try:
            if float(rounding.max()) <= FAR:
                return False
        except RuntimeError:  # vmap: one call stands for many, and none has a value of its own
            return False
        first, second = logits.detach().topk(2, dim=1).values.unbind(dim=1)
        lost = (rounding > FAR) & (first - second < rounding)
        share = float(lost.double().mean())
    if share == 0:
        return False
    warnings.warn(
        f"rounding may pick the class of {math.ceil(100 * share)} % of these samples: they lie so far from the means "
        f"of the mixture that {logits.dtype} rounds up to {float(rounding.max()):.2g} nats away from their scores. "
        "Scale the features, compute in float64, or, where classes share their covariance, take the linear head of "
        "the same posteriors (heads.linear_from_mixture).",
        stacklevel=3,
    )
    return True


def warn_of_rounded_means(fitted: Tensor, kept: Tensor, variance: Tensor) -> None:
    """Warn where means of fitted classes are rounded by so much of their spread that distances feel it.

    Args:
        fitted: In float64, (K, D).
        kept: As the head holds them.
        variance: Of each of them, in a shape that broadcasts.
    """
    added = float(((fitted - kept.double()).square() / variance).mean(dim=1).max())
    if added > FELT:
        warnings.warn(
            f"{kept.dtype} rounds means of features that lie so far from 0 by {math.sqrt(added):.2g} of their "
            f"standard deviation: that adds {added:.2g} to the mean of 2 d / D. Take what the features have in common "
            "off all of them, or use a head in float64.",
            stacklevel=3,
        )


def _is_recorded(tensor: Tensor) -> bool:
    capturing = tensor.is_cuda and torch.cuda.is_current_stream_capturing()
    return capturing or torch.compiler.is_compiling()
