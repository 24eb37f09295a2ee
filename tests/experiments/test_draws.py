"""Noisy labels and small data: the same for every method of a seed, other for every seed, never the test set."""

import dataclasses
import math
from typing import Any

import pytest
import torch
import yaml

import clearance as cl
from clearance.data import Augmentation, gaussian_images
from clearance.data.subsets import draw_samples
from clearance.experiments import build, run
from clearance.experiments.build import RunData, build_data, check_draws, drawn_data
from clearance.experiments.grid import plans_of
from clearance.experiments.recipe import Recipe, tuned_recipe
from clearance.experiments.run import RunPlan, kept_findings, run_method
from clearance.experiments.saved import load_run
from cli.terminal import run as command

DATA = RunData(gaussian_images(per_class=40, seed=0), gaussian_images(per_class=10, seed=1))


def wrong(noisy, clean):
    return noisy.labels != clean.labels


def test_without_any_of_it_the_data_are_what_they_were():
    drawn = drawn_data(Recipe(), DATA, seed=3)
    assert drawn.train is DATA.train
    assert drawn.test is DATA.test
    assert drawn.validation is None


def test_noise_is_drawn_once_for_each_seed_and_nested_over_rates():
    by_rate = {rate: drawn_data(Recipe(label_noise=rate), DATA, 0).train for rate in (0.2, 0.4, 0.8)}
    for rate, noisy in by_rate.items():
        assert int(wrong(noisy, DATA.train).sum()) == round(rate * 120)
    low, high = by_rate[0.2], by_rate[0.8]
    hit = wrong(low, DATA.train)
    assert torch.equal(high.labels[hit], low.labels[hit])
    other = drawn_data(Recipe(label_noise=0.2), DATA, 1).train
    assert not torch.equal(other.labels, low.labels)


def test_validation_is_as_noisy_and_the_test_set_stays_clean():
    clean = drawn_data(Recipe(validation=0.25), DATA, 0)
    noisy = drawn_data(Recipe(validation=0.25, label_noise=0.5), DATA, 0)
    assert clean.validation is not None
    assert noisy.validation is not None
    assert (len(clean.train), len(clean.validation)) == (90, 30)
    assert torch.equal(clean.validation.images, noisy.validation.images)
    assert int(wrong(noisy.validation, clean.validation).sum()) == 15
    assert int(wrong(noisy.train, clean.train).sum()) == 45
    assert torch.equal(noisy.test.labels, DATA.test.labels)


def test_what_stands_in_for_the_test_set_in_a_search_is_noisy_too():
    recipe = Recipe(label_noise=0.5, held_out=0.25)
    searched = drawn_data(recipe, DATA, 0)
    assert int(wrong(searched.test, DATA.test).sum()) == 15
    again = drawn_data(dataclasses.replace(recipe, label_noise=0.8), DATA, 0)
    hit = wrong(searched.test, DATA.test)
    assert torch.equal(again.test.labels[hit], searched.test.labels[hit])


def test_samples_are_those_of_the_seed_whatever_else():
    few = drawn_data(Recipe(samples=6), DATA, 0)
    assert torch.bincount(few.train.labels).tolist() == [2, 2, 2]
    more, noisy = (drawn_data(Recipe(samples=n, label_noise=r), DATA, 0) for n, r in ((12, 0.0), (6, 0.5)))
    assert {i.numpy().tobytes() for i in few.train.images} <= {i.numpy().tobytes() for i in more.train.images}
    assert torch.equal(noisy.train.images, few.train.images)
    assert int(wrong(noisy.train, few.train).sum()) == 3
    assert not torch.equal(drawn_data(Recipe(samples=6), DATA, 1).train.images, few.train.images)
    plain = drawn_data(Recipe(samples=6, balanced=False), DATA, 0)
    assert not torch.equal(plain.train.images, few.train.images)


@pytest.fixture
def given(monkeypatch):
    """What every run trained on, instead of training."""
    kept: dict[int, Any] = {}
    fit = run.fit

    def noted(model, way, train, **how):
        kept[len(kept)] = (train, how)
        return fit(model, way, train, **how)

    monkeypatch.setattr(run, "fit", noted)
    return kept


def test_methods_share_what_is_drawn_and_seeds_do_not(recipe, given):
    made = recipe(label_noise=0.25, samples=30, validation=0.2, seeds=2, steps=3)
    for plan in plans_of(made):
        run_method(plan, DATA)
    labels = [train.labels for train, _ in given.values()]
    assert torch.equal(labels[0], labels[1])
    assert torch.equal(labels[2], labels[3])
    assert not torch.equal(labels[0], labels[2])
    assert all(torch.equal(how["validation"]["test"].labels, DATA.test.labels) for _, how in given.values())
    assert all(len(how["validation"]["validation"]) == 24 for _, how in given.values())


def test_every_epoch_is_recorded_for_the_picture_and_the_last_is_the_verdict(recipe, data):
    plan = RunPlan(recipe(label_noise=0.3, validation=0.25, epochs=5), "plain", 0)
    found = run_method(plan, data)
    (picture,) = [e.exhibit for e in found.exhibits if e.exhibit.name == "epochs"]
    assert list(picture.columns) == ["epoch", "validation error", "test error"]
    assert picture.columns["epoch"] == [1, 2, 3, 4, 5]
    assert "for the picture only" in picture.caption
    test_errors = picture.columns["test error"]
    by_name = {(r.measurement.audit, r.measurement.name): r.measurement for r in found.records
               if r.measurement.context.get("split") != "train"}  # fmt: skip
    assert by_name["accuracy", "error"].value == test_errors[-1]
    validation = picture.columns["validation error"]
    first = min(range(5), key=lambda k: (validation[k], k))
    early = by_name["training", "early_stopped_error"]
    assert (early.value, early.n) == (test_errors[first], 30)
    assert by_name["training", "early_stopped_epoch"].value == first + 1
    (curve,) = [e.exhibit for e in found.exhibits if e.exhibit.name == "curve"]
    assert list(curve.columns) == ["step", "loss"]


def test_steps_are_as_many_for_few_images_as_for_all(recipe, data):
    for samples in (6, None):
        found = run_method(RunPlan(recipe(samples=samples, steps=7), "plain", 0), data)
        (steps,) = [r.measurement.value for r in found.records if r.measurement.name == "steps"]
        assert steps == 7


def test_finished_runs_are_known_again_and_load_with_their_own_images(recipe, archive, tmp_path):
    plan = RunPlan(recipe(dataset=archive, samples=12, label_noise=0.25), "plain", 1)
    data = build_data(plan.recipe)
    done = run_method(plan, data, tmp_path)
    kept = kept_findings(plan, data, tmp_path)
    assert kept is not None
    assert [r.to_json() for r in kept.records] == [r.to_json() for r in done.records]
    again = load_run(tmp_path / plan.folder).data()
    assert torch.equal(again.train.labels, drawn_data(plan.recipe, data, 1).train.labels)


class TestCompare:
    def test_both_are_plain_options_in_python(self, data, given):
        card = cl.compare(["plain", "foca"], data.train, data.test, seeds=1, steps=4, audits=["accuracy"],
                          label_noise=0.25, samples=12)  # fmt: skip
        assert {r.method for r in card.records} == {"plain", "foca"}
        assert all(len(train) == 12 for train, _ in given.values())
        settings = card.report.recipe
        assert (settings["label_noise"], settings["samples"], settings["steps"]) == (0.25, 12, 4)

    @pytest.mark.parametrize("name", tuned_recipe("digits").methods)
    def test_every_method_of_the_catalogue_trains_on_few_images_with_wrong_labels(self, name, data, given):
        card = cl.compare([name], data.train, data.test, seeds=1, steps=3, audits=["accuracy"],
                          label_noise=0.25, samples=12)  # fmt: skip
        ((train, _),) = given.values()
        clean = draw_samples(data.train, 12, 0)
        assert torch.equal(train.images, clean.images)
        assert int(wrong(train, clean).sum()) == 3
        errors = [r.measurement.value for r in card.records if r.measurement.name == "error"]
        assert errors
        assert all(math.isfinite(error) for error in errors)
        (steps,) = [r.measurement.value for r in card.records if r.measurement.name == "steps"]
        assert steps == 3

    def test_out_of_range_is_said_in_the_callers_words(self, data):
        for wrong_option, message in (
            ({"label_noise": 1.0}, r"`label_noise` must lie in \[0, 1\)"),
            ({"samples": 1}, "`samples` must be a whole number of at least 2"),
            ({"samples": 5000}, r"`samples` must not exceed the \d+ training images; got 5000"),
            ({"samples": 2}, "`samples` must be at least 3, one image of each class; got 2"),
            ({"epochs": 2, "steps": 3}, "one of `epochs` and `steps` must be given, not both; got 2 and 3"),
        ):
            with pytest.raises(ValueError, match=message):
                cl.compare(["plain"], data.train, data.test, **wrong_option)

    def test_and_on_the_command_line(self):
        made = planned("--label-noise", "0.8", "--samples", "68", "--steps", "3000")
        assert (made["label_noise"], made["samples"], made["steps"]) == (0.8, 68, 3000)

    def test_epochs_of_the_command_line_take_the_place_of_a_files_steps(self, tmp_path):
        path = tmp_path / "mine.yaml"
        path.write_text("steps: 7\nmethods: {plain: {}}\n", "utf-8")
        made = planned("--recipe", str(path), "--epochs", "2")
        assert (made["epochs"], made.get("steps")) == (2, None)
        assert planned("--recipe", str(path))["steps"] == 7
        status, _, complaint = command("compare", "--epochs", "2", "--steps", "3")
        assert status == 2
        assert "--epochs and --steps both set the length" in complaint


def planned(*words):
    """The recipe that a command would run."""
    status, shown, complaint = command("compare", *words, "--dry-run")
    assert (status, complaint) == (0, "")
    return yaml.safe_load(shown.partition("\n")[2])


def test_noise_that_leaves_a_class_without_labels_is_found_before_training():
    """Three images of three classes; every label that is switched takes a class its only one."""
    check_draws(Recipe(samples=3, seeds=9), DATA)
    with pytest.raises(
        ValueError, match=r"`label_noise` of 0.34 leaves no label of class '.*' among 3 images"
    ):
        check_draws(Recipe(samples=3, label_noise=0.34, seeds=9), DATA)
    check_draws(
        Recipe(samples=3, label_noise=0.34, seeds=9, balanced=False), DATA
    )  # nobody promised one of each


class TestHeldOut:
    """A part of the training set stands in for the test set, which nobody reads."""

    @pytest.fixture
    def asked(self, monkeypatch, data):
        splits = []

        def load(name, split="train", root=None, size=None):
            splits.append(split)
            return data.train if split == "train" else data.test

        monkeypatch.setattr(build, "load_dataset", load)
        return splits

    def test_the_test_set_is_not_read(self, asked, data):
        found = build_data(Recipe(held_out=0.25))
        assert asked == ["train"]
        both = torch.cat([found.train.images, found.test.images])
        assert len(found.test) == 6
        assert {i.numpy().tobytes() for i in both} == {i.numpy().tobytes() for i in data.train.images}

    def test_thinning_touches_the_training_part_alone(self, asked):
        thin = build_data(Recipe(held_out=0.25, train_fraction=0.5, augment_flip=True))
        assert (len(thin.train), len(thin.test)) == (9, 6)
        assert thin.train.augmentation == Augmentation(flip=True)
        assert thin.test.augmentation is None

    def test_without_it_the_test_set_is_what_is_measured(self, asked, data):
        assert build_data(Recipe()).test is data.test
        assert asked == ["train", "test"]
