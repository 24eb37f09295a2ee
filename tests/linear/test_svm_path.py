"""Exact paths against scikit-learn's SVC, and on data that are unusual but well defined."""

import sys

import numpy as np
import pytest
from sklearn.svm import SVC

from clearance.linear import svm_path
from linear.plateau import plateau  # on pytest's path
from linear.worlds import clouds, separable  # on pytest's path

GRID = [10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4]


def primal(w, b, x, y, lam):
    return float(np.maximum(1 - y * (x @ w + b), 0).mean() + lam * w @ w)


@pytest.mark.parametrize("sizes", [(30, 30), (12, 50), (1, 40)])
def test_scikit_learn_s_machine(sizes):
    x, y = clouds(sizes)
    for fit in svm_path(x, y, GRID, tolerance=1e-12):
        oracle = SVC(kernel="linear", C=1 / (2 * fit.lam * len(y)), tol=1e-9, max_iter=10**7).fit(x, y)
        assert fit.objective == pytest.approx(primal(fit.w, fit.b, x, y, fit.lam), rel=1e-12)
        assert fit.objective <= primal(oracle.coef_[0], oracle.intercept_[0], x, y, fit.lam) * (1 + 1e-12)
        np.testing.assert_allclose(fit.w, oracle.coef_[0], rtol=0, atol=1e-4 * fit.plane.scale)
        assert fit.b == pytest.approx(float(oracle.intercept_[0]), abs=1e-4)


def test_the_gap_bounds_what_is_lost():
    x, y = clouds()
    for lam in GRID:
        (loose,) = svm_path(x, y, [lam], tolerance=1e-2)
        (tight,) = svm_path(x, y, [lam], tolerance=1e-13)
        assert loose.objective - tight.objective <= loose.gap + 1e-15
        assert np.sum((loose.w - tight.w) ** 2) <= (loose.gap + tight.gap) / lam + 1e-12


def test_neither_order_nor_company_of_lambdas_matters():
    x, y = clouds()
    together = svm_path(x, y, GRID, tolerance=1e-12)
    backwards = svm_path(x, y, [*GRID[::-1], GRID[2]], tolerance=1e-12)
    assert [fit.lam for fit in backwards] == [*GRID[::-1], GRID[2]]
    for one, other in zip(together, backwards[-2::-1], strict=True):
        (alone,) = svm_path(x, y, [one.lam], tolerance=1e-12)
        np.testing.assert_allclose(other.w, one.w, rtol=1e-5)
        np.testing.assert_allclose(alone.w, one.w, rtol=1e-5)


def test_samples_left_out_by_mistake_come_back(monkeypatch):
    """With no reach at all the first round sees too few samples, and the gap over all of them says so."""
    x, y = clouds((60, 60))
    (right,) = svm_path(x, y, [1e-2], tolerance=1e-10)
    module = sys.modules[svm_path.__module__]
    whole = module.minimise_hinge
    reaches = []

    def blinkered(problem, lam, start, tolerance, reach):
        reaches.append(reach)
        return whole(problem, lam, start, tolerance, 1e-3)

    monkeypatch.setattr(module, "minimise_hinge", blinkered)
    (found,) = svm_path(x, y, [1e-2], tolerance=1e-10)
    assert reaches
    np.testing.assert_allclose(found.w, right.w, rtol=1e-4)


def test_more_features_than_samples():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10, 60)), np.repeat([-1.0, 1.0], 5)
    for fit in svm_path(x, y, GRID, tolerance=1e-10):
        oracle = SVC(kernel="linear", C=1 / (2 * fit.lam * len(y)), tol=1e-10).fit(x, y)
        np.testing.assert_allclose(fit.w, oracle.coef_[0], rtol=1e-4, atol=1e-8)
        assert fit.relative_gap <= 1e-10


def test_constant_features_get_weight_zero_and_change_nothing():
    x, y = clouds()
    padded = np.hstack([x, np.full((len(x), 2), 7.0)])
    (plain,) = svm_path(x, y, [1e-2])
    (fit,) = svm_path(padded, y, [1e-2])
    assert (fit.w[5:] == 0).all()
    np.testing.assert_allclose(fit.w[:5], plain.w)
    assert fit.b == pytest.approx(plain.b)


def test_two_samples_have_the_plane_between_them():
    x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([-1.0, 1.0])
    flat = plateau(x, y)
    assert flat.lam == pytest.approx(25 / 8)
    for fit in svm_path(x, y, [100.0, flat.lam, 1e-2, 1e-6]):
        size = min(5 / (4 * fit.lam), 2 / 5)
        np.testing.assert_allclose(fit.w, [0.6 * size, 0.8 * size], rtol=1e-6)
        assert fit.b == pytest.approx(-2.5 * size, rel=1e-6)
        assert fit.relative_gap <= 1e-6


@pytest.mark.parametrize("sizes", [(4, 4), (2, 6), (6, 2)])
def test_identical_images_leave_the_bias_alone(sizes):
    x, y = np.full((8, 3), 0.5), np.repeat([-1.0, 1.0], sizes)
    for fit in svm_path(x, y, [1.0, 1e-4]):
        assert (fit.w == 0).all()
        assert fit.gap <= 1e-15
        assert fit.b == np.sign(sizes[1] - sizes[0])


def test_identical_centroids_give_no_weights_where_none_help():
    x, y = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]]), np.array([-1.0, -1.0, 1.0, 1.0])
    for fit in svm_path(x, y, [1.0, 1e-3]):
        assert np.abs(fit.w).max() <= 1e-12
        assert (fit.objective, fit.b, fit.gap) == pytest.approx((1.0, 0.0, 0.0))


def test_mirrored_classes_have_a_boundary_through_the_origin():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(20, 4)) + 0.3
    x, y = np.concatenate([-half, half]), np.repeat([-1.0, 1.0], 20)
    for fit in svm_path(x, y, GRID, tolerance=1e-12):
        assert fit.b == pytest.approx(0, abs=1e-5)


def test_duplicates_with_opposite_labels():
    x, y = separable()
    x, y = np.concatenate([x, x[:1], x[-1:]]), np.concatenate([y, -y[:1], -y[-1:]])
    for fit in svm_path(x, y, GRID, tolerance=1e-9):
        assert fit.risk >= 2 / len(y)
        assert fit.relative_gap <= 1e-9
        oracle = SVC(kernel="linear", C=1 / (2 * fit.lam * len(y)), tol=1e-9, max_iter=10**7).fit(x, y)
        theirs = primal(oracle.coef_[0], oracle.intercept_[0], x, y, fit.lam)
        assert fit.objective <= theirs * (1 + 1e-9)


def test_every_sample_twice_is_the_same_machine():
    x, y = clouds()
    for fit, twice in zip(
        svm_path(x, y, GRID, tolerance=1e-11),
        svm_path(np.r_[x, x], np.r_[y, y], GRID, tolerance=1e-11),
        strict=True,
    ):
        np.testing.assert_allclose(twice.w, fit.w, rtol=1e-4, atol=1e-9)
        assert twice.b == pytest.approx(fit.b, abs=1e-5)


def test_a_gap_that_is_not_reached_is_warned_of():
    x, y = clouds()
    with pytest.warns(RuntimeWarning, match="fits have a relative duality gap above 1e-18"):
        fits = svm_path(x, y, np.logspace(3, -2, 9), tolerance=1e-18)
    assert 1e-18 < max(fit.relative_gap for fit in fits) < 1e-12  # some reach 0


def test_rows_in_reverse_order_are_the_same_machine():
    """Torch takes no array with negative strides."""
    x, y = clouds()
    (forwards,) = svm_path(x, y, [1e-2], tolerance=1e-12)
    (backwards,) = svm_path(x[::-1], y[::-1], [1e-2], tolerance=1e-12)
    np.testing.assert_allclose(backwards.w, forwards.w, rtol=1e-5)


def test_what_is_given_is_not_changed():
    x, y = clouds()
    before = x.copy(), y.copy()
    svm_path(x, y, [1e-2])
    assert (x == before[0]).all()
    assert (y == before[1]).all()


def refused(message, x=((0.0,), (1.0,)), y=(-1, 1), lambdas=(1.0,), **settings):
    with pytest.raises(ValueError, match=message):
        svm_path(x, y, lambdas, **settings)


def test_refusals():
    refused("got none of -1: one class has no boundary", y=(1, 1))
    refused("got none of [+]1", y=(-1, -1))
    refused(r"`y` must hold -1 and \+1; got 0.0", y=(0, 1))
    refused(r"one label for each of 2 points; got \(3,\)", y=(-1, 1, 1))
    refused("`x` must be finite; got nan", x=((0.0,), (float("nan"),)))
    refused("`x` must be finite; got inf", x=((float("inf"),), (0.0,)))
    refused("squares within float64; got a largest value of 1e[+]160", x=((-1e160,), (1e160,)))
    refused("squares within float64; got a largest value of 1e-170", x=((-1e-170,), (1e-170,)))
    refused(r"shape \(n, d\); got \(2,\)", x=(0.0, 1.0))
    refused(r"at least one feature; got shape \(2, 0\)", x=((), ()))
    refused("`lambdas` must be a finite number above 0; got 0.0", lambdas=(1.0, 0))
    refused("`lambdas` must be a finite number above 0; got -1.0", lambdas=(-1.0,))
    refused("`lambdas` must be a finite number above 0; got nan", lambdas=(float("nan"),))
    refused("`lambdas` must hold at least one value", lambdas=())
    refused("`tolerance` must be", tolerance=0.0)
    with pytest.raises(ValueError, match="classes of equal size; got 1 and 2"):
        plateau([[0.0], [1.0], [2.0]], [-1, 1, 1])


@pytest.mark.parametrize("unit", [1.0, 255.0])
def test_weights_of_classes_that_overlap_stay_however_weak_the_penalty(unit):
    """2 lambda w is next to nothing of what is added up in it there, and w is not."""
    rng = np.random.default_rng(0)
    x, y = unit * rng.normal(size=(80, 3)), np.repeat([-1.0, 1.0], 40)
    fits = svm_path(x, y, [1e-6, 1e-10, 1e-14, 1e-20])
    for fit in fits:
        assert fit.w.any()
        assert fit.risk == pytest.approx(primal(fit.w, fit.b, x, y, lam=0), rel=1e-9)
    np.testing.assert_allclose(fits[-1].w, fits[-2].w, rtol=0.1, atol=1e-3 / unit)


def test_unequal_classes_that_coincide_have_no_weights_either():
    points = np.random.default_rng(0).random((40, 5))
    x, y = np.tile(points, (4, 1)), np.repeat([1.0, -1.0, -1.0, -1.0], 40)
    for fit in svm_path(x, y, [*GRID, 1e-12, 1e-20]):
        assert not fit.w.any()
        assert fit.risk == fit.objective == pytest.approx(0.5, rel=1e-6)
        assert fit.risk == pytest.approx(primal(fit.w, fit.b, x, y, lam=0), rel=1e-9)


def test_lambdas_farther_apart_than_numbers_reach():
    x, y = separable()
    strong, weak = svm_path(x, y, [1e300, 1e-300])
    assert strong.risk == pytest.approx(1.0)
    np.testing.assert_allclose(strong.w * 1e300, svm_path(x, y, [1e3])[0].w * 1e3, rtol=1e-9)
    with pytest.raises(ValueError, match="squares within float64"):
        _ = strong.plane
    assert weak.risk == 0


def test_classes_that_coincide_have_no_boundary_and_say_so():
    points = np.random.default_rng(0).random((300, 50))
    x, y = np.concatenate([points, points]), np.repeat([1.0, -1.0], 300)
    for fit in svm_path(x, y, GRID):
        assert not fit.w.any()
        assert fit.risk == pytest.approx(1.0)
        with pytest.raises(ValueError, match="Check whether the class centroids coincide"):
            _ = fit.plane
    shuffled = np.concatenate([points, points[np.random.default_rng(1).permutation(300)]])
    assert plateau(shuffled, y).lam == 0
