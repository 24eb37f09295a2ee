"""The hinge on a path of lambda: closed form where every sample is active, one machine for all where none is wrong."""

import numpy as np

from clearance.linear._augmented import minimise_hinge
from clearance.linear._certificate import Certified, State, certify_hinge, hardened
from clearance.linear._problem import Problem, balanced_multipliers


class HingeMachine:
    """f(z) = max(1 - z, 0)."""

    def without_weights(self, problem: Problem) -> tuple[float, float]:
        """The smaller class pays 2 a sample, the other nothing; between classes of equal size any bias is as good."""
        positive = int((problem.y > 0).sum())
        negative = len(problem.y) - positive
        return float(np.sign(positive - negative)), 2 * min(positive, negative) * problem.cap

    def origin(self, problem: Problem) -> float:
        """Where the first sample reaches the margin: lambda_0 of the plateau, for classes of equal size.

        For others every sample of the smaller class is still active there, and nearly all of the larger.
        """
        turns = problem.rows @ (balanced_multipliers(problem) @ problem.rows)
        # rows are signed, so the largest over J and over I add up to D (P_J - P_I) / 4 of the closed form
        positive = problem.y > 0
        return (float(turns[positive].max()) + float(turns[~positive].max())) / 4

    def exact(self, problem: Problem, lam: float) -> Certified | None:
        """The plateau of balanced classes, and samples that do not vary at all."""
        balanced = bool((problem.y > 0).sum() * 2 == len(problem.y))
        if problem.rows.shape[1] and not (balanced and lam >= self.origin(problem)):
            return None
        return certify_hinge(problem, self.cold(problem, lam), lam)

    def cold(self, problem: Problem, lam: float) -> State:
        """All of the smaller class at its cap: w = (1 / 2 lambda) sum a y x, the bias by the midpoint rule."""
        a = balanced_multipliers(problem)
        w = (a @ problem.rows) / (2 * lam)
        state = State(w, 0.0, a, problem.rows @ w)
        return certify_hinge(problem, state, lam).state

    def minimise(
        self, problem: Problem, lam: float, start: State, tolerance: float, reach: float
    ) -> Certified:
        """By the augmented Lagrangian."""
        return minimise_hinge(problem, lam, start, tolerance, reach)

    def constant_from(self, problem: Problem, found: Certified, lam: float) -> Certified | None:
        """The hard margin: every sample outside the margin, no multiplier at its cap."""
        return hardened(problem, found, lam)
