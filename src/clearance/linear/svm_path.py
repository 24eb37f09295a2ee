"""Exact linear support vector machines with a free bias, for a whole grid of lambda."""

import warnings

import numpy as np
from numpy.typing import ArrayLike

from clearance._checks import check_choice, check_positive
from clearance.linear._certificate import Certified
from clearance.linear._hinge_machine import HingeMachine
from clearance.linear._libsvm import libsvm_path
from clearance.linear._machine import Machine, walk
from clearance.linear._problem import Problem, as_points, problem_of
from clearance.linear._softplus_machine import SoftplusMachine
from clearance.linear.fits import LinearFit

MACHINES: dict[str, type[Machine]] = {"hinge": HingeMachine, "softplus": SoftplusMachine}
SOLVERS = ("newton", "libsvm")
NOTHING = 1e-13  # of the lengths that are added up in 2 lambda w: what is left of them where it ought to be 0
USELESS = 1e-12  # of the risk without weights: a gain that rounding makes up


def svm_path(
    x: ArrayLike,
    y: ArrayLike,
    lambdas: ArrayLike,
    *,
    loss: str = "hinge",
    tolerance: float = 1e-6,
    solver: str = "newton",
) -> list[LinearFit]:
    """Minimise  (1/n) sum f(y (w.x + b)) + lambda ||w||^2  for every lambda, each with its duality gap.

    The penalty does not see b; where the best b is an interval, its middle is taken (libsvm's rule). From strong to
    weak regularisation every solution starts from the two before it. The hinge has a closed form on the plateau of
    strong regularisation, and one solution for all weak ones if the classes can be separated (the hard margin).

    Source: the problem is that of Tanay and Griffin (2018), whose prose gives lambda in a unit 1e5 times smaller; the
    method is an augmented Lagrangian with a semismooth Newton method inside.

    Args:
        x: Points, shape (n, d), finite; any n >= 2 and d >= 1.
        y: -1 and +1, both present, shape (n,).
        lambdas: Above 0, in any order. libsvm's C is 1 / (2 lambda n).
        loss: ``"hinge"``, or ``"softplus"`` for logistic regression.
        tolerance: Relative duality gap (gap / objective) to reach; 1e-6 puts angles of MNIST's digit pairs
            within 5e-4 of exact.
        solver: ``"newton"``, or ``"libsvm"`` (hinge only): scikit-learn's, from scratch for each lambda, with
            `tolerance` as its ``tol``, holding an n x n matrix.

    Returns:
        One fit for each lambda, in the order given. Samples that coincide in all features, or classes whose centroids
        do, or a smaller class in the midst of a larger one, can give w = 0: an exact solution without a boundary. For
        classes that coincide w is exactly 0; for the last kind it is so up to the solver's tolerance alone.

    Raises:
        ValueError: If a value is not finite, a label is neither -1 nor +1, a class is empty, a lambda is not
            above 0, or the solver does not know the loss.

    Warns:
        RuntimeWarning: If solver "newton" leaves a gap above `tolerance`, as rounding may force; the fits say how
            large. That of "libsvm" is what its own ``tol`` leaves, and is warned of only if libsvm gives up.

    Memory: one copy of x, and per lambda a matrix of the size of the free support vectors or of d, whichever is less.

    >>> fits = svm_path([[-3.0], [-1.0], [1.0], [3.0]], [-1, -1, 1, 1], [10.0, 1e-3])
    >>> [round(float(fit.w[0]), 6) for fit in fits], fits[1].risk      # plateau: 4 / (4 lambda); hard margin: 1
    ([0.1, 1.0], 0.0)
    """
    points, labels = as_points(x, y)
    wanted = _checked_lambdas(lambdas)
    check_choice("loss", loss, MACHINES)
    check_choice("solver", solver, SOLVERS)
    check_positive("tolerance", tolerance)
    if solver == "libsvm" and loss != "hinge":
        raise ValueError(f"`solver` 'libsvm' knows the hinge only; got loss {loss!r}; use solver 'newton'.")
    problem = problem_of(points, labels)
    if solver == "libsvm":
        solved = libsvm_path(problem, wanted, tolerance)
    else:
        solved = walk(MACHINES[loss](), problem, wanted, tolerance)
        _warn_of_gaps(solved, tolerance)
    without = MACHINES[loss]().without_weights(problem)
    return [_fit(problem, lam, solved[lam], without) for lam in wanted]


def _checked_lambdas(lambdas: ArrayLike) -> list[float]:
    given = np.asarray(lambdas, dtype=np.float64)
    if given.ndim != 1 or not len(given):
        raise ValueError(f"`lambdas` must hold at least one value in one row; got shape {given.shape}.")
    wanted = given.tolist()
    for lam in wanted:
        check_positive("lambdas", lam)
    return wanted


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
