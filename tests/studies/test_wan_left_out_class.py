"""Whether likelihoods tell images of a class that no network saw: the draws, and what the ledger says."""

import dataclasses
import json

import pytest

from clearance.experiments.run import RunPlan
from papers.engine.study import NoDataError, StudyRequest
from papers.wan_2018 import left_out_class
from studies.small_runs import Unrendered, cells, grids_here

METHODS = ("softmax", "center", "l-softmax", "gm", "lgm")


@pytest.fixture
def quick(monkeypatch):
    """All methods on a tenth of nine digits for a few steps, in this process; the plans that were run."""
    plans: list[RunPlan] = []
    asked = left_out_class.left_out_recipe

    def briefly(*given):
        start = asked(*given)
        settings = {**start.audit_settings["likelihood"], "images": 40, "steps": 2, "reference": 50}
        return dataclasses.replace(
            start,
            epochs=4,
            steps=None,
            batch_size=16,
            train_fraction=0.1,
            audit_settings={"likelihood": settings},
        )

    monkeypatch.setattr(left_out_class, "left_out_recipe", briefly)
    monkeypatch.setattr("papers.engine.study.Card", Unrendered)
    grids_here(monkeypatch, plans)
    return plans


@pytest.mark.slow
def test_one_class_a_draw_and_every_score_that_tells_it_apart(quick, tmp_path):
    path = left_out_class.run(StudyRequest(tmp_path, seeds=2))
    draws = [left_out_class.left_out_recipe(draw).left_out for draw in (0, 1)]
    assert [p.recipe.left_out for p in quick] == [d for d in draws for _ in METHODS]
    assert [p.seed for p in quick] == [0] * 5 + [1] * 5
    text = path.read_text("utf-8")
    assert f"in 2 draws, which stand for seeds below: {draws[0][0]}; {draws[1][0]}." in text
    ledger = json.loads((tmp_path / "ledger.json").read_text("utf-8"))
    rows = {(row["label"], row["method"]): row for row in ledger["rows"]}
    label = "detected by the own likelihood (AUROC)"
    measured = json.loads((tmp_path / "report.json").read_text("utf-8"))["measurements"]
    for method, score in (
        ("softmax", "likelihood"),
        ("center", "learned centre"),
        ("lgm", "likelihood"),
    ):
        areas = [
            row["value"]
            for row in measured
            if (row["method"], row["name"]) == (method, "auroc")
            and (row["context"].get("unseen"), row["context"]["score"]) == ("classes left out", score)
        ]
        assert len(areas) == 2
        assert list(rows[label, method]["values"].values()) == areas
    every = cells(tmp_path)["lgm"]  # the last table
    assert "density" in every
    assert "small pixels" in every
    assert [column for column, cell in every.items() if "%" not in cell] == [
        "learned centre"
    ]  # not of a mixture


def test_every_draw_is_another_class():
    drawn = [left_out_class.left_out_recipe(draw).left_out for draw in range(10)]
    assert sorted(drawn) == [(k,) for k in range(10)]
    assert drawn == [left_out_class.left_out_recipe(draw).left_out for draw in range(10)]
    hundred = [left_out_class.left_out_recipe(draw, "cifar100").left_out for draw in range(100)]
    assert sorted(hundred) == [(k,) for k in range(100)]


def test_more_draws_than_classes_are_refused_before_anything_is_run(quick, tmp_path):
    with pytest.raises(
        ValueError, match="at most 10 draws, one for each class of digits; got draw number 11"
    ):
        left_out_class.run(StudyRequest(tmp_path, seeds=11))
    assert not quick


def test_without_files_it_says_so(tmp_path):
    with pytest.raises(NoDataError, match="needs the files of mnist; give their folder with --root"):
        left_out_class.run(StudyRequest(tmp_path, dataset="mnist"))
