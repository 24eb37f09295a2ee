"""The hinge by scikit-learn's libsvm: the oracle of the tests, and a solver to fall back on."""

from collections.abc import Sequence

import numpy as np
from sklearn.svm import SVC

from clearance.linear._certificate import Certified, State, certify_hinge
from clearance.linear._problem import Problem

CACHE_MEGABYTES = 1000


def libsvm_path(problem: Problem, lambdas: Sequence[float], tolerance: float) -> dict[float, Certified]:
    """Solve at every lambda from scratch, C = 1 / (2 lambda n).

    Args:
        problem: The samples.
        lambdas: Any order.
        tolerance: libsvm's own ``tol``: how far the optimality conditions may be missed, in margins. It
            is no gap; the gap that was reached is returned.
    """
    points = problem.rows * problem.y[:, None]
    gram = points @ points.T
    solved = {}
    for lam in set(lambdas):
        cost = problem.cap / (2 * lam)
        machine = SVC(C=cost, kernel="precomputed", tol=tolerance, cache_size=CACHE_MEGABYTES).fit(
            gram, problem.y
        )
        signed = np.zeros(len(points))
        signed[machine.support_] = machine.dual_coef_[0]
        w, b = signed @ points, float(machine.intercept_[0])
        state = State(w, b, np.abs(signed) * 2 * lam, problem.rows @ w + problem.y * b)
        solved[lam] = certify_hinge(problem, state, lam)
    return solved
