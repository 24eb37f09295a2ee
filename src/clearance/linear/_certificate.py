"""How far from the best a machine can be at most: its duality gap, and the tidied machine it belongs to."""

from dataclasses import dataclass

import numpy as np

from clearance.linear._bias import midpoint_bias
from clearance.linear._problem import Array, Problem, repaired


@dataclass(frozen=True)
class State:
    """Where a solver stands, in the rows' axes.

    Args:
        w: Weights, (r,).
        b: Bias at the middle of the centroids.
        a: Multipliers, (n,), in [0, 1/n].
        f: Scaled distances y s = A w + y b, (n,).
    """

    w: Array
    b: float
    a: Array
    f: Array


@dataclass(frozen=True)
class Certified:
    """A state whose multipliers balance, and what they prove.

    Args:
        state: The machine.
        risk: Its mean loss.
        objective: risk + lambda ||w||^2.
        gap: Objective minus dual objective, at least 0.
    """

    state: State
    risk: float
    objective: float
    gap: float

    @property
    def relative_gap(self) -> float:
        """Gap over objective; 0 where both vanish, and no number where one is none."""
        return 0.0 if self.gap == 0 else self.gap / self.objective


def certify_hinge(problem: Problem, state: State, lam: float) -> Certified:
    """The best bias for the state's weights by the midpoint rule, and the gap of the two.

    With multipliers that balance, sum a y = 0, the dual objective  sum a - ||sum a y x||^2 / (4 lambda)  is below
    every objective, whatever w and b are.
    """
    a = repaired(state.a, problem.y)
    combined = a @ problem.rows
    scores = state.f * problem.y - state.b
    b = midpoint_bias(scores, problem.y)
    f = (scores + b) * problem.y
    risk = float(np.maximum(1 - f, 0).mean())
    objective = risk + lam * float(state.w @ state.w)
    dual = float(a.sum()) - float(combined @ combined) / (4 * lam)
    return Certified(State(state.w, b, a, f), risk, objective, max(objective - dual, 0.0))


def hardened(problem: Problem, found: Certified, lam: float) -> Certified | None:
    """The machine scaled up until every margin is 1, where no multiplier is at its cap; None elsewhere.

    It pays for nothing, and at a smaller lambda' it stays as it is with multipliers a lambda' / lambda: objective
    and gap shrink alike, so that the relative gap is constant.
    """
    least = float(found.state.f.min())
    if least <= 0 or float(found.state.a.max()) >= problem.cap:
        return None
    # one rounding below 1 would be paid for
    state = State(
        found.state.w / least, found.state.b / least, found.state.a, np.maximum(found.state.f / least, 1)
    )
    objective = lam * float(state.w @ state.w)
    dual = found.objective - found.gap
    return Certified(state, 0.0, objective, max(objective - dual, 0.0))
