"""The bias of a hinge machine, which the penalty leaves free and sometimes undetermined."""

import numpy as np
from numpy.typing import NDArray


def bias_interval(scores: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """All b that minimise  mean max(1 - y (s + b), 0)  for given scores s: an interval, often a point.

    The mean is convex and piecewise linear in b. Far left every positive sample is active and no negative one,
    so that its slope is -n_J / n; at each b = y_i - s_i a positive sample falls out or a negative one comes in,
    and the slope rises by 1/n. It is 0 between the n_J-th of these points and the next.

    Args:
        scores: w.x, shape (n,).
        y: -1 and +1, both present, shape (n,).

    Returns:
        The two ends. The middle is the bias that libsvm reports.

    >>> bias_interval(np.array([-3.0, 1.0]), np.array([-1.0, 1.0]))      # any b with -3 + b <= -1 and 1 + b >= 1
    (0.0, 2.0)
    """
    turns = y - scores
    positive = int((y > 0).sum())
    ordered = np.partition(turns, (positive - 1, positive))
    return float(ordered[positive - 1]), float(ordered[positive])


def midpoint_bias(scores: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """The middle of :func:`bias_interval`: one rule for the plateau, for its edge, and for a bias that is unique.

    >>> midpoint_bias(np.array([-3.0, 1.0]), np.array([-1.0, 1.0]))
    1.0
    """
    low, high = bias_interval(scores, y)
    return (low + high) / 2
