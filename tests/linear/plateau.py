"""Strong regularisation of a hinge machine in closed form: the direction is that of the nearest centroid."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Plateau:
    """The range  lambda >= lambda_0  in which every sample has margin at most 1 and the hinge is linear.

    Balanced classes with centroids i, j, D = ||j - i||, z = (j - i) / D, and P_I = min p over I, P_J = max p over J
    of the projections  p_x = (x - (i + j) / 2).z:

        lambda_0 = D (P_J - P_I) / 8,   w = (j - i) / (4 lambda),   b in [-1 - ||w|| P_I, 1 - ||w|| P_J] (at the middle)

    Args:
        lam: lambda_0, where it begins.
        difference: j - i, shape (d,).
        mid: (i + j) / 2, shape (d,).
        offset: Signed distance of `mid`, -(P_I + P_J) / 2: the interval's middle over ||w||, for every lambda.
    """

    lam: float
    difference: NDArray[np.float64]
    mid: NDArray[np.float64]
    offset: float

    def solution(self, lam: float) -> tuple[NDArray[np.float64], float]:
        """W and b at a lambda of the plateau.

        Raises:
            ValueError: If lambda is below `lam`, where this is not the solution.
        """
        if lam < self.lam:
            raise ValueError(
                f"`lam` must be at least {self.lam}, where the plateau begins; got {lam}; use svm_path."
            )
        w = self.difference / (4 * lam)
        return w, float(self.offset * np.linalg.norm(w) - w @ self.mid)


def plateau(x: ArrayLike, y: ArrayLike) -> Plateau:
    """The plateau of two classes of equal size.

    Source: closed form of the "small scale" way of training of Tanay and Griffin (2018), where the loss is linear.

    Args:
        x: Points, shape (n, d).
        y: -1 and +1, as many of each, shape (n,).

    Raises:
        ValueError: If the classes are not of equal size (then the bias leaves the linear range at every lambda).

    >>> found = plateau([[-3.0], [-1.0], [1.0], [3.0]], [-1, -1, 1, 1])
    >>> found.lam, found.solution(3.0)
    (3.0, (array([0.33333333]), 0.0))
    """
    points, labels = np.asarray(x, dtype=np.float64), np.asarray(y)
    negative = labels < 0
    if negative.sum() * 2 != len(labels):
        raise ValueError(
            f"the plateau needs classes of equal size; got {int(negative.sum())} and {int((~negative).sum())}; "
            "use svm_path, which needs no closed form."
        )
    first, second = points[negative].mean(axis=0), points[~negative].mean(axis=0)
    difference, mid = second - first, (first + second) / 2
    length = float(np.linalg.norm(difference))
    # means that are equal differ by rounding of their entries' size, in each of d entries
    if length <= 1e-14 * math.sqrt(len(mid)) * float(np.abs(first).max() + np.abs(second).max()):
        return Plateau(0.0, np.zeros_like(mid), mid, 0.0)
    projections = (points - mid) @ (difference / length)
    least, most = float(projections[negative].min()), float(projections[~negative].max())
    return Plateau(length * (most - least) / 8, difference, mid, (-least - most) / 2)
