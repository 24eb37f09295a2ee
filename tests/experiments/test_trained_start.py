"""Starting from the network of a finished run: the same weights, only for what fits them, and readable again."""

import dataclasses
import shutil
from typing import Any

import pytest
import torch

from clearance.data import gaussian_images
from clearance.experiments.method import Method
from clearance.experiments.provenance import report_of
from clearance.experiments.run import RunPlan, run_method
from clearance.experiments.saved import build_model, load_model, load_run


@pytest.fixture
def trained(recipe, data, tmp_path):
    """The directory of a plainly trained network."""
    plan = RunPlan(recipe(), "plain", 0)
    run_method(plan, data, tmp_path / "first")
    return tmp_path / "first" / plan.folder


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def test_training_starts_from_the_weights_and_the_normalisation_of_the_run(trained, recipe, data):
    method = recipe().methods["foca"]
    before = weights(load_model(trained))
    started = build_model(f"run:{trained}", method, data.train, seed=3)
    assert same(before, weights(started))
    assert started.training
    assert not same(before, weights(build_model("small-cnn", method, data.train, seed=3)))


def test_empirical_priors_are_those_of_the_images_trained_on_now(recipe, data, tmp_path):
    method = Method(mixture="identity", hidden=(), priors="empirical", loss="gaussian-mixture")
    plan = RunPlan(recipe(methods={"lgm": method}), "lgm", 0)
    run_method(plan, data, tmp_path)
    few = data.train.subset(data.train.labels.argsort(stable=True)[: len(data.train) * 3 // 4])
    shares = few.labels.bincount(minlength=few.class_count).float() / len(few)
    assert float(shares.max() - shares.min()) > 0.05
    head: Any = build_model(f"run:{tmp_path / plan.folder}", method, few, seed=0).head
    torch.testing.assert_close(head.log_prior().exp(), shares)


def test_what_was_tuned_is_read_back_and_the_start_stays(trained, recipe, data, tmp_path):
    before = weights(load_model(trained))
    tuning = recipe(model=f"run:{trained}", dataset="gaussian")
    plan = RunPlan(tuning, "foca", 0)
    run_method(plan, data, tmp_path / "second")
    folder = tmp_path / "second" / plan.folder
    assert same(before, weights(load_model(trained)))
    assert not same(before, weights(load_model(folder)))
    trained.rename(trained.with_name("moved"))
    assert load_run(folder).method == "foca"  # what was tuned does not need what it started from


def test_a_run_from_another_network_in_the_same_place_is_not_read_back(trained, recipe, data, tmp_path):
    plan = RunPlan(recipe(model=f"run:{trained}", dataset="gaussian"), "foca", 0)
    first = run_method(plan, data, tmp_path / "second")
    assert run_method(plan, data, tmp_path / "second") == first
    other = RunPlan(recipe(), "plain", 1)
    run_method(other, data, tmp_path / "first")
    shutil.rmtree(trained)
    shutil.copytree(tmp_path / "first" / other.folder, trained)
    with pytest.raises(ValueError, match="differs in first_weights"):
        run_method(plan, data, tmp_path / "second")
    trained.rename(trained.with_name("moved"))
    assert run_method(plan, data, tmp_path / "second") == first


def test_runs_from_different_networks_are_kept_apart(recipe):
    plans = [RunPlan(recipe(model=model), "plain", 0) for model in ("small-cnn", "run:a", "run:b")]
    assert len({plan.folder for plan in plans}) == 3


def test_a_report_names_no_folder_of_this_machine(recipe, trained):
    settings = report_of(recipe(model=f"run:{trained}", dataset="npz:/home/me/mine.npz"), [], "c").recipe
    assert settings["model"] == f"run:{trained.name}"
    assert settings["dataset"] == "npz:mine.npz"


def test_another_form_or_other_images_are_refused(trained, recipe, data):
    method = recipe().methods["plain"]
    for changed, message in [
        (dataclasses.replace(method, hidden=(9,)), r"`hidden` must be \(8,\) as in the network"),
        (dataclasses.replace(method, norm="batch"), "`norm` must be none as in the network"),
    ]:
        with pytest.raises(ValueError, match=message):
            build_model(f"run:{trained}", changed, data.train, 0)
    for wrong in (gaussian_images(class_count=4), gaussian_images(shape=(1, 9, 9))):
        with pytest.raises(ValueError, match="for the network that training starts from; got"):
            build_model(f"run:{trained}", method, wrong, 0)
    with pytest.raises(FileNotFoundError, match="must be the directory of a finished run"):
        build_model("run:nowhere", method, data.train, 0)


def test_the_images_of_the_target_may_be_others(trained, recipe, data):
    """The network keeps the normalisation that it was trained with: its first answers are the old ones."""
    brighter = dataclasses.replace(data.train, images=(data.train.images + 0.2).clamp(max=1))
    started = build_model(f"run:{trained}", recipe().methods["plain"], brighter, 0).eval()
    with torch.no_grad():
        assert torch.equal(started(data.test.images), load_model(trained)(data.test.images))


@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
def test_a_network_whose_training_failed_is_read_back_with_a_warning(recipe, data, tmp_path):
    plan = RunPlan(recipe(methods={"wild": Method(hidden=(8,), lr=1e9)}), "wild", 0)
    run_method(plan, data, tmp_path)
    with pytest.warns(UserWarning, match=r"the training of the network in wild-seed0-\w+ diverged at step"):
        load_model(tmp_path / plan.folder)
