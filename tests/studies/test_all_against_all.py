"""Every method under every question: the plan, runs that are kept line by line, and the page made of the lines."""

import dataclasses
import json
import math
import shutil
from pathlib import Path

import pytest

from clearance.research import RunPlan, build_data, encode, identifier
from papers.all_against_all import page as pages
from papers.all_against_all.matrix import HERE, QUESTIONS, WHOLE, Matrix, Work, read_matrix
from papers.engine.kept import Kept, findings_in, key_of, run_kept
from studies.small_runs import grid_here


def small_plan():
    """The plan of digits with one method, one seed and a few steps."""
    plan = read_matrix("digits")
    few = {"epochs": 1, "seeds": 1}

    def smaller(one):
        start = one.recipe
        heads = {"per_class": [1, 10, 100], "repetitions": [2, 1, 1], "least_steps": 5, "passes": 1}
        settings = {
            **start.audit_settings,
            "robustness": {"epsilons": {"inf": [0.1]}, "images": 20, "steps": 2, "queries": 5},
            "minimal_perturbation": {"images": 20, "steps": 2, "queries": 2},
            "co_adaptation": {**heads, "all_images": False},
            "new_classes": {"per_class": [5], "repetitions": [1]},
            "likelihood": {"epsilons": [0.1], "steps": 1, "images": 40, "adaptive": []},
        }
        kept = {"plain": start.methods["plain"]}
        steps = None if start.steps is None else 5
        recipe = dataclasses.replace(start, **few, steps=steps, audit_settings=settings, methods=kept)
        return dataclasses.replace(one, recipe=recipe)

    return Matrix({name: smaller(one) for name, one in plan.conditions.items()}, {}, (1.0,))


def test_every_method_of_the_catalogue_is_in_the_plan_and_every_question_has_a_condition():
    from clearance.experiments.catalogue import METHODS

    plan = read_matrix("digits")
    assert set(METHODS) < set(plan.methods)
    assert {question.condition for question in QUESTIONS} == set(plan.conditions)
    assert all(one.recipe.seeds == 5 for one in plan.conditions.values())
    steps = [plan.recipe("few images", name, 0).steps for name in ("plain", "plain-longer")]
    assert steps == [300, 900]
    assert len({plan.recipe("new classes", "plain", seed).left_out for seed in range(5)}) == 5


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The small plan, run; what is left of it in a folder, and the plans that were run."""
    folder = tmp_path_factory.mktemp("matrix")
    noted: list[RunPlan] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clearance.experiments.search.run_grid", grid_here([]))
        patch.setattr("papers.engine.kept.run_grid", grid_here(noted))
        work = Work(small_plan(), folder / "digits")
        work.search(folder / "runs", 1, print)
        work.run(folder / "runs", 1, print)
    return folder, noted


def test_every_question_is_answered(finished):
    folder, noted = finished
    assert len(noted) == 6
    work = Work(small_plan(), folder / "digits")
    for question in QUESTIONS:
        assert sorted(question.values(work, "plain")) == [0], question.title


def test_on_another_day_nothing_is_run_again(finished, monkeypatch):
    folder, _ = finished
    again: list[RunPlan] = []
    monkeypatch.setattr("clearance.experiments.search.run_grid", grid_here(again))
    monkeypatch.setattr("papers.engine.kept.run_grid", grid_here(again))
    work = Work(small_plan(), folder / "digits")
    work.search(folder / "other", 1, print)
    work.run(folder / "other", 1, print)
    assert again == []


def test_the_page_is_made_of_the_lines_and_a_changed_digit_shows(finished, monkeypatch):
    folder, _ = finished
    monkeypatch.setattr(pages, "read_matrix", lambda dataset: small_plan())
    path = pages.write_page(folder / "digits")
    text = path.read_text("utf-8")
    lines = folder / "digits" / "runs.jsonl"
    assert "6 of 6 runs are finished" in text
    assert pages.verified_page(lines).problems == ()
    kept = lines.read_text("utf-8")
    rows = [json.loads(line) for line in kept.splitlines()]
    changed = next(one for one in rows[0]["records"] if one["audit"] == "accuracy")
    changed["value"] += 0.01
    lines.write_text("\n".join(map(json.dumps, rows)) + "\n", "utf-8")
    assert pages.verified_page(lines).problems == ("ledger.md is not what its lines give",)
    lines.write_text(kept, "utf-8")


def test_costs_are_measured_once_and_stand_first(finished, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(finished[0] / "digits", tmp_path / "digits"))
    monkeypatch.setattr(pages, "read_matrix", lambda dataset: small_plan())
    assert "| plain | – | – |" in pages.page(folder)
    Work(small_plan(), folder).measure_cost()
    assert "| plain | 1.0× | 1.0× |" in pages.page(folder)
    monkeypatch.setattr("papers.all_against_all.matrix.run_grid", None)
    again = Work(small_plan(), folder)
    again.measure_cost()
    assert again.memory()["plain"] > 0
    other = Work(dataclasses.replace(small_plan(), longer={"plain": 2}), folder)
    assert (other.times(), other.memory()) == ({}, {}), "measured with other settings"


def test_before_anything_is_run_the_page_has_no_numbers(tmp_path):
    folder = tmp_path / "digits"
    assert "0 of 510 runs are finished" in pages.page(folder)


def test_a_method_that_lost_a_seed_is_not_marked(tmp_path):
    committed = HERE / "results" / "digits"
    folder = Path(shutil.copytree(committed, tmp_path / "digits"))
    lines = (folder / "runs.jsonl").read_text("utf-8").splitlines()
    marked = cell(pages.page(folder), "large-margin", "smallest change")
    assert marked.startswith("**"), "with all seeds it is better than plain training"
    for place, line in enumerate(lines):
        row = json.loads(line)
        flips = [
            one for one in row["records"] if one["method"] == "large-margin" and one["name"] == "median_flip"
        ]
        if flips and flips[0]["seed"] == 0:
            flips[0]["value"] = encode(math.inf)
            lines[place] = json.dumps(row)
    (folder / "runs.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    assert not cell(pages.page(folder), "large-margin", "smallest change").startswith("*")


def cell(text, method, column):
    """A cell of the page's first table."""
    rows = [
        [part.strip() for part in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return next(row for row in rows if row[0] == method)[rows[0].index(column)]


class TestKept:
    def plans(self, seeds=3):
        recipe = dataclasses.replace(
            small_plan().recipe(WHOLE, "plain", 0), audits=("accuracy",), audit_settings={}
        )
        return [RunPlan(recipe, "plain", seed) for seed in range(seeds)], [build_data(recipe)] * seeds

    def run(self, folder, monkeypatch, noted, runs="runs", **how):
        plans, data = self.plans()
        monkeypatch.setattr("papers.engine.kept.run_grid", grid_here(noted, **how))
        return run_kept(plans, data, Kept(folder / "runs.jsonl"), folder / runs, 1, print)

    def test_a_study_goes_on_where_it_was_interrupted_with_the_lines_alone(self, tmp_path, monkeypatch):
        first: list[RunPlan] = []
        second: list[RunPlan] = []
        with pytest.raises(KeyboardInterrupt):
            self.run(tmp_path, monkeypatch, first, stop_after=2)
        found = self.run(tmp_path, monkeypatch, second, runs="runs of another day")
        assert [plan.seed for plan in first] == [0, 1]
        assert [plan.seed for plan in second] == [2]
        assert [one.note.seed for one in found] == [0, 1, 2]
        assert all(
            [r.measurement.name for r in one.records if r.measurement.audit == "accuracy"] for one in found
        )

    def test_a_line_that_was_cut_off_is_run_again(self, tmp_path, monkeypatch):
        self.run(tmp_path, monkeypatch, [])
        path = tmp_path / "runs.jsonl"
        text = path.read_text("utf-8")
        path.write_text(text[:-40], "utf-8")
        again: list[RunPlan] = []
        self.run(tmp_path, monkeypatch, again, runs="other")
        assert [plan.seed for plan in again] == [2]
        assert path.read_text("utf-8").count("\n") == 3

    def test_a_run_that_failed_is_tried_again(self, tmp_path, monkeypatch):
        again: list[RunPlan] = []
        found = self.run(tmp_path, monkeypatch, [], broken=[("plain", 1)])
        assert found[1].note.status == "failed: boom"
        self.run(tmp_path, monkeypatch, again, runs="other")
        assert [plan.seed for plan in again] == [1]

    def test_other_settings_or_audits_are_another_run(self, tmp_path):
        (plan, *_), _ = self.plans()
        audited = dataclasses.replace(
            plan, recipe=dataclasses.replace(plan.recipe, audits=("accuracy", "calibration"))
        )
        longer = dataclasses.replace(plan, recipe=dataclasses.replace(plan.recipe, epochs=2))
        assert len({identifier(key_of(one)) for one in (plan, audited, longer)}) == 3
        assert findings_in(Kept(tmp_path / "runs.jsonl"), plan) is None
