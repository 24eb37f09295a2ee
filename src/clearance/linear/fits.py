"""What a solver returns: one regularised linear classifier with the proof of how good it is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearance.linear.hyperplane import Hyperplane


@dataclass(frozen=True)
class LinearFit:
    """A minimiser of  (1/n) sum f(y (w.x + b)) + lambda ||w||^2  with its duality gap.

    The gap bounds from above what a better classifier could gain, and so how far away the best one is:
    ||w - w*||^2 <= gap / lambda.

    Args:
        w: Weights, shape (d,), float64.
        b: Bias, which the penalty does not see.
        objective: Risk and penalty at (w, b).
        gap: Objective minus the dual objective at `multipliers`, at least 0, in the unit of the objective.
        lam: lambda, the factor of ||w||^2 (not of ||w||^2 / 2).
        risk: (1/n) sum f(y (w.x + b)).
        multipliers: Dual variables a of the samples, shape (n,), in [0, 1/n], with sum a y = 0; the best w is
            (1 / (2 lambda)) sum a y x.
    """

    w: NDArray[np.float64]
    b: float
    objective: float
    gap: float
    lam: float
    risk: float
    multipliers: NDArray[np.float64]

    @property
    def relative_gap(self) -> float:
        """Gap over objective; 0 where both are 0."""
        return self.gap / self.objective if self.gap else 0.0

    @property
    def plane(self) -> Hyperplane:
        """The classifier for the rest of this package."""
        return Hyperplane.of(self.w, self.b)
