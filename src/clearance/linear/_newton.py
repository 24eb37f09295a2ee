"""One Newton step on the smoothed hinge, and how far to go along it."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from clearance.linear._problem import Array

SLOPE_LEFT = 1e-3  # share of the first slope at which a line search is content
LINE_STEPS = 40


@dataclass(frozen=True)
class Window:
    """The samples that may change side while a subproblem is solved; the others have their multiplier fixed.

    Args:
        rows: A of the samples inside, (m, r).
        y: Their labels, (m,).
        cap: 1/n.
        fixed_rows: Sum of a_i A_i over the samples outside, (r,).
        fixed_y: Sum of a_i y_i over them.
        fixed_sum: Sum of a_i over them.
    """

    rows: Array
    y: Array
    cap: float
    fixed_rows: Array
    fixed_y: float
    fixed_sum: float


@dataclass(frozen=True)
class Slopes:
    """The smoothed objective at one point, to first order.

    Args:
        tension: sigma (1 - f) + a: before it is clipped to [0, 1/n], (m,).
        pull: The clipped tension: the multipliers that this point asks for, (m,).
        weights: Gradient by w, 2 lambda w - sum a_i A_i, (r,).
        bias: Gradient by b, -sum a_i y_i.
    """

    tension: Array
    pull: Array
    weights: Array
    bias: float


def slopes(window: Window, lam: float, sigma: float, w: Array, f: Array, a: Array) -> Slopes:
    """Gradient of  lambda ||w||^2 + sum e(1 - f_i + a_i / sigma)  with  e' = clip(sigma t, 0, 1/n)."""
    tension = sigma * (1 - f) + a
    pull = np.clip(tension, 0, window.cap)
    weights = 2 * lam * w - window.fixed_rows - pull @ window.rows
    return Slopes(tension, pull, weights, -(window.fixed_y + float(pull @ window.y)))


def newton_step(window: Window, lam: float, sigma: float, at: Slopes) -> tuple[Array, float]:
    """The direction (dw, db) that solves  H (dw, db) = -gradient,  H = 2 lambda I_w + sigma A_J^T A_J.

    J holds the samples on the sloping part of e'. The system has the size of w or of J, whichever is smaller.
    With J empty nothing curves in b: then a step in b alone, until a sample comes in.
    """
    inside = np.flatnonzero((at.tension > 0) & (at.tension < window.cap))
    if not len(inside):
        if abs(at.bias) > np.finfo(float).eps:
            return np.zeros_like(at.weights), -at.bias / (sigma * window.cap * len(window.y))
        return -at.weights / (2 * lam), 0.0
    rows, y = window.rows[inside], window.y[inside]
    solve = _by_samples if len(inside) < rows.shape[1] else _by_weights
    return solve(rows, y, lam, sigma, at)


def _by_samples(rows: Array, y: Array, lam: float, sigma: float, at: Slopes) -> tuple[Array, float]:
    # with u = sigma (rows dw + y db):   2 lambda dw = -g - rows^T u,   y.u = -g_b
    matrix = blas.dsyrk(1 / (2 * lam), rows.T, trans=1, lower=1)
    matrix[np.diag_indices(len(y))] += 1 / sigma + _ridge(matrix)
    by_gradient, by_bias = _solved(matrix, -(rows @ at.weights) / (2 * lam), y)
    db = -(at.bias + float(y @ by_gradient)) / float(y @ by_bias)
    u = by_gradient + db * by_bias
    return -(at.weights + u @ rows) / (2 * lam), db


def _by_weights(rows: Array, y: Array, lam: float, sigma: float, at: Slopes) -> tuple[Array, float]:
    matrix = blas.dsyrk(sigma, rows.T, lower=1)
    matrix[np.diag_indices(rows.shape[1])] += 2 * lam + _ridge(matrix)
    mixed = sigma * (y @ rows)
    by_gradient, by_mixed = _solved(matrix, -at.weights, mixed)
    # what is left of the curvature in b once w follows it; rounding can eat all of it
    curvature = max(sigma * len(y) - float(mixed @ by_mixed), sigma * len(y) * np.finfo(float).eps)
    db = (-at.bias - float(mixed @ by_gradient)) / curvature
    return by_gradient - db * by_mixed, db


def _ridge(matrix: Array) -> float:
    """What rounding may have taken from the smallest eigenvalue; only a direction depends on it, never a solution."""
    return float(matrix.diagonal().max()) * len(matrix) * float(np.finfo(float).eps)


def _solved(matrix: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Solutions for two right sides; `matrix`, of which only the lower triangle is set, is overwritten."""
    factor, failed = lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("the Newton system is not positive definite")
    both, _ = lapack.dpotrs(factor, np.stack([first, second], axis=1), lower=1)
    return both[:, 0], both[:, 1]


def step_length(
    window: Window, lam: float, sigma: float, w: Array, at: Slopes, dw: Array, db: float, df: Array
) -> float:
    """The minimiser along a direction: the slope there is increasing and piecewise linear, so Newton finds its zero.

    Args:
        window: The samples inside.
        lam: lambda.
        sigma: Steepness of the smoothing.
        w: Weights from which the direction leaves.
        at: The slopes there.
        dw: Direction in w.
        db: Direction in b.
        df: What f changes by, window.rows dw + y db.
    """
    constant = 2 * lam * float(w @ dw) - float(window.fixed_rows @ dw) - window.fixed_y * db
    curvature = 2 * lam * float(dw @ dw)
    rate = sigma * df
    low, high, length, first = 0.0, np.inf, 1.0, None
    for _ in range(LINE_STEPS):
        tension = at.tension - length * rate
        slope = constant + length * curvature - float(np.clip(tension, 0, window.cap) @ df)
        if first is None:
            first = abs(float(at.weights @ dw) + at.bias * db)
        if abs(slope) <= SLOPE_LEFT * first:
            break
        low, high = (low, length) if slope > 0 else (length, high)
        sloping = (tension > 0) & (tension < window.cap)
        bend = curvature + float(rate[sloping] @ df[sloping])
        aim = length - slope / bend if bend > 0 else np.inf
        if not low < aim < high:
            aim = (low + high) / 2 if np.isfinite(high) else 2 * length
        length = aim
    return length
