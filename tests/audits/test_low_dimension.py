"""Directions that set classes apart and axes that classes lie on: scipy, scikit-learn, rays."""

import itertools

import numpy as np
import pytest
import torch
from scipy.linalg import eigh
from sklearn.decomposition import PCA
from torch import nn

from clearance.audits import LowDimension
from clearance.data import ImageSet
from clearance.data.synthetic import GaussianClasses
from clearance.models import Classifier

WORLD = GaussianClasses(class_count=3, shape=(1, 3, 3), separation=2.5, noise=0.05)
TRAIN, TEST = WORLD.images(60, seed=0), WORLD.images(300, seed=1)


def pixels(features=9, classes=3):
    return Classifier(nn.Flatten(), nn.Linear(features, classes), mean=0.5, std=0.1)


def rows(data):
    return ((data.images - 0.5) / 0.1).flatten(1).double().numpy()


@pytest.fixture(scope="module")
def findings():
    return LowDimension()(pixels(), TRAIN, TEST)


def by_context(findings, name):
    return {tuple(m.context.values()): m for m in findings.measurements if m.name == name}


def slow_direction(points, own, eps):
    """Largest generalised eigenvalue of S_B, S_W + eps tr(S_W) / D I, and its vector toward the class."""
    groups = points[own], points[~own]
    within = sum((g - g.mean(axis=0)).T @ (g - g.mean(axis=0)) for g in groups)
    offsets = [g.mean(axis=0) - points.mean(axis=0) for g in groups]
    between = sum(len(g) * np.outer(m, m) for g, m in zip(groups, offsets, strict=True))
    values, vectors = eigh(between, within + eps * np.trace(within) / 9 * np.eye(9))
    return values[-1], vectors[:, -1]


def slow_ratio(scores, own):
    groups = scores[own], scores[~own]
    within = sum(((g - g.mean()) ** 2).sum() for g in groups)
    return sum(len(g) * (g.mean() - scores.mean()) ** 2 for g in groups) / within


def slow_cut(scores, own):
    """The best cut among all, and its orientation, by trying each."""
    places = np.sort(scores)
    cuts = [(a + b) / 2 for a, b in itertools.pairwise(places)]
    tried = [
        (float(((scores > cut) != (own if up else ~own)).mean()), cut, up) for cut in cuts for up in (1, 0)
    ]
    return min(tried, key=lambda one: one[0])


def test_2_5_eigenvalues_and_thresholds_are_those_of_slow_matrices(findings):
    unit = {name: x / np.linalg.norm(x, axis=1, keepdims=True) for name, x in
            (("train", rows(TRAIN)), ("test", rows(TEST)))}  # fmt: skip
    eigenvalues, errors = by_context(findings, "lda_eigenvalue"), by_context(findings, "threshold_error")
    for chosen, name in enumerate(TRAIN.classes):
        own, own_test = TRAIN.labels.numpy() == chosen, TEST.labels.numpy() == chosen
        for eps in (1e-8, 1e-3, 1e-1) if chosen == 0 else (1e-3,):
            value, direction = slow_direction(unit["train"], own, eps)
            assert eigenvalues[name, eps, "train"].value == pytest.approx(value, rel=1e-5)
            expected = slow_ratio(unit["test"] @ direction, own_test)
            assert eigenvalues[name, eps, "test"].value == pytest.approx(expected, rel=1e-5)
        _, direction = slow_direction(unit["train"], own, 1e-3)
        scores, test_scores = unit["train"] @ direction, unit["test"] @ direction
        error, _, _ = slow_cut(test_scores, own_test)
        assert errors[name, 1e-3, "test"].value == pytest.approx(error, abs=1.1 / len(TEST))
        _, cut, up = slow_cut(scores, own)
        fair = ((test_scores > cut) != (own_test if up else ~own_test)).mean()
        assert errors[name, 1e-3, "train"].value == pytest.approx(fair, abs=2.1 / len(TEST))


def test_2_5_which_numbers_there_are(findings):
    eigenvalues = by_context(findings, "lda_eigenvalue")
    regularisers = {eps for name, eps, _ in eigenvalues if name == "0"}
    assert regularisers == {1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1}
    assert len(eigenvalues) == 2 * (8 + 2)
    assert {m.n for key, m in eigenvalues.items() if key[2] == "train"} == {len(TRAIN)}
    assert {m.better for m in eigenvalues.values()} == {"higher"}
    errors = by_context(findings, "threshold_error")
    assert len(errors) == 6
    assert {(m.n, m.better) for m in errors.values()} == {(len(TEST), "lower")}


def test_2_5_the_threshold_chosen_on_test_is_never_worse(findings):
    errors = by_context(findings, "threshold_error")
    for name in TRAIN.classes:
        assert errors[name, 1e-3, "test"].value <= errors[name, 1e-3, "train"].value < 1 / 3


def test_2_5_a_regulariser_outside_the_list_is_measured_too():
    found = by_context(
        LowDimension(regularisers=(1e-2,), regulariser=0.5)(pixels(), TRAIN, TEST), "lda_eigenvalue"
    )
    assert {eps for name, eps, _ in found if name == "0"} == {0.5, 1e-2}
    assert {eps for name, eps, _ in found if name == "2"} == {0.5}


def test_2_5_axes_are_those_of_numpy(findings):
    shares, ranks = by_context(findings, "first_axis_share"), by_context(findings, "effective_rank")

    def spectrum(points):
        values = np.linalg.eigvalsh(np.cov(points.T))
        return values / values.sum()

    def rank(share):
        return np.exp(-(share * np.log(share)).sum())

    own = [spectrum(rows(TEST)[TEST.labels.numpy() == k]) for k in range(3)]
    for name, share in zip(TEST.classes, own, strict=True):
        assert shares[(name,)].value == pytest.approx(share.max(), rel=1e-5)
        assert shares[(name,)].n == 300
    mean = shares[("mean",)]
    assert (mean.value, mean.n) == (pytest.approx(np.mean([s.max() for s in own]), rel=1e-5), 3)
    assert mean.spread == pytest.approx(np.std([s.max() for s in own], ddof=1), rel=1e-4)
    assert ranks[("all",)].value == pytest.approx(rank(spectrum(rows(TEST))), rel=1e-5)
    assert ranks[("mean",)].value == pytest.approx(np.mean([rank(s) for s in own]), rel=1e-5)


def rays(lengths, seed):
    """Classes on three rays from 0, each sample somewhere along its own."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(3).repeat_interleave(20)
    along = lengths[0] + (lengths[1] - lengths[0]) * torch.rand(60, 1, generator=draws)
    return ImageSet((torch.eye(3)[labels] * along).view(60, 1, 1, 3), labels, tuple("abc"))


def test_p1_rays_are_lines_and_unit_length_makes_them_points():
    """What the source sees in FOCA's features: one axis a class, and a huge eigenvalue at unit length."""
    model = Classifier(nn.Flatten(), nn.Linear(3, 3), mean=0.0, std=1.0)
    found = LowDimension()(model, rays((0.2, 0.9), 0), rays((0.3, 0.8), 1))
    for m in by_context(found, "first_axis_share").values():
        assert m.value == pytest.approx(1.0, abs=1e-9)
    assert {m.value for m in by_context(found, "threshold_error").values()} == {0.0}
    # e_1 against points e_2 and e_3: S_W = 10 (e_2 - e_3)(e_2 - e_3)^T, all else is the regulariser
    eigenvalues = by_context(found, "lda_eigenvalue")
    for eps in (1e-3, 1e-8):
        expected = 20 * 40 / 60 * 1.5 / (eps * 20 / 3)
        assert eigenvalues["a", eps, "train"].value == pytest.approx(expected, rel=1e-5)


def test_in_the_plane_of_the_picture_shares_are_those_of_numpy(findings):
    """Axes of the training features by SVD; the larger variance of each class of test features on them."""
    train, test = rows(TRAIN), rows(TEST)
    axes = np.linalg.svd(train - train.mean(axis=0), full_matrices=False)[2][:2]
    spectra = [np.linalg.eigvalsh(np.cov((test[TEST.labels.numpy() == k] @ axes.T).T)) for k in range(3)]
    (found,) = (m for m in findings.measurements if m.name == "plane_axis_share")
    assert found.value == pytest.approx(np.mean([s.max() / s.sum() for s in spectra]), rel=1e-6)
    assert 0.5 <= found.value <= 1


def test_exhibits_are_pictures_of_what_was_measured(findings):
    spectrum, line, plane = findings.exhibits
    assert (spectrum.kind, line.kind, plane.kind) == ("curve", "scatter", "scatter")
    shares = PCA().fit(rows(TEST)).explained_variance_ratio_
    assert spectrum.columns["all features"] == pytest.approx(shares.tolist(), rel=1e-5)
    assert sum(spectrum.columns["within a class (mean)"]) == pytest.approx(1.0)
    assert spectrum.columns["axis"] == list(range(1, 10))
    # the class that is set apart lies at the positive end
    own = [label == "0" for label in line.columns["label"]]
    x = np.array(line.columns["x"])
    assert x[own].mean() > x[np.logical_not(own)].mean()
    assert set(line.columns["label"]) == {"0", "other classes"}
    assert set(line.columns["y"]) == {0, 1, 2}
    places = PCA(2, svd_solver="full").fit_transform(rows(TRAIN))
    assert plane.columns["label"] == [TRAIN.classes[k] for k in TRAIN.labels]
    np.testing.assert_allclose(np.abs(plane.columns["x"]), np.abs(places[:, 0]), atol=1e-4)
    np.testing.assert_allclose(np.abs(plane.columns["y"]), np.abs(places[:, 1]), atol=1e-4)


def test_pictures_stay_small():
    many = WORLD.images(400, seed=2)
    _, line, plane = LowDimension()(pixels(), many, many).exhibits
    assert len(line.columns["x"]) == len(plane.columns["x"]) == 500


@pytest.mark.parametrize("settings", [{"regulariser": 0.0}, {"regularisers": (1e-3, -1.0)}])
def test_settings_are_checked_before_anything_runs(settings):
    with pytest.raises(ValueError, match="`regulariser` must be a finite number above 0"):
        LowDimension(**settings)
