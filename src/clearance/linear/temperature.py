"""Softmax temperature, and the temperature that gives networks an equal confidence."""

import math

import torch
from torch import Tensor

from clearance._checks import check_positive
from clearance.linear._arguments import Points, as_rows

LOG_LIMIT = 60.0  # temperatures from 1e-26 to 1e26 times the largest lead
HALVINGS = 200


def tempered_softmax(scores: Points, temperature: float) -> Tensor:
    """softmax_i(s, t) = exp(s_i / t) / sum_k exp(s_k / t), shape (n, K).

    Source: Tanay and Griffin (2018), on what weight decay does to a network's last layer. It is one-hot as t -> 0 and
    uniform as t -> infinity; the class with the largest score stays the same.

    Scores are (n, K), finite; t is above 0, and 1 is the ordinary softmax.

    >>> tempered_softmax([[2.0, 0.0]], temperature=2.0)
    tensor([[0.7311, 0.2689]], dtype=torch.float64)
    """
    check_positive("temperature", temperature)
    rows = as_rows("scores", scores)
    # subtracted before the division: the largest stays 0 even if the others overflow
    return torch.softmax((rows - rows.amax(dim=1, keepdim=True)) / temperature, dim=1)


def calibrated_temperature(scores: Points, confidence: float = 0.95) -> float:
    """The t at which the median over samples of the largest class probability is `confidence`.

    Source: Tanay and Griffin (2018): networks are calibrated to equal confidence before their adversarial images are
    compared; 0.95 as there. With an even number of samples the median is the mean of the two in the middle. It falls
    as t rises, so bisection finds t.

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
    lead = float((rows.max(dim=1).values - rows.min(dim=1).values).max())
    if lead == 0 or _median_top(rows, lead * math.exp(-LOG_LIMIT)) < confidence:
        raise ValueError(
            f"no temperature gives the median sample the confidence {confidence}; got scores that tie for the largest "
            "in half of the rows; use other samples."
        )
    low, high = math.log(lead) - LOG_LIMIT, math.log(lead) + LOG_LIMIT
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _median_top(rows, math.exp(middle)) > confidence else (low, middle)
    return math.exp((low + high) / 2)


def _median_top(rows: Tensor, temperature: float) -> float:
    return float(tempered_softmax(rows, temperature).max(dim=1).values.quantile(0.5))
