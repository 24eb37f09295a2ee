"""What a report draws of a pair: the numbers of `clearance.linear`, machine by machine."""

import dataclasses
from importlib.resources import files

import numpy as np
import pytest
import torch

from clearance.explore.exhibits import CHOSEN_AMONG, PAIR_BINS, POINTS, figures_at
from clearance.explore.machines import all_machines
from clearance.explore.scene import scene_of
from clearance.linear import tilting_plane
from clearance.linear.hyperplane import signed_distances

STEPS = (0, 40, 80)


def figures(made, step):
    return {one.name: one for one in figures_at(made.scene, made.machines[0], step)}


@pytest.mark.parametrize("step", STEPS)
def test_places_in_the_plane_give_every_distance(digits, step):
    shown = figures(digits, step)["plane"]
    angle, offset = (float(shown.context[key]) for key in ("angle", "offset"))
    x, y = (np.array(shown.columns[key]) for key in ("x", "y"))
    rows, labels = digits.scene.pair(0, 1)
    some = np.concatenate([rows[labels < 0][:POINTS], rows[labels > 0][:POINTS]])
    expected = signed_distances(digits.machines[0].plane(step), some).numpy()
    np.testing.assert_allclose(np.cos(angle) * x + np.sin(angle) * y + offset, expected, atol=2e-4)
    first = digits.scene.classes[0].name
    at = tilting_plane(digits.machines[0].plane(step), rows, labels).separation / 2
    assert np.mean(x[[label == first for label in shown.columns["label"]]]) == pytest.approx(-at, abs=1e-4)


def test_a_machine_that_does_not_lean_has_the_plane_of_the_next_that_does(digits):
    straight = figures(digits, 80)["plane"]
    assert straight.context["angle"] == 0
    spread = torch.tensor(straight.columns["y"]).std()
    leaning = max(
        step for step in range(80) if float(figures(digits, step)["plane"].context["angle"]) >= 1e-3
    )
    assert float(spread) == pytest.approx(
        float(torch.tensor(figures(digits, leaning)["plane"].columns["y"]).std())
    )


def test_the_typical_sample_is_the_one_that_the_page_takes():
    """Among the first ones, which it draws; the one nearest of all may be another."""
    script = (files("clearance.explore") / "scripts" / "pair_plane.js").read_text("utf-8")
    assert f"const MOST_DRAWN = {CHOSEN_AMONG};" in script
    count, draw = CHOSEN_AMONG + 9, np.random.default_rng(0)
    centres = np.array([[0.25] * 4, [0.75] * 4])
    rows = np.concatenate([one + draw.uniform(-0.2, 0.2, (count, 4)) for one in centres])
    labels = np.repeat([0, 1], count)
    means = np.stack([rows[labels == k].mean(axis=0) for k in (0, 1)])
    rows[[count - 1, 2 * count - 1]] = means  # the nearest of all, which are not drawn
    scene = scene_of((rows, labels), (rows, labels), ("ape", "bee"), shape=(1, 2, 2))
    shown = {one.name: one for one in figures_at(scene, all_machines(scene)[0], 40)}["pictures"].columns
    for k, name in enumerate(("ape", "bee")):
        image = np.array(shown["image"][list(shown["label"]).index(name)]).ravel()
        first = rows[labels == k][:CHOSEN_AMONG]
        nearest = first[((first - means[k]) ** 2).sum(axis=1).argmin()]
        np.testing.assert_allclose(image, nearest, atol=0.01)  # as grey levels


@pytest.mark.parametrize("step", STEPS)
def test_bars_count_every_training_sample_on_its_side(digits, step):
    shown = figures(digits, step)["margins"]
    rows, labels = digits.scene.pair(0, 1)
    distances = signed_distances(digits.machines[0].plane(step), rows).numpy()
    centres = np.array(shown.columns["centre"])
    assert len(centres) == PAIR_BINS
    for key, side in (("first", -1), ("second", 1)):
        counts = np.array(shown.columns[key])
        assert counts.sum() == (labels == side).sum()
        assert (counts * centres).sum() / counts.sum() == pytest.approx(
            distances[labels == side].mean(), abs=centres[1] - centres[0]
        )
    assert shown.context["scale"] == pytest.approx(float(digits.machines[0].scales[step]))


def test_mirror_images_are_as_far_on_the_other_side(digits):
    shown = figures(digits, 30)["pictures"]
    plane = digits.machines[0].plane(30)
    images = np.array(shown.columns["image"]).reshape(7, -1)
    distances = signed_distances(plane, images[3:]).numpy()
    np.testing.assert_allclose(distances[[1, 3]], -distances[[0, 2]], atol=1e-3)
    assert distances[0] < 0 < distances[2]


@pytest.mark.parametrize("step", [0, 30, 80])
def test_weights_keep_their_digits_however_small_they_are(digits, step):
    weight = digits.machines[0].plane(step).weight
    pictures = figures(digits, step)["pictures"]
    shown = np.array(pictures.columns["image"][list(pictures.columns["label"]).index("weights")]).ravel()
    np.testing.assert_allclose(shown, (weight / weight.abs().max()).numpy(), atol=1e-4)
    assert abs(shown).max() == 1


def test_samples_that_are_no_images_have_no_pictures(digits):
    features = dataclasses.replace(digits.scene, shape=None)
    assert [one.name for one in figures_at(features, digits.machines[0], 0)] == ["plane", "margins"]
