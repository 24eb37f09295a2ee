"""The page's numbers on paper: the columns that a report draws, against closed forms and the path itself."""

import math

import numpy as np
import pytest

from clearance.experiments.explore import explored_dataset, explored_report
from clearance.explore.exhibits import example_distances, loss_exhibits, pair_exhibits, pair_records
from clearance.explore.machines import machines_of
from clearance.linear import adversarial_distance, error_rate, tilting_angle
from clearance.report import render_page


@pytest.fixture(scope="module")
def pair():
    scene = explored_dataset("digits", per_class=30)
    return scene, machines_of(scene, 0, 1)


def columns(exhibits, name):
    (one,) = [exhibit for exhibit in exhibits if exhibit.name == name]
    return {key: np.array(column) for key, column in one.columns.items()}


def test_three_losses_in_closed_form():
    found = columns(loss_exhibits(), "losses")
    z = found["z"]
    np.testing.assert_allclose(found["hinge"], np.maximum(1 - z, 0))
    np.testing.assert_allclose(found["softplus"], np.log1p(np.exp(-z)))
    np.testing.assert_array_equal(found["zero_one"], z <= 0)


@pytest.mark.parametrize(("loss", "alpha", "beta"), [("hinge", 1, 1), ("softplus", math.log(2), 0.5)])
def test_i04_i05_both_limits_bound_their_losses(loss, alpha, beta):
    found = columns(loss_exhibits(), "limits")
    z, scaled, limit, scale = (
        found[name][found["loss"] == loss] for name in ("z", "scaled", "limit", "scale")
    )
    large = scale > 1
    np.testing.assert_allclose(limit[large], scale[large] * np.maximum(-z[large], 0))
    above = (scaled - limit)[large]
    assert above.min() >= 0
    assert above.max() <= (1 if loss == "hinge" else math.log(2)) + 1e-12
    np.testing.assert_allclose(limit[~large], alpha - beta * scale[~large] * z[~large])
    near = (scaled - limit)[~large]
    bound = 0 if loss == "hinge" else (scale[~large] * z[~large]) ** 2 / 8
    assert (near >= -1e-12).all()
    assert (near <= bound + 1e-12).all()


def test_the_likelihoods_are_those_of_the_example_distances():
    found = columns(loss_exhibits(), "likelihoods")
    share = (1 / (1 + np.exp(-example_distances())) >= 0.95).sum()
    assert found["count"].sum() == 400
    assert found["count"][-1] == share
    curve = columns(loss_exhibits(), "log_likelihood")
    np.testing.assert_allclose(np.exp(-curve["loss"]), curve["likelihood"])


def test_the_path_and_the_measurements_say_the_same(pair):
    scene, machines = pair
    (path,) = [one.exhibit for one in pair_exhibits(scene, machines) if one.exhibit.name == "path"]
    x, y = scene.pair(0, 1)
    for step in (0, 33, 80):
        plane = machines.plane(step)
        assert path.columns["angle"][step] == pytest.approx(tilting_angle(plane, x, y), abs=1e-6)
        assert path.columns["adversarial_distance"][step] == pytest.approx(adversarial_distance(plane, x, y))
        assert path.columns["test_error"][step] == pytest.approx(error_rate(plane, *scene.pair(0, 1, "test")))
    found = [(record.method, record.measurement) for record in pair_records(scene, machines)]
    records = {(method, one.name, one.context.get("split")): one for method, one in found}
    assert len(records) == len(found) == 15
    assert records["penalty 1e-6", "angle", None].value == path.columns["angle"][0]
    strong = records["penalty 100", "error", "test"]
    assert (strong.value, strong.n) == (path.columns["test_error"][80], len(scene.pair(0, 1, "test")[1]))


def test_a_report_draws_them(pair):
    scene, machines = pair
    page = render_page(explored_report(scene, machines, "clearance explore"))
    section = page[page.index("<h2>Why the boundary tilts") :].split("</section>")[0]
    assert section.count('<svg class="figure"') == 8
    captions = (
        "Three losses of a score",
        "With large weights",
        "With small weights",
        "likelihoods",
        "at every penalty",
        "Class means; the weights",
    )
    for words in captions:
        assert words in section
    assert "penalty 100" in section
    assert "Tilting angle" in page  # the glossary
    assert page.count("<script") == 1  # its own


def test_machines_are_not_called_methods(pair):
    """Nothing was trained here: no cost, no last layers, and what is compared has its own name."""
    scene, machines = pair
    page = render_page(explored_report(scene, machines, "clearance explore"))
    tables = page[: page.index("All numbers")]
    assert tables.count('<th scope="col">Machine</th>') == 2
    assert 'aria-label="Machines"' in tables
    for words in ("Method", "per method", "own last layers", "Training time"):
        assert words not in tables, words


def test_distances_farther_than_the_axis_are_in_the_last_bar():
    assert columns(loss_exhibits(), "distances")["count"].sum() == 400
