"""Identities of exact support vector machines, on small data."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from clearance.linear import (
    adversarial_distance,
    error_distance,
    error_rate,
    svm_path,
    tilting_angle,
    tilting_plane,
)
from clearance.linear.hyperplane import margins
from clearance.linear.tilting import centroids
from linear.plateau import plateau  # on pytest's path
from linear.worlds import clouds, separable  # on pytest's path

EXACT = 1e-12
GRID = np.logspace(2, -5, 36)


def readings(fit, x, y):
    numbers = (tilting_angle, adversarial_distance, error_distance, error_rate)
    return [number(fit.plane, x, y) for number in numbers]


def test_i08_data_times_c_and_lambda_times_c_squared():
    x, y = clouds()
    factor = 255.0
    for lam in (1.0, 1e-2, 1e-4):
        (plain,) = svm_path(x, y, [lam], tolerance=EXACT)
        (grey,) = svm_path(factor * x, y, [factor**2 * lam], tolerance=EXACT)
        np.testing.assert_allclose(grey.w * factor, plain.w, rtol=1e-5)
        assert grey.risk == pytest.approx(plain.risk, rel=1e-6)
        angle, adversarial, error, rate = readings(plain, x, y)
        expected = [angle, factor * adversarial, factor * error, rate]
        assert readings(grey, factor * x, y) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("factor", [1e-6, 1e6, 1e40])
def test_i08_however_large_or_small_the_unit(factor):
    x, y = separable()
    for lam in (1.0, 1e-3, 1e-9):
        (plain,) = svm_path(x, y, [lam], tolerance=1e-10)
        (scaled,) = svm_path(factor * x, y, [factor**2 * lam], tolerance=1e-10)
        np.testing.assert_allclose(scaled.w * factor, plain.w, rtol=1e-5)
        assert scaled.b == pytest.approx(plain.b, rel=1e-5, abs=1e-7)
    (weak,) = svm_path(
        factor * x, y, [1e-2], tolerance=1e-10
    )  # far above and far below what the data ask for
    assert bool(weak.w.any())


def test_i12_and_the_one_that_a_quadratic_program_finds():
    """No machine of the path: the least ||w|| with every margin at 1, by SciPy."""
    x, y = separable()
    start = np.append(np.zeros(x.shape[1]), 0.0)
    found = minimize(
        lambda v: v[:-1] @ v[:-1],
        start,
        jac=lambda v: np.append(2 * v[:-1], 0.0),
        constraints={
            "type": "ineq",
            "fun": lambda v: y * (x @ v[:-1] + v[-1]) - 1,
            "jac": lambda v: y[:, None] * np.c_[x, np.ones(len(x))],
        },
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    for fit in svm_path(x, y, [1e-4, 1e-7, 1e-20], tolerance=1e-10):
        np.testing.assert_allclose(fit.w, found.x[:-1], rtol=1e-4, atol=1e-6)
        assert fit.b == pytest.approx(found.x[-1], abs=1e-5)


def test_i09_the_plateau():
    x, y = clouds()
    flat = plateau(x, y)
    first, second = (centroid.numpy() for centroid in centroids(x, y))
    length = np.linalg.norm(second - first)
    projections = (x - (first + second) / 2) @ (second - first) / length
    least, most = projections[y < 0].min(), projections[y > 0].max()
    assert flat.lam == pytest.approx(length * (most - least) / 8)
    for lam in (flat.lam, 3 * flat.lam, 1e3):
        (fit,) = svm_path(x, y, [lam])
        np.testing.assert_allclose(fit.w, (second - first) / (4 * lam), rtol=1e-10)
        assert fit.objective == pytest.approx(1 - length**2 / (16 * lam))
        assert tilting_plane(fit.plane, x, y).offset == pytest.approx(-(least + most) / 2)
        assert fit.gap <= 1e-14
        np.testing.assert_allclose(flat.solution(lam)[0], fit.w, rtol=1e-10)
        assert flat.solution(lam)[1] == pytest.approx(fit.b)


def test_i09_the_boundary_tilts_as_soon_as_the_plateau_ends():
    x, y = clouds()
    begins = plateau(x, y).lam
    at, below = svm_path(x, y, [begins, 0.97 * begins], tolerance=EXACT)
    assert tilting_angle(at.plane, x, y) < 1e-8
    assert tilting_angle(below.plane, x, y) > 1e-3
    with pytest.raises(ValueError, match="where the plateau begins"):
        plateau(x, y).solution(0.9 * plateau(x, y).lam)


@pytest.mark.parametrize("sizes", [(30, 30), (10, 45)])
def test_i10_optimality_conditions(sizes):
    x, y = clouds(sizes)
    for fit in svm_path(x, y, GRID, tolerance=EXACT):
        a = fit.multipliers
        assert (a >= 0).all()
        assert (a <= 1 / len(y) * (1 + 1e-12)).all()
        assert abs(a @ y) <= 1e-14
        assert 0 <= fit.relative_gap <= EXACT
        # the gap is a sum of terms that are not negative, of which lambda ||w - w(a)||^2 is one
        assert np.linalg.norm((a * y) @ x / (2 * fit.lam) - fit.w) <= np.sqrt((fit.gap + 1e-14) / fit.lam)
        assert fit.risk == pytest.approx(a.sum() - 2 * fit.lam * fit.w @ fit.w, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("make", [clouds, separable])
def test_i11_norm_and_risk_are_monotone_and_the_objective_concave(make):
    x, y = make()
    fits = svm_path(x, y, GRID, tolerance=1e-10)
    norms = np.array([fit.plane.scale for fit in fits])
    risks = np.array([fit.risk for fit in fits])
    objectives = np.array([fit.objective for fit in fits])
    assert (np.diff(norms) >= -1e-6 * norms[1:]).all()
    assert (np.diff(risks) <= 1e-8).all()
    assert (np.diff(objectives) <= 1e-12).all()
    slopes = np.diff(objectives) / np.diff(GRID)
    assert (np.diff(slopes) >= -1e-9 * slopes[1:]).all()  # steeper where lambda is smaller: concave
    assert norms[-1] > 10 * norms[0]


@pytest.mark.parametrize("weakest", [1e-9, 1e-14, 1e-20])
def test_i12_the_hard_margin_is_constant(weakest):
    x, y = separable()
    fits = svm_path(x, y, [1e-4, 1e-5, 1e-7, weakest], tolerance=1e-10)
    for fit in fits:
        assert fit.risk == 0
        assert float(margins(fit.plane, x, y).min()) == pytest.approx(1 / fit.plane.scale, rel=1e-7)
        np.testing.assert_allclose(fit.w, fits[0].w, rtol=1e-9)
        assert fit.b == pytest.approx(fits[0].b)
        assert readings(fit, x, y) == pytest.approx(readings(fits[0], x, y))
        assert fit.relative_gap <= 1e-10
    assert readings(svm_path(x, y, [1e-1])[0], x, y) != pytest.approx(readings(fits[0], x, y), rel=1e-3)


@pytest.mark.parametrize("sizes", [(30, 30), (10, 45)])
def test_i13_swapped_classes(sizes):
    x, y = clouds(sizes)
    for lam in (10.0, 1e-1, 1e-3):
        (one,) = svm_path(x, y, [lam], tolerance=EXACT)
        (other,) = svm_path(x, -y, [lam], tolerance=EXACT)
        np.testing.assert_allclose(other.w, -one.w, rtol=1e-4, atol=1e-9)
        assert readings(other, x, -y) == pytest.approx(readings(one, x, y), abs=1e-5)
        mirrored = tilting_plane(other.plane, x, -y).offset
        assert mirrored == pytest.approx(-tilting_plane(one.plane, x, y).offset, abs=1e-5)


def test_a_path_of_torch_tensors_is_that_of_arrays():
    x, y = clouds()
    (from_arrays,) = svm_path(x, y, [0.1])
    (from_tensors,) = svm_path(torch.as_tensor(x), torch.as_tensor(y).int(), [0.1])
    assert (from_tensors.w == from_arrays.w).all()
