"""The hinge machine at one lambda: an augmented Lagrangian outside, a semismooth Newton method inside.

The hinge's kink is rounded to a parabola of width 1 / (n sigma) in units of the margin, and each sample's loss is
shifted by its multiplier:

    min over w, b of  lambda ||w||^2 + sum e(1 - f_i + a_i / sigma),    a <- clip(sigma (1 - f) + a, 0, 1/n).

Every such minimum is a proximal step on the dual problem, so that the rounding disappears as the multipliers
settle: the solution is that of the hinge itself (Rockafellar, 1976; for the inner method Qi and Sun, 1993). The same
smoothness makes Newton's method end in few steps, because only the samples on the parabola enter its matrix.
"""

import numpy as np

from clearance.linear._certificate import Certified, State, certify_hinge
from clearance.linear._newton import Slopes, Window, newton_step, slopes, step_length
from clearance.linear._problem import Array, Problem

FIRST_WIDTH = 0.3  # of the parabola, in margins; 0.1 and 1 took a tenth longer on pairs of MNIST digits
SHARPEN = 3.0  # sigma from one set of multipliers to the next; 6 took a fifth longer
GRADIENT_SHARE = 0.2  # a subproblem is solved well enough when this share of the gap is due to it
NEWTON_STEPS = 300
ROUNDS = 6
WIDER = 4.0
ASTRAY = 8.0  # reaches that a sample may move before the window is taken to be wrong


def minimise_hinge(problem: Problem, lam: float, start: State, tolerance: float, reach: float) -> Certified:
    """The machine at `lam`, from a start nearby.

    Args:
        problem: The samples.
        lam: lambda.
        start: Any state; multipliers within [0, 1/n]. The better it is, the faster.
        tolerance: Relative duality gap at which to stop.
        reach: How far samples are expected to move, in margins: those further from the hinge's kink
            are left out, until the gap over all samples says that this was wrong.

    Returns:
        The best machine found; its gap says whether `tolerance` was reached.
    """
    wanted, best = (
        tolerance / 2,
        certify_hinge(problem, _descend(problem, lam, start, tolerance / 2, reach), lam),
    )
    for attempt in range(ROUNDS):
        if best.relative_gap <= tolerance:
            break
        # The window may have been wrong and have led astray: then from the start again, at last with all samples.
        reach, wanted = (WIDER * reach if attempt < ROUNDS // 2 else np.inf), wanted / WIDER
        begun = certify_hinge(problem, start, lam)
        best = min(best, begun, key=lambda one: one.gap)
        found = certify_hinge(problem, _descend(problem, lam, best.state, wanted, reach), lam)
        best = min(best, found, key=lambda one: one.gap)
    return best


def _descend(problem: Problem, lam: float, state: State, tolerance: float, reach: float) -> State:
    """Solve on the samples within reach of the kink, the others' multipliers held at 0 or 1/n."""
    near = (np.abs(1 - state.f) <= reach) | ((state.a > 0) & (state.a < problem.cap))
    held = np.where(~near & (state.f < 1), problem.cap, 0.0)
    inside = np.flatnonzero(near)
    window = Window(
        problem.rows[inside],
        problem.y[inside],
        problem.cap,
        held @ problem.rows,
        float(held @ problem.y),
        float(held.sum()),
    )
    w, b, a = _multipliers(window, lam, state.w, state.b, state.a[inside], state.f[inside], tolerance, reach)
    held[inside] = a
    return State(w, b, held, problem.rows @ w + problem.y * b)


def _multipliers(
    window: Window, lam: float, w: Array, b: float, a: Array, f: Array, tolerance: float, reach: float
) -> tuple[Array, float, Array]:
    """The outer loop: a and sigma move on whenever the inner problem is solved well enough for them."""
    sigma, begun = window.cap / FIRST_WIDTH, f
    at = slopes(window, lam, sigma, w, f, a)
    for _ in range(NEWTON_STEPS):
        objective, gap, of_gradient, unbalanced = _reading(window, lam, w, b, f, at)
        if abs(gap) <= tolerance * objective and unbalanced <= tolerance * objective:
            break
        if max(of_gradient, unbalanced) <= GRADIENT_SHARE * abs(gap):
            a, sigma = at.pull, SHARPEN * sigma
            at = slopes(window, lam, sigma, w, f, a)
        dw, db = newton_step(window, lam, sigma, at)
        df = window.rows @ dw + window.y * db
        length = step_length(window, lam, sigma, w, at, dw, db, df)
        w, b, f = w + length * dw, b + length * db, f + length * df
        at = slopes(window, lam, sigma, w, f, a)
        if float(np.abs(f - begun).max(initial=0)) > ASTRAY * reach:
            break
    return w, b, at.pull


def _reading(
    window: Window, lam: float, w: Array, b: float, f: Array, at: Slopes
) -> tuple[float, float, float, float]:
    """Objective, gap, the part of the gap that the gradient makes, and that of multipliers out of balance."""
    squared = float(w @ w)
    combined = 2 * lam * w - at.weights
    risk = window.cap * float(np.maximum(1 - f, 0).sum()) + window.fixed_sum
    risk -= float(window.fixed_rows @ w) + window.fixed_y * b
    objective = risk + lam * squared
    dual = float(at.pull.sum()) + window.fixed_sum - float(combined @ combined) / (4 * lam)
    of_gradient = float(at.weights @ at.weights) / (4 * lam)
    return objective, objective - dual, of_gradient, abs(at.bias) * max(1.0, abs(b))
