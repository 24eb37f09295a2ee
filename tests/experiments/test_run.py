"""One method under one seed: what is kept, what is shared, and what is read back."""

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
import torch
from torch import nn

from clearance import load_dataset
from clearance.audits import Audit, Findings
from clearance.data import Augmentation, ImageSet, StoredImageSet
from clearance.data.stored import write_pixels
from clearance.experiments.audit_plan import AuditPlan
from clearance.experiments.build import RunData
from clearance.experiments.grid import plans_of, run_grid
from clearance.experiments.method import Method
from clearance.experiments.run import RunPlan, kept_findings, run_method
from clearance.experiments.saved import build_model, load_model, load_run
from clearance.losses import CrossEntropyLoss
from clearance.models import Classifier
from clearance.training import FOCA, EndToEnd
from clearance.vocabulary import Outcome


class Sees(Audit):
    """Keeps the networks that it is asked about."""

    name = "sees"
    models: ClassVar[list[Classifier]] = []

    def examine(self, subject):
        self.models.append(subject.model)
        return Findings(())


@pytest.fixture
def seen():
    """The networks that runs with `SEEING` trained."""
    Sees.models.clear()
    return Sees.models


SEEING = AuditPlan.of([Sees()])


def trained(folder):
    """When the weights of a run and its steps were written."""
    return [(folder / name).stat().st_mtime_ns for name in ("model.safetensors", "metrics.jsonl")]


def numbers(found, *without):
    return [
        r.to_json()
        for r in found.records
        if (r.measurement.audit, r.measurement.name) != ("training", "seconds")
    ]


def test_records_say_whose_they_are(recipe, data):
    found = run_method(RunPlan(recipe(), "plain", 4), data)
    assert {(r.dataset, r.method, r.seed) for r in found.records} == {("gaussian", "plain", 4)}
    names = {(r.measurement.audit, r.measurement.name) for r in found.records}
    names.discard(("accuracy", "largest_class"))  # two epochs are hardly better than naming one class
    assert names == {("accuracy", "error"), ("training", "seconds"), ("training", "steps")}
    (steps,) = [r.measurement for r in found.records if r.measurement.name == "steps"]
    assert steps.value == 2 * 3  # two epochs of 24 images, 8 a step
    assert found.note is not None
    assert found.note.outcome in (Outcome.FINISHED, Outcome.COLLAPSED)
    (curve,) = [e.exhibit for e in found.exhibits if e.exhibit.audit == "training"]
    assert curve.columns["step"] == [3, 6]
    assert all(loss > 0 for loss in curve.columns["loss"])


def test_the_name_of_a_folder_says_nothing_of_the_callers_own_network_or_loss(recipe, data, tmp_path):
    def own():
        return Classifier(nn.Flatten(), nn.Linear(64, 3))

    for plan in (
        RunPlan(recipe(), "plain", 0, model=own),
        RunPlan(recipe(), "plain", 1, way=EndToEnd(CrossEntropyLoss())),
    ):
        run_method(plan, data, tmp_path)
        assert kept_findings(plan, data, tmp_path) is None


def test_images_that_only_share_a_name_are_refused(recipe, data, tmp_path):
    plan, digits = RunPlan(recipe(dataset="digits"), "plain", 0), load_dataset("digits")
    run_method(plan, RunData(digits.per_class(2, seed=0), load_dataset("digits", split="test")), tmp_path)
    with pytest.raises(
        ValueError, match="must be those that the run was trained on; got others called 'digits'"
    ):
        load_run(tmp_path / plan.folder).data()


def test_images_on_disk_give_the_same_normalisation(data, tmp_path, monkeypatch):
    monkeypatch.setattr("clearance.data.stored.IN_MEMORY", 100)  # bytes
    pixels = (255 * data.train.images).round().to(torch.uint8).expand(-1, 2, -1, -1).clone().numpy()
    pixels[:, 1] = 15  # a channel of one value, whose deviation must not become less than nothing
    train = ImageSet(torch.from_numpy(pixels) / 255, data.train.labels, data.train.classes)
    stored = StoredImageSet(write_pixels(tmp_path / "a.pixels", list(pixels)), train.labels, train.classes)
    ours, theirs = (build_model("tiny-cnn", Method(hidden=(8,)), one, 0) for one in (stored, train))
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


def test_what_is_finished_is_read_back(recipe, data, tmp_path):
    plan = RunPlan(recipe(), "plain", 0)
    first = run_method(plan, data, tmp_path)
    again = run_method(plan, data, tmp_path)  # the seconds that training took, too
    assert [r.to_json() for r in again.records] == [r.to_json() for r in first.records]
    assert [e.to_json() for e in again.exhibits] == [e.to_json() for e in first.exhibits]
    assert again.note == first.note


def test_channels_last_is_the_same_training_but_for_rounding(recipe, data, tmp_path, seen):
    for last in (False, True):
        plan = RunPlan(recipe(model="tiny-cnn", channels_last=last), "plain", 0, audits=SEEING)
        run_method(plan, data, tmp_path)
    kept = [*seen]
    kept.append(load_model(tmp_path / plan.folder))
    plain, moved, read_back = (dict(model.named_parameters()) for model in kept)
    filters = {name for name, weight in plain.items() if weight.ndim == 4 and weight.shape[1] > 1}
    assert filters
    for name in plain:
        assert plain[name].is_contiguous()
        assert moved[name].is_contiguous() is (name not in filters)
        assert read_back[name].is_contiguous() is (name not in filters)
        assert torch.allclose(moved[name], plain[name], rtol=1e-4, atol=1e-5)


def test_other_audits_are_measured_on_the_trained_model(recipe, data, tmp_path):
    plan = RunPlan(recipe(), "plain", 0)
    first = run_method(plan, data, tmp_path)
    before = trained(tmp_path / plan.folder)
    more = run_method(
        dataclasses.replace(plan, recipe=recipe(audits=("accuracy", "class_scatter"))), data, tmp_path
    )
    assert trained(tmp_path / plan.folder) == before
    assert numbers(first) == [r for r in numbers(more) if r["audit"] != "class_scatter"]
    assert any(r["audit"] == "class_scatter" for r in numbers(more))


ANYTHING = [
    "",
    '{"model": "small-cnn", "meth',
    "null",
    "[]",
    "{}",
    '{"recipe": null}',
    "NaN",
    "1" * 400,
    "[" * 10**5,
    '{"model": "small-cnn", "method": {}, "shape": 3, "classes": [], "recipe": null, "name": "a", "seed": 0}',
    '{"model": "small-cnn", "method": {"lr": 1' + "0" * 400 + '}, "shape": [1, 8, 8], "classes": ["a", "b"], '
    '"recipe": {}, "name": "a", "seed": 0}',
]


@pytest.mark.parametrize("content", ANYTHING, ids=lambda content: content[:20])
def test_anything_in_the_files_of_a_run_is_told_or_measured_again(recipe, data, tmp_path, content):
    plan = RunPlan(recipe(), "plain", 0)
    first = run_method(plan, data, tmp_path)
    folder = tmp_path / plan.folder
    (folder / "model.json").write_text(content, "utf-8")
    with pytest.raises(
        ValueError, match=r"model\.json must hold the settings of the run's network.*train again"
    ):
        load_model(folder)
    (folder / "findings.json").write_text(content, "utf-8")
    assert numbers(run_method(plan, data, tmp_path)) == numbers(first)
    load_model(folder)  # written again
    again = kept_findings(plan, data, tmp_path)
    assert again is not None
    assert numbers(again) == numbers(first)


@pytest.mark.parametrize(
    "damage", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-1] + b"x")]
)
def test_a_finished_run_without_its_weights_is_not_already_there(recipe, data, tmp_path, damage):
    two = recipe(methods={"plain": Method(hidden=(4,)), "other": Method(hidden=(5,))})
    plans = plans_of(dataclasses.replace(two, seeds=1))
    events: list[tuple[str, str]] = []
    with ThreadPoolExecutor(1) as engine:
        run_grid(plans, data, tmp_path, engine, send_data=True)
        damage(tmp_path / plans[0].folder / "model.safetensors")
        broken, whole = run_grid(
            plans, data, tmp_path, engine, lambda plan, event: events.append((plan.title, event["event"])),
            send_data=True,
        )  # fmt: skip
    assert events == [("plain, seed 0", "failed"), ("other, seed 0", "kept")]
    assert broken.note is not None
    assert "model.safetensors" in broken.note.status
    assert "delete" in broken.note.status
    assert whole.records


def test_memory_that_was_measured_stays_when_other_audits_are_asked_for(recipe, data, tmp_path):
    plan = RunPlan(recipe(), "plain", 0)
    first = run_method(plan, data, tmp_path, own_process=True)
    more = dataclasses.replace(plan, recipe=recipe(audits=("accuracy", "class_scatter")))
    again = run_method(more, data, tmp_path, own_process=True)
    (measured,), (kept,) = ([r for r in numbers(found) if r["name"] == "memory"] for found in (first, again))
    assert kept == measured


def test_other_images_are_refused_where_a_run_is_kept(recipe, data, tmp_path):
    plan = RunPlan(recipe(), "plain", 0)
    run_method(plan, data, tmp_path)
    noisy = RunData(data.train.with_label_noise(0.2, 0), data.test)
    with pytest.raises(ValueError, match=r"must be the directory of the same run.*train"):
        run_method(plan, noisy, tmp_path)
    changed = RunData(data.train.augmented(Augmentation(flip=True)), data.test)
    with pytest.raises(ValueError, match="augmentation"):
        run_method(plan, changed, tmp_path)


def test_another_test_set_is_measured_without_training(recipe, data, tmp_path):
    plan = RunPlan(recipe(), "plain", 0)
    run_method(plan, data, tmp_path)
    before = trained(tmp_path / plan.folder)
    found = run_method(plan, RunData(data.train, data.test.subset(torch.arange(12))), tmp_path)
    assert trained(tmp_path / plan.folder) == before
    assert {r["n"] for r in numbers(found) if r["audit"] == "accuracy"} == {24, 12}


def test_a_changed_fingerprint_is_refused(recipe, data, tmp_path):
    plan = RunPlan(recipe(), "plain", 0)
    run_method(plan, data, tmp_path)
    folder = tmp_path / plan.folder
    for name in ("findings.json", "manifest.json"):
        (folder / name).unlink()
    stored = json.loads((folder / "run.json").read_text())
    stored["fingerprint"]["settings"]["epochs"] = 77
    (folder / "run.json").write_text(json.dumps(stored))
    with pytest.raises(ValueError, match=r"same run.*settings\.epochs: 77 there, 2 here"):
        run_method(plan, data, tmp_path)


@pytest.mark.parametrize("name", ["nearest", "accuracyy"])
def test_a_wrong_audit_is_found_before_training(recipe, data, tmp_path, name):
    with pytest.raises(ValueError, match="audit"):
        run_method(RunPlan(recipe(audits=(name,)), "plain", 0), data, tmp_path)
    settings = {"accuracy": {"level": 1}}
    with pytest.raises(ValueError, match="setting of audit 'accuracy'"):
        run_method(RunPlan(recipe(audit_settings=settings), "plain", 0), data, tmp_path)
    assert not list(tmp_path.iterdir())


def test_sets_that_do_not_belong_together_are_refused_before_training(data):
    from clearance.data import gaussian_images

    with pytest.raises(ValueError, match="same classes"):
        RunData(data.train, gaussian_images(class_count=2))


def watched(monkeypatch, kind, seen):
    """Note every batch that a way of training is given."""
    start = kind.start

    def noted(self, *arguments):
        training = start(self, *arguments)
        step = training.step

        def stepped(images, labels):
            seen.append(images.clone())
            return step(images, labels)

        training.step = stepped
        return training

    monkeypatch.setattr(kind, "start", noted)


def test_methods_of_a_seed_see_the_same_batches(recipe, data, monkeypatch):
    joint: list = []
    foca: list = []
    watched(monkeypatch, EndToEnd, joint)
    watched(monkeypatch, FOCA, foca)
    methods = recipe().methods | {"wide": Method(hidden=(16, 16), dropout=0.5, norm="batch", head_noise=0.1)}
    both = recipe(methods=methods)
    run_method(RunPlan(both, "plain", 0), data)
    run_method(RunPlan(both, "wide", 0), data)
    run_method(RunPlan(both, "foca", 0), data)
    assert len(foca) == 6
    assert all(torch.equal(a, b) for a, b in zip(joint, [*foca, *foca], strict=True))
    joint.clear()
    run_method(RunPlan(both, "plain", 1), data)
    assert not torch.equal(joint[0], foca[0])


def test_methods_of_a_seed_share_partial_sets_and_first_weights(recipe, data):
    settings = {"co_adaptation": {"per_class": [1], "repetitions": [5], "hidden": [4], "all_images": False}}
    shared = recipe(audits=("co_adaptation",), audit_settings=settings)
    pixels = {
        (method, seed): next(
            r.measurement.value
            for r in run_method(RunPlan(shared, method, seed), data).records
            if r.measurement.context.get("head") == "nearest pixel"
        )
        for method in shared.methods
        for seed in (0, 1)
    }
    assert pixels["plain", 0] == pixels["foca", 0]
    assert pixels["plain", 1] == pixels["foca", 1]
    assert pixels["plain", 0] != pixels["plain", 1]
    plain, foca, wide = (
        build_model("small-cnn", method, data.train, 3).state_dict()
        for method in (Method(), Method(way="foca"), Method(hidden=(512, 512), dropout=0.5))
    )
    assert all(torch.equal(plain[name], foca[name]) for name in plain)
    extractor = [name for name in plain if name.startswith("extractor")]
    assert all(torch.equal(plain[name], wide[name]) for name in extractor)
    other = build_model("small-cnn", Method(), data.train, 4).state_dict()
    assert not torch.equal(plain["extractor.0.weight"], other["extractor.0.weight"])


def test_a_run_leaves_the_callers_random_numbers_alone(recipe, data, tmp_path):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    plan = RunPlan(recipe(), "foca", 0)
    run_method(plan, data, tmp_path)
    load_model(tmp_path / plan.folder)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "change", [{}, {"norm": "batch", "dropout": 0.3, "hidden": (8, 9)}, {"way": "foca", "per_class": 2}]
)
def test_a_loaded_model_is_the_trained_one(recipe, data, tmp_path, seen, change):
    method = dataclasses.replace(Method(hidden=(8,)), **change)
    plan = RunPlan(recipe(methods={"mine": method}), "mine", 2, audits=SEEING)
    run_method(plan, data, tmp_path)
    loaded = load_run(tmp_path / plan.folder)
    assert not loaded.model.training
    with torch.no_grad():
        assert torch.equal(loaded.model(data.test.images), seen[0].eval()(data.test.images))
    assert (loaded.method, loaded.seed) == ("mine", 2)
    assert loaded.recipe == plan.recipe


def test_the_generators_of_gpus_are_left_alone(recipe, data, tmp_path, monkeypatch):
    def seeded(seed):
        raise AssertionError("the caller's GPU was seeded")

    plan = RunPlan(recipe(methods={"mine": Method(hidden=(8,))}), "mine", 0, audits=SEEING)
    monkeypatch.setattr("torch.cuda.manual_seed_all", seeded)
    run_method(plan, data, tmp_path)
    load_run(tmp_path / plan.folder)


def test_a_directory_without_a_run_is_explained(recipe, data, tmp_path):
    with pytest.raises(FileNotFoundError, match="must be the directory of a finished run"):
        load_model(tmp_path)
    plan = RunPlan(recipe(), "plain", 0)
    run_method(plan, data, tmp_path)
    with pytest.raises(FileNotFoundError, match=f"It holds the runs {plan.folder}"):
        load_model(tmp_path)
    (tmp_path / plan.folder / "result.json").unlink()
    with pytest.raises(ValueError, match="finished"):
        load_model(tmp_path / plan.folder)
