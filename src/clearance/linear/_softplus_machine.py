"""Softplus (logistic loss) on a path of lambda: the same walk, a plain Newton method inside."""

import math

import numpy as np
from scipy.linalg import blas, lapack
from scipy.special import entr, expit, xlogy

from clearance.linear._certificate import Certified, State
from clearance.linear._problem import Array, Problem, balanced_multipliers, repaired

NEWTON_STEPS = 100
ENOUGH = 1e-4  # share of the promised descent that a step must keep (Armijo)


class SoftplusMachine:
    """f(z) = ln(1 + exp(-z)): smooth, so that the best bias is unique and every sample has a say."""

    def without_weights(self, problem: Problem) -> tuple[float, float]:
        """The log odds, and the entropy of the labels in nats."""
        share = float((problem.y > 0).mean())
        return math.log(share / (1 - share)), float(entr(share) + entr(1 - share))

    def origin(self, problem: Problem) -> float:
        """Where the cold start's scaled distances reach 1, below which the loss is no longer nearly linear."""
        turns = problem.rows @ (balanced_multipliers(problem) @ problem.rows)
        return float(np.abs(turns).max()) / 4

    def exact(self, problem: Problem, lam: float) -> Certified | None:
        """Samples that do not vary: the bias alone is fitted, at the log odds."""
        return None if problem.rows.shape[1] else certify_softplus(problem, self.cold(problem, lam), lam)

    def cold(self, problem: Problem, lam: float) -> State:
        """The limit of strong regularisation, half of the hinge's: w = (j - i) / (8 lambda) for balanced classes."""
        positive = float((problem.y > 0).sum())
        share = positive / len(problem.y)
        a = np.where(problem.y > 0, 1 - share, share) * problem.cap
        w, b = (a @ problem.rows) / (2 * lam), math.log(share / (1 - share))
        return State(w, b, a, problem.rows @ w + problem.y * b)

    def minimise(
        self, problem: Problem, lam: float, start: State, tolerance: float, reach: float
    ) -> Certified:
        """Newton's method with step halving; `reach` is not needed, because no sample is ever without effect."""
        del reach
        state = _at(problem, start.w, start.b, start.f)
        best = certify_softplus(problem, state, lam)
        for _ in range(NEWTON_STEPS):
            if best.relative_gap <= tolerance:
                break
            moved = _newton(problem, lam, state)
            if moved is None:  # no descent left but rounding
                break
            state = moved
            found = certify_softplus(problem, state, lam)
            best = found if found.gap < best.gap else best
        return best

    def constant_from(self, problem: Problem, found: Certified, lam: float) -> Certified | None:
        """Never: however weak the penalty, larger weights make the loss smaller."""
        del problem, found, lam
        return None


def certify_softplus(problem: Problem, state: State, lam: float) -> Certified:
    """The gap to the dual objective  mean H(n a) - ||sum a y x||^2 / (4 lambda)  with H the entropy of a coin."""
    a = repaired(state.a, problem.y)
    combined = a @ problem.rows
    heads = a / problem.cap
    entropy = -float((xlogy(heads, heads) + xlogy(1 - heads, 1 - heads)).mean())
    risk = float(np.logaddexp(0, -state.f).mean())
    objective = risk + lam * float(state.w @ state.w)
    gap = objective - entropy + float(combined @ combined) / (4 * lam)
    return Certified(State(state.w, state.b, a, state.f), risk, objective, max(gap, 0.0))


def _at(problem: Problem, w: Array, b: float, f: Array) -> State:
    return State(w, b, expit(-f) * problem.cap, f)


def _newton(problem: Problem, lam: float, state: State) -> State | None:
    rows, y = problem.rows, problem.y
    by_w = 2 * lam * state.w - state.a @ rows
    by_b = -float(state.a @ y)
    curvature = state.a * (1 - state.a / problem.cap)
    matrix = np.empty((len(by_w) + 1,) * 2, order="F")
    matrix[1:, 1:] = blas.dsyrk(1.0, (rows * np.sqrt(curvature)[:, None]).T, lower=1)
    matrix[1:, 0] = (curvature * y) @ rows
    matrix[0, 0] = float(curvature.sum())
    tiny = float(matrix.diagonal().max()) * len(matrix) * float(np.finfo(float).eps)
    matrix[np.diag_indices(len(matrix))] += np.r_[tiny, np.full(len(by_w), 2 * lam + tiny)]
    factor, failed = lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
    if failed:
        return None
    step, _ = lapack.dpotrs(factor, -np.r_[by_b, by_w], lower=1)
    return _halved(
        problem, lam, state, step[1:], float(step[0]), float(by_w @ step[1:]) + by_b * float(step[0])
    )


def _halved(problem: Problem, lam: float, state: State, dw: Array, db: float, descent: float) -> State | None:
    """The longest of 1, 1/2, 1/4, ... of a step that keeps its promise."""
    df = problem.rows @ dw + problem.y * db

    def objective(length: float) -> float:
        w = state.w + length * dw
        return float(np.logaddexp(0, -(state.f + length * df)).mean()) + lam * float(w @ w)

    now, length = objective(0.0), 1.0
    while length > 1e-10:
        if objective(length) <= now + ENOUGH * length * descent:
            return _at(problem, state.w + length * dw, state.b + length * db, state.f + length * df)
        length /= 2
    return None
