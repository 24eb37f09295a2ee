"""The softmax temperature that gives networks an equal confidence."""

import math

import torch
from scipy.optimize import brentq

from clearance.linear._arguments import Points, as_rows

LOG_LIMIT = 60.0  # temperatures from 1e-26 to 1e26 times the largest lead


def calibrated_temperature(scores: Points, confidence: float = 0.95) -> float:
    """The t at which the median over samples of the largest class probability is `confidence`.

    Source: Tanay and Griffin (2018): networks are calibrated to equal confidence before their adversarial images are
    compared; 0.95 as there. With an even number of samples the median is the mean of the two in the middle. It falls
    as t rises, so Brent's method finds t.

    Args:
        scores: (n, K), finite, with K at least 2.
        confidence: Above 1 / K, below 1.

    Raises:
        ValueError: If `confidence` is out of range, or no temperature reaches it because of ties for the
            largest score.

    Misleads as calibration: it makes confidence comparable between models, but does not match it to accuracy.

    >>> t = calibrated_temperature([[3.0, 0.0], [1.0, 0.0], [9.0, 0.0]])
    >>> round(t, 6) == round(3.0 / math.log(19), 6)
    True
    """
    rows = as_rows("scores", scores)
    count, classes = rows.shape
    if not count or classes < 2:
        raise ValueError(f"`scores` must have at least one row and two columns; got {tuple(rows.shape)}.")
    if not 1 / classes < confidence < 1:
        raise ValueError(f"`confidence` must lie in (1/{classes}, 1); got {confidence}.")
    rows = rows - rows.amax(dim=1, keepdim=True)
    # over the second, not the last: a class that is masked by a very small score takes no part
    lead = -float(rows.topk(2, dim=1).values[:, 1].min())

    def excess(log_ratio: float) -> float:
        """What the median sample's confidence is above the one wanted, at t = lead exp(log_ratio)."""
        top = torch.softmax(rows / lead / math.exp(log_ratio), dim=1).amax(dim=1)
        return float(top.quantile(0.5)) - confidence

    if lead == 0 or excess(-LOG_LIMIT) < 0:
        raise ValueError(
            f"no temperature gives the median sample the confidence {confidence}; got scores that tie for the largest "
            "in half of the rows; use other samples."
        )
    return lead * math.exp(brentq(excess, -LOG_LIMIT, LOG_LIMIT, maxiter=1000))  # 80 were seen to be needed
