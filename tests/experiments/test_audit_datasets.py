"""Another dataset that a recipe names for an audit: read where the recipe's files are, and part of what is kept."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import clearance as cl
from clearance.audits import Calibration, Likelihood, OutOfDistribution
from clearance.data import ImageSet, Preprocessing, gaussian_images, open_images
from clearance.data.folder import open_pictures
from clearance.experiments.audit_plan import AuditPlan, unknown_images
from clearance.experiments.build import RunData
from clearance.experiments.method import Method
from clearance.experiments.provenance import described, full_settings
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunPlan, _identity, run_method


def recipe(**settings):
    return Recipe(
        audits=("likelihood",), audit_settings={"likelihood": settings}, methods={"plain": Method()}
    )


def resolved(asked):
    data = RunData(gaussian_images(), gaussian_images(seed=1))
    return RunPlan(asked, "plain", 0).resolved_audits(data, None)


def test_a_name_becomes_the_test_images_of_that_dataset():
    (audit,) = resolved(recipe(other="digits", images=7))
    assert isinstance(audit, Likelihood)
    assert isinstance(audit.other, ImageSet)
    assert (audit.other.name, len(audit.other), audit.images) == ("digits", 497, 7)
    (bare,) = resolved(recipe())
    assert isinstance(bare, Likelihood)
    assert bare.other is None


def test_the_name_is_part_of_the_settings_that_are_kept():
    assert (
        json.loads(json.dumps(full_settings(recipe(other="digits"))))["audit_settings"]["likelihood"]["other"]
        == "digits"
    )
    (chosen,) = AuditPlan.of(["likelihood"], {"likelihood": {"other": "digits"}}).audits
    assert chosen == Likelihood(other="digits")


def test_an_unknown_dataset_or_one_without_its_files_is_refused():
    with pytest.raises(ValueError, match=r"`dataset` must be one of .*got 'digit'.*Did you mean 'digits'"):
        resolved(recipe(other="digit"))
    with pytest.raises(ValueError, match="dataset 'mnist' needs `root`"):
        resolved(recipe(other="mnist"))


def test_other_images_in_the_same_place_are_audited_anew(tmp_path):
    def write(images):
        np.savez(tmp_path / "strange.npz", images=images.numpy(), labels=np.arange(len(images)) % 3)

    def scores():
        found = run_method(plan, data, tmp_path / "runs")
        return [r.measurement for r in found.records if r.measurement.audit == "likelihood"]

    data = RunData(gaussian_images(), gaussian_images(per_class=30, seed=1))
    asked = replace(
        recipe(other=f"npz:{tmp_path / 'strange.npz'}", images=45, epsilons=[0.1], adaptive=[]),
        steps=2,
        batch_size=10,
    )
    plan = RunPlan(asked, "plain", 0)
    write(gaussian_images(per_class=100, seed=2).images)
    first = scores()
    assert scores() == first
    write(torch.ones(300, 1, 8, 8))
    assert scores() != first


@pytest.mark.parametrize("setting", ["other", "validation"])
def test_images_of_any_part_of_a_named_set_are_a_part_of_what_is_kept(tmp_path, setting):
    """All of them are used; a split of them had been compared, and of validation images none."""
    file, audit = tmp_path / "set.npz", {"other": "likelihood", "validation": "calibration"}[setting]
    settings = {audit: {setting: f"npz:{file}"}}
    plan = RunPlan(Recipe(audits=(audit,), audit_settings=settings, methods={"plain": Method()}), "plain", 0)
    data, images = RunData(gaussian_images(), gaussian_images(seed=1)), gaussian_images(per_class=20, seed=2)
    pixels, found = images.images.numpy().copy(), []
    for k in range(len(images) + 1):
        np.savez(file, images=pixels, labels=images.labels.numpy())
        found.append(json.dumps(_identity(plan, data)))
        pixels[min(k, len(images) - 1)] = 0
    assert len(set(found)) == len(found)


def test_unlabelled_pictures_of_a_recipe_are_read_like_those_of_unknown(tmp_path):
    for k in range(40):
        Image.new("L", (8, 8), 6 * k).save(tmp_path / f"{k}.png")
    plan = RunPlan(recipe(other=f"folder:{tmp_path}"), "plain", 0)
    assert "named images" in _identity(plan, RunData(gaussian_images(), gaussian_images(seed=1)))


class TestValidation:
    """The images that a recipe keeps back set the temperature of its networks."""

    def test_in_a_run_the_temperature_is_theirs(self):
        data = RunData(gaussian_images(per_class=20, seed=0), gaussian_images(per_class=9, seed=1))
        method = Method(lr=0.1)
        asked = Recipe(
            audits=("calibration",), validation=0.25, epochs=1, model="tiny-cnn", methods={"plain": method}
        )
        plan = RunPlan(asked, "plain", 0)
        found = run_method(plan, data).records
        (temperature,) = [r.measurement for r in found if r.measurement.name == "temperature"]
        assert temperature.n == 1  # one set of images, not two halves of the test set
        (own,) = [
            r.measurement
            for r in run_method(RunPlan(replace(asked, validation=0.0), "plain", 0), data).records
            if r.measurement.name == "temperature"
        ]
        assert own.n == 2

    def test_noisy_labels_set_none(self):
        kept = gaussian_images(per_class=3)
        data = RunData(gaussian_images(), gaussian_images(seed=1), validation=kept)
        for noise, given in ((0.2, None), (0.0, kept)):
            asked = Recipe(audits=("calibration",), label_noise=noise, methods={"plain": Method()})
            (audit,) = RunPlan(asked, "plain", 0).resolved_audits(data, None)
            assert isinstance(audit, Calibration)
            assert audit.validation is given

    def test_one_that_was_given_stays(self):
        own, kept = gaussian_images(per_class=4), gaussian_images(per_class=3)
        plan = AuditPlan.of([Calibration(validation=own)])
        (audit,) = plan.resolved(test=gaussian_images(), validation=kept)
        assert isinstance(audit, Calibration)
        assert audit.validation is own


class TestUnknownImages:
    """What ``--unknown`` and ``unknown=`` give to the audits that can look at another set."""

    def test_what_is_kept_of_them_is_a_name_and_a_digest(self, tmp_path, memory_for_images):
        """Of a set on disk, too, whose pixels nobody reads for it."""
        Image.new("RGB", (8, 8)).save(tmp_path / "one.png")
        Image.new("RGB", (8, 8), "red").save(tmp_path / "two.png")
        memory_for_images(0)
        other = open_pictures(tmp_path, cache=tmp_path / "cache")
        settings = described(OutOfDistribution(other=other))
        assert settings["other"] == {"name": tmp_path.name, "images": 2, "digest": other.digest()[:16]}
        assert settings["neighbours"] == 5
        assert str(tmp_path) not in json.dumps(settings)
        assert described(Calibration(validation=other))["validation"] == settings["other"]

    def test_too_few_test_images_are_said_before_anything_is_measured(self):
        test = gaussian_images(class_count=3, per_class=12)
        with pytest.raises(ValueError, match="at least 19 images for a threshold that keeps 95 %"):
            unknown_images("digits", test)

    def test_folders_that_settings_name_are_prepared_like_the_test_images(self, tmp_path):
        """All of their pictures are used, and of a model's own preparation nothing is left out."""
        for k in range(10):
            path = tmp_path / "ab"[k % 2] / f"{k}.png"
            path.parent.mkdir(exist_ok=True)
            Image.new("L", (16, 12), 20 * k).save(path)
        how = Preprocessing(size=8, short_side=10)
        given = f"folder:{tmp_path}"
        plan = AuditPlan.of([Likelihood(other=given), Calibration(validation=given)])
        test = gaussian_images(class_count=2)
        ready: Any = plan.resolved(test=test, preprocessing=how)
        torch.testing.assert_close(ready[1].validation.images, open_images(given, how).images)
        assert len(ready[0].other) == 10
        assert ready[0].other.shape == test.shape

    def test_a_set_that_a_recipe_names_stays(self):
        given = Likelihood(other="digits")
        (audit,) = AuditPlan.of([given]).resolved(test=gaussian_images(), unknown=gaussian_images())
        assert isinstance(audit, Likelihood)
        assert isinstance(audit.other, ImageSet)
        assert audit.other.name == "digits"

    def test_from_python(self):
        """Without a word about audits, unknown images are looked at; and their names are in the report."""
        train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
        model = cl.Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 3))
        other = torch.rand(30, 8, 8)
        card = cl.audit(
            model, train=train, test=test, unknown=other, audits=["accuracy", "out_of_distribution"]
        )
        rows = {m.name: m for m in card.measurements if m.audit == "out_of_distribution"}
        assert rows["rejected"].n == 30
        with pytest.raises(ValueError, match=r"give them with --unknown \(in Python: unknown=...\)"):
            cl.audit(model, train=train, test=test, audits=["out_of_distribution"])
        with pytest.raises(
            ValueError, match=r"none of the audits \['accuracy'\] uses them; add out_of_distribution"
        ):
            cl.audit(model, train=train, test=test, unknown=other, audits=["accuracy"])

    def test_limits_from_python(self):
        train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
        model = cl.Classifier(torch.nn.Flatten(), torch.nn.Linear(64, 3))
        audits = ["accuracy", "minimal_perturbation"]
        card = cl.audit(model, train=train, test=test, audits=audits, images=6, budget="2h")
        assert next(m.n for m in card.measurements if m.name == "median_flip") <= 6
        assert card.report.recipe["fewer_images"] == {"images": 60, "audits": {"minimal_perturbation": 6}}
        assert card.report.recipe["budget"]["seconds"] == 7200
        with pytest.raises(ValueError, match="must be a time such as"):
            cl.audit(model, train=train, test=test, budget="soon")
        with pytest.raises(ValueError, match="must leave time for one audit; got 1e-09 s"):
            cl.audit(model, train=train, test=test, audits=["accuracy"], budget=1e-9)
