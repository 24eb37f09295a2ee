"""scikit-learn's libsvm as a solver that can be asked for."""

import numpy as np
import pytest

from clearance.linear import _libsvm, svm_path
from linear.worlds import clouds  # type: ignore[import-not-found]  # on pytest's path

GRID = [10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4]


def test_libsvm_can_be_asked_for():
    x, y = clouds((20, 30))
    ours = svm_path(x, y, GRID, tolerance=1e-10)
    theirs = svm_path(x, y, GRID, tolerance=1e-10, solver="libsvm")
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.w, other.w, rtol=1e-4, atol=1e-8)
        assert one.b == pytest.approx(other.b, rel=1e-4)
        assert 0 <= other.relative_gap <= 1e-4


@pytest.mark.parametrize("unit", [1e-3, 1.0, 255.0])
def test_libsvm_s_stopping_rule_knows_no_unit(unit):
    """Machines on c x are w / c at lambda c^2, to the same tolerance."""
    x, y = clouds((20, 30))
    ours = svm_path(x, y, GRID[:4], tolerance=1e-6, solver="libsvm")
    scaled = svm_path(unit * x, y, np.array(GRID[:4]) * unit**2, tolerance=1e-6, solver="libsvm")
    for one, other in zip(ours, scaled, strict=True):
        np.testing.assert_allclose(unit * other.w, one.w, rtol=1e-6)
        assert other.relative_gap == pytest.approx(one.relative_gap, abs=1e-9)


def test_libsvm_that_never_ends_is_ended_and_says_so(monkeypatch):
    monkeypatch.setattr(_libsvm, "MOST_STEPS", 20)
    x, y = [[0.0], [1.0], [2.0], [3.0]], [1, -1, 1, -1]
    with pytest.warns(
        RuntimeWarning, match=r"not finished after 400 steps at 1 of 2 lambdas.*at lambda 1e-14"
    ):
        easy, hard = svm_path(x, y, [1.0, 1e-14], solver="libsvm")
    assert easy.relative_gap < 1e-6 < hard.relative_gap
