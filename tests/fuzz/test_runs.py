"""Damaged folders of runs: each gives the same classifier and the same numbers as before, or one line."""

import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearance.data.synthetic import GaussianClasses
from clearance.experiments.build import build_data
from clearance.experiments.grid import run_grid
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunPlan
from clearance.experiments.saved import load_run
from fuzz.damage import damaged_bytes
from fuzz.endings import MARK, cases, one_line

pytestmark = MARK
WORLD = GaussianClasses(class_count=3, separation=5.0, noise=0.05)
IMAGES = WORLD.images(2, seed=5).images


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that was trained and measured: its plan, its images, its findings, its answers and its files."""
    home = tmp_path_factory.mktemp("runs")
    images = WORLD.images(25, seed=0)
    np.savez(home / "world.npz", images=images.images.numpy(), labels=images.labels.numpy())
    recipe = Recipe(
        dataset=f"npz:{home}/world.npz", epochs=1, batch_size=16, seeds=1, audits=("accuracy",),
        methods={"plain": Method(hidden=(4,))},
    )  # fmt: skip
    plan, data = RunPlan(recipe, "plain", 0), build_data(recipe)
    (found,) = run_grid([plan], data, home / "whole", 1)
    folder = home / "whole" / plan.folder
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return plan, data, found, load_run(folder).model(IMAGES), files


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged")


def numbers(found):
    """What was measured; how long training took is not the same twice."""
    return [record for record in found.records if record.measurement.audit == "accuracy"]


def written(folder, files):
    shutil.rmtree(folder.parent, ignore_errors=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if content is not None:
            (folder / name).write_bytes(content)


@cases(250)
@given(data=st.data())
def test_a_damaged_run_is_loaded_as_it_was(place, finished, data):
    plan, _, _, answers, files = finished
    name = data.draw(st.sampled_from(sorted(files)))
    folder = place / plan.folder
    written(folder, files | {name: data.draw(damaged_bytes(files[name]))})
    with one_line(plan.folder):
        assert torch.equal(load_run(folder).model(IMAGES), answers)


@cases(8)
@given(data=st.data())
def test_a_damaged_run_is_continued_as_it_was(place, finished, data):
    plan, images, found, answers, files = finished
    name = data.draw(st.sampled_from(sorted(files)))
    folder = place / plan.folder
    written(folder, files | {name: data.draw(damaged_bytes(files[name]))})
    with one_line(plan.folder, str(folder)):
        (again,) = run_grid([plan], images, place, 1)
        if again.records:
            assert numbers(again) == numbers(found)
            assert torch.equal(load_run(folder).model(IMAGES), answers)
        else:
            assert again.note is not None
            assert plan.folder in again.note.status
            assert "\n" not in again.note.status
