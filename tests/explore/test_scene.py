"""Samples as bytes, and the machines fitted to them."""

import numpy as np
import pytest
from PIL import Image

from clearance.experiments.explore import explored_dataset
from clearance.explore import scene_of
from clearance.explore.machines import LOG_LAMBDAS, machines_of
from clearance.explore.page import render_explorer
from clearance.linear import svm_path

LABELS = np.array([0, 1, 0, 1])


def of(values, **settings):
    return scene_of((values, LABELS), (values, LABELS), ("a", "b"), **settings)


@pytest.mark.parametrize("levels", [16, 255])
def test_images_with_few_levels_are_kept_exactly(levels):
    values = np.random.default_rng(0).integers(0, levels + 1, (4, 1, 3, 3)) / levels
    scene = of(values.astype(np.float32), shape=(1, 3, 3))
    kept = scene.values(np.concatenate([one.train for one in scene.classes]))
    np.testing.assert_allclose(kept, values.reshape(4, 9)[[0, 2, 1, 3]], atol=1e-15)


def test_other_images_are_rounded_by_at_most_half_a_level():
    values = np.random.default_rng(0).random((4, 1, 3, 3))
    scene = of(values, shape=(1, 3, 3))
    apart = np.abs(scene.values(scene.classes[0].test) - values.reshape(4, 9)[[0, 2]])
    assert 1e-4 < apart.max() <= 0.5 / 255 + 1e-12


def test_features_use_all_bytes_between_their_ends():
    values = np.random.default_rng(0).normal(size=(4, 5)) * 100 - 7
    scene = of(values)
    everything = np.concatenate([one.train for one in scene.classes])
    assert (everything.min(), everything.max()) == (0, 255)
    assert np.abs(scene.values(everything) - values[[0, 2, 1, 3]]).max() <= 0.5 * np.ptp(values) / 255 + 1e-9


@pytest.mark.parametrize(
    ("train", "classes", "message"),
    [
        (np.eye(4), ("a",), "at least 2 classes"),
        (np.eye(4), ("a", "b", "c"), "got none of 'c'"),
        (np.full((4, 2), np.nan), ("a", "b"), "`train` must be finite; got nan"),
    ],
)
def test_what_cannot_be_shown_is_refused(train, classes, message):
    with pytest.raises(ValueError, match=message):
        scene_of((train, LABELS), (np.eye(4), LABELS), classes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"train": np.array([[0, 128, 255, 7]] * 4)},
            r"images of `train` must lie in \[0, 1\]; got 0 to 255",
        ),
        ({"test": np.eye(4) - 0.5}, r"images of `test` must lie in \[0, 1\]; got -0.5 to 0.5"),
        ({"shape": (1, 2, 3)}, r"`shape` must be \(C, H, W\).*of 4 numbers in all.*got \(1, 2, 3\)"),
        ({"shape": (2, 1, 2)}, r"with C 1 or 3"),
        ({"labels": [0, 1]}, r"`train` must have one label for each of 4 samples; got \(2,\)"),
        ({"labels": [0, 1, 1, 2]}, r"labels of `train` must be whole numbers in 0 .. 1; got 2"),
        ({"test": np.ones((4, 3))}, "`test` must have 4 numbers a sample, as `train`; got 3"),
    ],
)
def test_samples_labels_and_shapes_that_do_not_fit_are_refused(change, message):
    given = {"train": np.eye(4), "labels": LABELS, "test": np.eye(4), "shape": (1, 2, 2), **change}
    with pytest.raises(ValueError, match=message):
        scene_of((given["train"], given["labels"]), (given["test"], LABELS), ("a", "b"), shape=given["shape"])


@pytest.mark.parametrize("shape", [None, (1, 2, 2)])
def test_there_may_be_no_test_samples(shape):
    scene = scene_of((np.eye(4), LABELS), ([], []), ("a", "b"), shape=shape)
    assert [one.test.shape for one in scene.classes] == [(0, 4), (0, 4)]
    assert "<html" in render_explorer(scene)


@pytest.mark.parametrize("nothing", [[], np.empty((0, 4)), np.empty((4, 0))])
def test_there_must_be_training_samples(nothing):
    with pytest.raises(ValueError, match="`train` must have samples of at least one number; got shape"):
        scene_of((nothing, LABELS[: len(nothing)]), ([], []), ("a", "b"))


def test_features_that_a_larger_one_leaves_no_level_are_told():
    values = np.random.default_rng(0).normal(size=(4, 5))
    values[:, 2] *= 1e4
    with pytest.warns(UserWarning, match="4 of 5 features vary by less than one of the 256 levels"):
        of(values)


def test_classes_with_one_mean_are_refused_by_name():
    same = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    with pytest.raises(ValueError, match="'a' and 'b' have the same mean"):
        machines_of(of(same), 0, 1)


def test_samples_of_one_number_are_refused():
    with pytest.raises(ValueError, match="at least 2 numbers"):
        machines_of(of(np.array([[0.0], [0.2], [0.8], [1.0]])), 0, 1)


def test_the_machines_are_those_of_svm_path():
    scene = explored_dataset("digits", per_class=20)
    x, y = scene.pair(0, 1)
    found = machines_of(scene, 0, 1)
    for step, fit in zip((0, 25, 80), svm_path(x, y, 10.0 ** LOG_LAMBDAS[[0, 25, 80]]), strict=True):
        plane = found.plane(step)
        # both are within their duality gap of the one solution: ||w - w*||^2 <= gap / lambda
        apart = 2 * np.sqrt((fit.gap + found.gaps[step] * fit.objective) / fit.lam) + 1e-6 * plane.scale
        assert np.linalg.norm(plane.weight.numpy() - fit.w) <= apart
        assert found.scales[step] == pytest.approx(np.linalg.norm(fit.w), rel=1e-3)
    assert found.gaps.max() <= 1e-6


def test_the_slider_is_the_articles_grid():
    assert (LOG_LAMBDAS[0], LOG_LAMBDAS[40], LOG_LAMBDAS[80], len(LOG_LAMBDAS)) == (-6, -2, 2, 81)


def test_sets_of_other_classes_are_refused(tmp_path):
    for split, names in (("train", "abc"), ("test", "bc")):
        for name in names:
            (tmp_path / split / name).mkdir(parents=True)
            for k in range(3):
                Image.new("L", (8, 8), 20 * k + ord(name) - 90).save(tmp_path / split / name / f"{k}.png")
    with pytest.raises(ValueError, match="classes"):
        explored_dataset(f"folder:{tmp_path}", ("b", "c"), size=8)
