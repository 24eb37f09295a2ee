"""Exact linear support vector machines with a free bias, for a whole grid of lambda.

The walk goes from strong to weak penalties, each start extrapolated from the two solutions before it, and every
solution comes with its duality gap.

At one lambda the problem is solved by an augmented Lagrangian outside and a semismooth Newton method inside. The
kink is rounded to a parabola of width 1 / (n sigma) in units of the margin, and each sample's loss is shifted by its
multiplier:

    min over w, b of  lambda ||w||^2 + sum e(1 - f_i + a_i / sigma),    a <- clip(sigma (1 - f) + a, 0, 1/n).

Every such minimum is a proximal step on the dual problem, so that the rounding disappears as the multipliers
settle: the solution is that of the hinge itself (Rockafellar, 1976; for the inner method Qi and Sun, 1993). The same
smoothness makes Newton's method end in few steps, because only the samples on the parabola enter its matrix.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas, lapack

from clearance._checks import check_positive
from clearance.linear._arguments import SMALLEST, Points, as_rows, as_signs, check_both_classes
from clearance.linear.hyperplane import Hyperplane

Array = NDArray[np.float64]
NOTHING = 1e-13  # of the lengths that are added up in 2 lambda w: what is left of them where it ought to be 0
USELESS = 1e-12  # of the risk without weights: a gain that rounding makes up
STRIDE = 3.0  # the largest ratio of two lambdas in a row; wider gaps get stations on the way
STATION = 1e-3  # relative gap there: they only lead on
LONGEST = 1.5  # extrapolation in steps of the path
FIRST_WIDTH = 0.3  # of the parabola, in margins; 0.1 and 1 took a tenth longer on pairs of MNIST digits
SHARPEN = 3.0  # sigma from one set of multipliers to the next; 6 took a fifth longer
GRADIENT_SHARE = 0.2  # a subproblem is solved well enough when this share of the gap is due to it
NEWTON_STEPS = 300
ROUNDS = 6
WIDER = 4.0
ASTRAY = 8.0  # reaches that a sample may move before the window is taken to be wrong
SLOPE_LEFT = 1e-3  # share of the first slope at which a line search is content
LINE_STEPS = 40


@dataclass(frozen=True)
class LinearFit:
    """A minimiser of  (1/n) sum max(1 - y (w.x + b), 0) + lambda ||w||^2  with its duality gap.

    The gap bounds from above what a better classifier could gain, and so how far away the best one is:
    ||w - w*||^2 <= gap / lambda.

    Args:
        w: Weights, shape (d,), float64.
        b: Bias, which the penalty does not see.
        objective: Risk and penalty at (w, b).
        gap: Objective minus the dual objective at `multipliers`, at least 0, in the unit of the objective.
        lam: lambda, the factor of ||w||^2 (not of ||w||^2 / 2).
        risk: (1/n) sum max(1 - y (w.x + b), 0).
        multipliers: Dual variables a of the samples, shape (n,), in [0, 1/n], with sum a y = 0; the best w is
            (1 / (2 lambda)) sum a y x.

    >>> fit = svm_path(np.array([[-1.0], [1.0]]), np.array([-1, 1]), [0.01])[0]
    >>> bool(abs(fit.w[0] - 1) < 1e-4)  # the widest margin: both samples at distance 1
    True
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


def svm_path(x: Points, y: Points, lambdas: ArrayLike, *, tolerance: float = 1e-6) -> list[LinearFit]:
    """Minimise  (1/n) sum max(1 - y (w.x + b), 0) + lambda ||w||^2  for every lambda, each with its duality gap.

    The penalty does not see b; where the best b is an interval, its middle is taken (libsvm's rule). From strong to
    weak regularisation every solution starts from the two before it. There is a closed form on the plateau of strong
    regularisation, and one solution for all weak ones if the classes can be separated (the hard margin).

    Source: the problem is that of Tanay and Griffin (2018), whose prose gives lambda in a unit 1e5 times smaller; the
    method is an augmented Lagrangian with a semismooth Newton method inside.

    Args:
        x: Points, shape (n, d), finite; any n >= 2 and d >= 1.
        y: -1 and +1, both present, shape (n,).
        lambdas: Above 0, in any order. libsvm's C is 1 / (2 lambda n).
        tolerance: Relative duality gap (gap / objective) to reach; 1e-6 puts angles of MNIST's digit pairs
            within 5e-4 of exact.

    Returns:
        One fit for each lambda, in the order given. Samples that coincide in all features, or classes whose centroids
        do, or a smaller class in the midst of a larger one, can give w = 0: an exact solution without a boundary. For
        classes that coincide w is exactly 0; for the last kind it is so up to the solver's tolerance alone.

    Raises:
        ValueError: If a value is not finite, a label is neither -1 nor +1, a class is empty, or a lambda is not
            above 0.

    Warns:
        RuntimeWarning: If a gap above `tolerance` is left, as rounding may force; the fits say how large.

    Memory: one copy of x, and per lambda a matrix of the size of the free support vectors or of d, whichever is less.

    >>> fits = svm_path([[-3.0], [-1.0], [1.0], [3.0]], [-1, -1, 1, 1], [10.0, 1e-3])
    >>> [round(float(fit.w[0]), 6) for fit in fits], fits[1].risk      # plateau: 4 / (4 lambda); hard margin: 1
    ([0.1, 1.0], 0.0)
    """
    points, labels = _checked_points(x, y)
    wanted = _checked_lambdas(lambdas)
    check_positive("tolerance", tolerance)
    problem = problem_of(points, labels)
    solved = walk(problem, wanted, tolerance)
    _warn_of_gaps(solved, tolerance)
    without = without_weights(problem)
    return [_fit(problem, lam, solved[lam], without) for lam in wanted]


@dataclass(frozen=True)
class Problem:
    """Rows  A_i = y_i (x_i - mid)  in coordinates of at most n axes, so that  y_i s(x_i) = A_i.w + y_i b.

    The middle of the centroids as origin makes the bias small and the equations better conditioned; neither
    that nor a change of axes moves the solution, because the bias is free and the norm is Euclidean.

    Args:
        rows: A, (n, r).
        y: -1 and +1, (n,).
        mid: The middle of the two centroids, (d,).
        kept: Which features vary, (d,) of bool.
        axes: Orthonormal columns (kept features, r) in which `rows` are given; None for the features themselves.
    """

    rows: Array
    y: Array
    mid: Array
    kept: NDArray[np.bool_]
    axes: Array | None

    @property
    def cap(self) -> float:
        """1/n, the most that one sample's multiplier can be."""
        return 1 / len(self.y)

    def weights(self, w: Array) -> Array:
        """Weights on all d features from those on the rows' axes."""
        full = np.zeros(len(self.mid))
        full[self.kept] = w if self.axes is None else self.axes @ w
        return full


@dataclass(frozen=True)
class State:
    """The state of a solver, in the rows' axes.

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


def _checked_lambdas(lambdas: ArrayLike) -> list[float]:
    given = np.asarray(lambdas, dtype=np.float64)
    if given.ndim != 1 or not len(given):
        raise ValueError(f"`lambdas` must hold at least one value in one row; got shape {given.shape}.")
    wanted = given.tolist()
    for lam in wanted:
        check_positive("lambdas", lam)
    return wanted


def _checked_points(x: Points, y: Points) -> tuple[Array, Array]:
    rows = as_rows("x", x)
    signs = as_signs(y, len(rows))
    check_both_classes(signs)
    if not rows.shape[1]:
        raise ValueError(f"`x` must have at least one feature; got shape {tuple(rows.shape)}.")
    largest = float(rows.abs().max())
    if not math.isfinite(largest * largest * rows.numel()) or 0 < largest < SMALLEST:
        raise ValueError(
            f"`x` must have squares within float64; got a largest value of {largest:.3g}. Rescale it: x times "
            "c, with lambda times c squared, gives w / c."
        )
    return rows.numpy(), signs.numpy()


def problem_of(points: Array, labels: Array) -> Problem:
    """The problem of checked points and labels."""
    negative = labels < 0
    mid = (points[negative].mean(axis=0) + points[~negative].mean(axis=0)) / 2
    kept = np.ptp(points, axis=0) > 0
    rows = points[:, kept]
    rows -= mid[kept]
    rows *= labels[:, None]
    axes = None
    if rows.shape[1] > len(rows):
        # The best w lies in the span of the rows; more axes than rows would only cost time.
        axes, triangle = np.linalg.qr(rows.T)
        rows = np.ascontiguousarray(triangle.T)
    return Problem(rows, labels, mid, kept, axes)


def _fit(problem: Problem, lam: float, found: Certified, without: tuple[float, float]) -> LinearFit:
    """The machine on all features; without weights where they are rounding of a sum that is 0 and gain nothing.

    Where they gain something they are no rounding, however little of the sum is left: multipliers of classes that
    overlap stay as lambda shrinks, and 2 lambda w does not.
    """
    w = problem.weights(found.state.w)
    added = float(found.state.a @ np.linalg.norm(problem.rows, axis=1))
    left_over = float(np.linalg.norm(2 * lam * w)) <= NOTHING * added  # w alone may have no squares
    b, risk, objective, gap = found.state.b, found.risk, found.objective, found.gap
    if left_over and objective >= without[1] * (1 - USELESS):
        w, (b, risk) = np.zeros_like(w), without  # it would point somewhere
        gap, objective = max(risk - (objective - gap), 0.0), risk
    return LinearFit(
        w=w,
        b=b - float(w @ problem.mid),
        objective=objective,
        gap=gap,
        lam=lam,
        risk=risk,
        multipliers=found.state.a,
    )


def _warn_of_gaps(solved: dict[float, Certified], tolerance: float) -> None:
    left = {lam: found.relative_gap for lam, found in solved.items() if not found.relative_gap <= tolerance}
    if left:
        worst = max(left, key=lambda lam: left[lam])
        warnings.warn(
            f"{len(left)} of {len(solved)} fits have a relative duality gap above {tolerance}; the largest is "
            f"{left[worst]:.1e} at lambda {worst}. Use a larger tolerance.",
            RuntimeWarning,
            stacklevel=3,
        )


def walk(problem: Problem, lambdas: Sequence[float], tolerance: float) -> dict[float, Certified]:
    """Solve at every lambda, from strong to weak, each from where the path leads.

    Lambdas come in any order; `tolerance` is a relative duality gap.
    """
    wanted = sorted(set(lambdas), reverse=True)
    solved: dict[float, Certified] = {}
    behind: list[tuple[float, State]] = []
    held: tuple[float, Certified] | None = None
    for lam in _stations(wanted, origin(problem)):
        if held is not None:
            solved[lam] = shrunk(held[1], lam / held[0])
            continue
        aim = tolerance if lam in wanted else max(tolerance, STATION)
        found = exact(problem, lam)
        if found is None:
            start, reach = _start(problem, lam, behind)
            found = minimise_hinge(problem, lam, start, aim, reach)
        constant = hardened(problem, found, lam)
        if constant is not None and constant.relative_gap <= tolerance:
            found, held = constant, (lam, constant)
        solved[lam] = found
        behind = [*behind[-1:], (lam, found.state)]
    return {lam: solved[lam] for lam in wanted}


def shrunk(hard: Certified, factor: float) -> Certified:
    """A machine that pays for nothing, at lambda times `factor`: the same, its multipliers in proportion."""
    state = replace(hard.state, a=hard.state.a * factor)
    return Certified(state, 0.0, hard.objective * factor, hard.gap * factor)


def _stations(wanted: Sequence[float], begin: float) -> Iterator[float]:
    """The wanted lambdas, and between those that are far apart as many more as keep every step short."""
    last = max(begin, wanted[0])
    for lam in wanted:
        steps = math.ceil((math.log(last) - math.log(lam)) / math.log(STRIDE)) if lam < last else 1
        yield from (last ** (1 - step / steps) * lam ** (step / steps) for step in range(1, steps))
        yield lam
        last = lam


def _start(problem: Problem, lam: float, behind: Sequence[tuple[float, State]]) -> tuple[State, float]:
    """A start for lambda and how far samples will move from it, in margins."""
    if not behind:
        return cold(problem, lam), math.inf
    if len(behind) == 1:
        return behind[0][1], math.inf
    (older, before), (newer, last) = behind
    ratio = min(math.log(lam / newer) / math.log(newer / older), LONGEST)
    return extrapolated(before, last, ratio, problem.cap), 2 * float(np.abs(last.f - before.f).max())


def extrapolated(before: State, last: State, ratio: float, cap: float) -> State:
    """Where the path goes if it keeps its direction: last + ratio (last - before), multipliers within bounds."""

    def ahead(old: Array, new: Array) -> Array:
        return new + ratio * (new - old)

    return State(
        ahead(before.w, last.w),
        last.b + ratio * (last.b - before.b),
        np.clip(ahead(before.a, last.a), 0, cap),
        ahead(before.f, last.f),
    )


def without_weights(problem: Problem) -> tuple[float, float]:
    """The best bias by itself, and its mean loss: the smaller class pays 2 a sample, the other nothing.

    Between classes of equal size any bias in [-1, 1] is as good, and 0 is taken.
    """
    positive = int((problem.y > 0).sum())
    negative = len(problem.y) - positive
    return float(np.sign(positive - negative)), 2 * min(positive, negative) * problem.cap


def origin(problem: Problem) -> float:
    """The lambda at which the first sample reaches the margin: lambda_0 of the plateau, for classes of equal size.

    For others every sample of the smaller class is still active there, and nearly all of the larger.
    """
    turns = problem.rows @ (balanced_multipliers(problem) @ problem.rows)
    # rows are signed, so the largest over J and over I add up to D (P_J - P_I) / 4 of the closed form
    positive = problem.y > 0
    return (float(turns[positive].max()) + float(turns[~positive].max())) / 4


def exact(problem: Problem, lam: float) -> Certified | None:
    """The closed form on the plateau of balanced classes, and for samples that do not vary at all; None elsewhere."""
    balanced = bool((problem.y > 0).sum() * 2 == len(problem.y))
    if problem.rows.shape[1] and not (balanced and lam >= origin(problem)):
        return None
    return certify_hinge(problem, cold(problem, lam), lam)


def cold(problem: Problem, lam: float) -> State:
    """A start with all of the smaller class at its cap: w = (1 / 2 lambda) sum a y x, the bias by the midpoint rule."""
    a = balanced_multipliers(problem)
    w = (a @ problem.rows) / (2 * lam)
    state = State(w, 0.0, a, problem.rows @ w)
    return certify_hinge(problem, state, lam).state


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


def midpoint_bias(scores: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """The middle of all b that minimise  mean max(1 - y (s + b), 0)  for given scores s: an interval, often a point.

    The mean is convex and piecewise linear in b. Far left every positive sample is active and no negative one,
    so that its slope is -n_J / n; at each b = y_i - s_i a positive sample falls out or a negative one comes in,
    and the slope rises by 1/n. It is 0 between the n_J-th of these points and the next. libsvm reports the middle, too.

    `scores` are w.x, (n,); y is -1 and +1, both present, (n,).

    >>> midpoint_bias(np.array([-3.0, 1.0]), np.array([-1.0, 1.0]))      # any b with -3 + b <= -1 and 1 + b >= 1
    1.0
    """
    turns = y - scores
    positive = int((y > 0).sum())
    ordered = np.partition(turns, (positive - 1, positive))
    return float(ordered[positive - 1] + ordered[positive]) / 2


def balanced_multipliers(problem: Problem) -> Array:
    """Every sample of the smaller class at 1/n, and the larger class with the same sum, evenly."""
    positive = problem.y > 0
    smaller = min(positive.sum(), (~positive).sum())
    return np.where(positive, smaller / positive.sum(), smaller / (~positive).sum()) * problem.cap


def repaired(a: Array, y: Array) -> Array:
    """Multipliers with sum a y = 0: the class with the larger sum shrunk to the other's."""
    positive = y > 0
    up, down = float(a[positive].sum()), float(a[~positive].sum())
    if up == down or min(up, down) <= 0:
        return a if up == down else np.zeros_like(a)
    return a * np.where(positive, min(up, down) / up, min(up, down) / down)


def minimise_hinge(problem: Problem, lam: float, start: State, tolerance: float, reach: float) -> Certified:
    """The machine at `lam`, from a start nearby.

    Multipliers of `start` are within [0, 1/n]; the better it is, the faster. `tolerance` is a relative duality gap at
    which to stop; that of the best machine found says whether it was reached. `reach` is the expected movement of
    samples, in margins: those farther from the hinge's kink are left out, until the gap over all samples says that
    this was wrong.
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

    The direction, `dw` and `db`, leaves from the weights `w`, where the slopes are `at`; along it f changes by `df`,
    window.rows dw + y db. `sigma` is the steepness of the smoothing.
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
