"""A sweep of what the images are: every value is run on images of its own, and what leaves them alone shares them."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from clearance.experiments.compare import Comparison
from clearance.experiments.recipe import tuned_recipe
from clearance.experiments.sweep import parse_sweep


@pytest.mark.parametrize(
    ("sweep", "expected"),
    [
        ("train_fraction=0.02,0.1", {0.02: 26, 0.1: 130}),
        ("lr=0.01,0.1", {0.01: 130, 0.1: 130}),
    ],
)
def test_each_value_was_trained_on_its_own_share(sweep, expected):
    start = tuned_recipe("digits")
    recipe = replace(
        start,
        seeds=2,
        epochs=1,
        train_fraction=0.1,
        audits=("accuracy",),
        methods={"plain": start.methods["plain"]},
    )
    with ThreadPoolExecutor(1) as engine:
        card = Comparison(recipe, parse_sweep(sweep)).run(engine)
    name = sweep.partition("=")[0]
    found = {
        (m.context[name], r.seed): m.n
        for r in card.records
        if (m := r.measurement).audit == "accuracy" and m.context["split"] == "train"
    }
    assert found == {(value, seed): count for value, count in expected.items() for seed in (0, 1)}
    ends = [note.status.rpartition("(")[2] for note in card.report.runs]
    assert sorted(ends) == sorted(f"{name} {value})" for value in expected for _ in (0, 1))
