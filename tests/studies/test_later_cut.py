"""FOCA with one more layer in its extractor: the same networks, one rule for the rates, verdicts from the seeds."""

import dataclasses

import pytest
import torch

from clearance.experiments.run import RunPlan
from clearance.experiments.saved import empty_model
from clearance.research import Trial
from papers.engine.reproduce import reproduce
from papers.sato_2019 import later_cut
from studies.small_runs import grids_here, interval, number, stored, with_changes

SEEDS = 3
FULL = later_cut.later_cut_recipe


def small(dataset="digits", root=None, seeds=None):
    recipe = FULL(dataset, root, seeds)
    methods = {
        name: with_changes(recipe.methods[name], features=8, hidden=(8,), head_steps=2, final_head_steps=5)
        for name in ("plain", "foca")
    }
    heads = {"per_class": [1, 10], "repetitions": [2, 2], "least_steps": 2, "passes": 1, "most_steps": 5}
    settings = {"co_adaptation": {**heads, "all_images": False}}
    return dataclasses.replace(recipe, train_fraction=0.2, epochs=1, audit_settings=settings, methods=methods)


def trial(method, lr, own, one_image, failed=False):
    return Trial(method, lr, 1, 1, one_image, None, own, ("failed: no memory",) if failed else ("finished",))


def test_the_cut_moves_and_the_network_does_not():
    for name in ("plain", "batchnorm"):
        method = FULL().methods[name]
        back = dataclasses.replace(method, features=0, hidden=(method.features, *method.hidden))
        moved, usual = (empty_model("small-cnn", one, (1, 8, 8), 10) for one in (method, back))
        assert layers(moved) == layers(usual)
        assert moved.features(torch.zeros(2, 1, 8, 8)).shape == (2, 128)


def layers(model):
    """Every layer and the shapes of its weights, in order."""
    kept = [layer for layer in model.modules() if not list(layer.children())]
    return [(type(layer).__name__, [tuple(one.shape) for one in layer.parameters()]) for layer in kept]


def test_rates_are_compared_at_equal_own_error():
    tried = [
        trial(
            "foca", 0.1, own=0.030, one_image=0.02
        ),  # best from one image, but 1 point above plain's own error
        trial("foca", 0.2, own=0.024, one_image=0.04),
        trial("foca", 0.4, own=0.021, one_image=0.05),
        trial("plain", 0.1, own=0.020, one_image=0.09),
        trial("plain", 0.2, own=0.000, one_image=0.00, failed=True),
    ]
    assert later_cut.chosen_trial(tried, "foca").lr == 0.2
    assert later_cut.chosen_trial(tried, "plain").lr == 0.1
    worse = [dataclasses.replace(one, own_error=one.own_error + 0.1) for one in tried[:3]]
    assert later_cut.chosen_trial([*worse, tried[3]], "foca").lr == 0.4, "none is near: the lowest own error"


@pytest.mark.slow
def test_the_verdict_is_that_of_the_seeds(monkeypatch, tmp_path):
    plans: list[RunPlan] = []
    grids_here(monkeypatch, plans)
    monkeypatch.setattr(later_cut, "later_cut_recipe", small)
    tried = [trial("plain", 0.1, own=0.1, one_image=0.1), trial("foca", 0.2, own=0.1, one_image=0.1)]
    monkeypatch.setattr(later_cut, "search_settings", lambda *_, **__: tried)
    reproduce("sato_2019", only="later-cut", seeds=SEEDS, out=tmp_path)
    assert {name: one.lr for name, one in plans[0].recipe.methods.items()} == {"plain": 0.1, "foca": 0.2}
    found = stored(tmp_path, plans)
    gaps = [
        number(found["foca", seed], "co_adaptation", "error", head="retrained", samples=10)
        - number(found["plain", seed], "co_adaptation", "error", head="retrained", samples=10)
        for seed in range(SEEDS)
    ]
    _, low, high = interval(gaps)
    said = "less" if high < 0 else "more" if low > 0 else "not significantly otherwise"
    text = (tmp_path / "ledger.md").read_text("utf-8")
    assert f"FOCA errs **{said}** than plain" in text
    assert "## The search" in text
