"""The hinge by scikit-learn's libsvm: the oracle of the tests, and a solver to fall back on."""

import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from clearance.linear._certificate import Certified, State, certify_hinge
from clearance.linear._problem import Problem

CACHE_MEGABYTES = 1000
MOST_STEPS = (
    10_000_000  # as libsvm has it outside scikit-learn, where it may never end; 100 a sample if that is more
)


def libsvm_path(problem: Problem, lambdas: Sequence[float], tolerance: float) -> dict[float, Certified]:
    """Solve at every lambda from scratch, C = 1 / (2 lambda n).

    Args:
        problem: The samples.
        lambdas: Any order.
        tolerance: libsvm's own ``tol``: how far the optimality conditions may be missed, in margins. It
            is no gap; the gap that was reached is returned.

    Rows are given to it in units of their typical length, or its stopping rule would depend on that: w / c and
    C / c^2 for c x.

    Warns:
        RuntimeWarning: If it did not come to an end of its own.
    """
    points = problem.rows * problem.y[:, None]
    gram = points @ points.T
    square = float(np.trace(gram)) / len(gram) or 1.0  # rows that are all 0 have no unit
    steps = max(MOST_STEPS, 100 * len(gram))
    unfinished = []
    solved = {}
    for lam in set(lambdas):
        cost = problem.cap / (2 * lam)
        machine = SVC(
            C=cost * square, kernel="precomputed", tol=tolerance, cache_size=CACHE_MEGABYTES, max_iter=steps
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # said below, in our words
            machine.fit(gram / square, problem.y)
        if machine.fit_status_:
            unfinished.append(lam)
        signed = np.zeros(len(points))
        signed[machine.support_] = machine.dual_coef_[0] / square
        w, b = signed @ points, float(machine.intercept_[0])
        state = State(w, b, np.abs(signed) * 2 * lam, problem.rows @ w + problem.y * b)
        solved[lam] = certify_hinge(problem, state, lam)
    if unfinished:
        worst = max(unfinished, key=lambda lam: solved[lam].relative_gap)
        warnings.warn(
            f"libsvm had not finished after {steps} steps at {len(unfinished)} of {len(solved)} lambdas; the largest "
            f"relative gap is {solved[worst].relative_gap:.1e} at lambda {worst}. Use solver='newton'.",
            RuntimeWarning,
            stacklevel=3,
        )
    return solved
