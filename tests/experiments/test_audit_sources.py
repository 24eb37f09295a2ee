"""Networks that an audit makes images on: one for each seed, alike for all methods, trained before they are needed."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import nn

import clearance as cl
from clearance.attacks import APGD, transferred
from clearance.data import gaussian_images
from clearance.experiments.audit import AuditRequest, Target, run_audit
from clearance.experiments.grid import plans_of, run_grid
from clearance.experiments.method import Method
from clearance.experiments.provenance import full_settings
from clearance.experiments.run import RunPlan, kept_findings, run_method, sources_of
from clearance.experiments.saved import load_model
from clearance.losses import HingeLoss
from clearance.models import Classifier
from clearance.training import EndToEnd

RADIUS, STEPS = 0.2, 2


@pytest.fixture
def sourced(recipe):
    """Plain training and a gentler one, attacked with images of another plainly trained network."""
    settings = {"epsilons": {"inf": [RADIUS]}, "steps": STEPS, "queries": 1, "source": "plain"}
    methods = {"plain": Method(hidden=(), clip_norm=1.0), "gentle": Method(hidden=(), lr=0.01)}

    def make(**changes):
        asked = {
            "epochs": 4,
            "audits": ("accuracy", "robustness"),
            "audit_settings": {"robustness": settings},
        }
        return recipe(methods=methods, **{**asked, **changes})

    return make


def transfer_accuracy(found):
    (value,) = [r.measurement.value for r in found.records if r.measurement.name == "transfer_accuracy"]
    return value


def test_a_seed_has_one_source_for_all_methods_and_it_is_no_network_of_the_comparison(sourced):
    plans = plans_of(sourced(seeds=2))
    sources = sources_of(plans)
    assert [(one.method, one.seed) for one in sources] == [("plain", 1000), ("plain", 1001)]
    assert all(one.recipe.audits == () and not one.sources for one in sources)
    assert not {one.folder for one in sources} & {plan.folder for plan in plans}
    assert {plan.sources["robustness"].folder for plan in plans if plan.seed == 1} == {sources[1].folder}


def test_the_images_are_those_of_the_sources_own_run(sourced, data, tmp_path):
    plan = RunPlan(sourced(), "gentle", 0)
    (source,) = sources_of([plan])
    run_method(source, data, tmp_path)
    found = run_method(plan, data, tmp_path)
    model, other = load_model(tmp_path / plan.folder), load_model(tmp_path / source.folder)
    attack = APGD(RADIUS, math.inf, steps=STEPS)
    images, labels = data.test.images, data.test.labels
    left = ~transferred(other, attack)(model, images, labels).success
    assert transfer_accuracy(found) == float(left.double().mean())
    alone = attack.perturbed(model, images, labels)
    assert not torch.equal(attack.perturbed(other, images, labels), alone)


def test_what_is_not_there_is_refused_before_training(sourced, data, tmp_path):
    plan = RunPlan(sourced(), "gentle", 0)
    with pytest.raises(
        ValueError, match=r"`source` of audit 'robustness' must be a trained network.*none in"
    ):
        run_method(plan, data, tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="got no directory of runs"):
        run_method(plan, data)


def test_a_method_that_the_recipe_lacks_is_refused(sourced, data, tmp_path):
    settings = {"robustness": {"source": "plane"}}
    plans = plans_of(sourced(audit_settings=settings))
    with pytest.raises(ValueError, match=r"method of the recipe.*got 'plane'.*Did you mean 'plain'"):
        run_grid(plans, data, tmp_path, 1, lambda *_: None)
    with pytest.raises(ValueError, match="setting of audit 'accuracy'"):
        run_method(RunPlan(sourced(audit_settings={"accuracy": {"source": "plain"}}), "plain", 0), data)


@pytest.mark.filterwarnings("ignore::clearance.losses.TrainingWarning")
def test_a_source_that_learnt_nothing_is_refused(sourced, data, tmp_path):
    wild = {"plain": Method(hidden=(), lr=1e9), "gentle": Method(hidden=(), lr=0.01)}
    plan = RunPlan(dataclasses.replace(sourced(), methods=wild), "gentle", 0)
    run_method(sources_of([plan])[0], data, tmp_path)
    with pytest.raises(ValueError, match=r"whose training finished; got one in .* that diverged"):
        run_method(plan, data, tmp_path)


def test_another_source_is_another_measurement_and_the_same_is_read_back(sourced, data, tmp_path):
    plan = RunPlan(sourced(), "gentle", 0)
    run_method(sources_of([plan])[0], data, tmp_path)
    first = run_method(plan, data, tmp_path)
    again = run_method(plan, data, tmp_path)  # the seconds that training took, too
    assert [r.to_json() for r in again.records] == [r.to_json() for r in first.records]
    methods = {**plan.recipe.methods, "plain": Method(hidden=(), lr=0.2)}
    changed = RunPlan(dataclasses.replace(plan.recipe, methods=methods), "gentle", 0)
    assert changed.folder == plan.folder
    assert kept_findings(plan, data, tmp_path) is not None
    assert kept_findings(changed, data, tmp_path) is None


def test_a_grid_trains_sources_first_and_reports_none_of_them(sourced, data, tmp_path):
    order = []

    def heard(plan, event):
        if event["event"] == "start":
            order.append((plan.method, plan.seed))

    found = run_grid(plans_of(sourced()), data, tmp_path, None, heard)
    assert order == [("plain", 1000), ("plain", 0), ("gentle", 0)]
    assert [(one.note.method, one.note.seed) for one in found if one.note] == order[1:]


def test_python_trains_no_network_that_the_recipe_does_not_describe():
    train, test = gaussian_images(per_class=12, seed=0), gaussian_images(per_class=12, seed=1)

    def compare(**given):
        methods: dict[str, Any] = {"plain": "plain", "mine": EndToEnd(HingeLoss())}
        settings = {"robustness": {"source": given.pop("source")}}
        cl.compare(
            methods, train, test, seeds=1, epochs=1, audits=["robustness"], audit_settings=settings, **given
        )

    for source in ("mine", "plan"):
        with pytest.raises(
            ValueError,
            match=r"`source of audit 'robustness', a method of plain settings` must be one of 'plain'",
        ):
            compare(source=source)
    with pytest.raises(
        ValueError, match=r"`model` must be a name where 'robustness'.*Robustness\(source=network\)"
    ):
        compare(source="plain", model=lambda: Classifier(nn.Flatten(), nn.Linear(64, 3)))


def test_reports_name_the_source(sourced, data, tmp_path):
    plan = RunPlan(sourced(), "gentle", 0)
    assert full_settings(plan.recipe)["audit_settings"]["robustness"]["source"] == "plain"
    run_method(sources_of([plan])[0], data, tmp_path)
    audits = plan.resolved_audits(data, tmp_path)
    model = load_model(tmp_path / sources_of([plan])[0].folder)
    target = Target(model, data, audits, 0, "plain", sources={"robustness": "plain"})
    card = run_audit(target, AuditRequest(), lambda _: "")
    settings = {one["type"].split(":")[-1].split(".")[-1]: one for one in card.report.recipe["audits"]}
    assert settings["Robustness"]["source"] == "plain"
    assert settings["Robustness"]["steps"] == STEPS
