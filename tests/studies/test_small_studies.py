"""The studies of two suspected causes (A6) and of squared error (P1), scaled down: from runs to the ledger."""

import dataclasses

import pytest

from clearance.experiments.run import RunPlan
from papers.engine.reproduce import reproduce
from papers.sato_2019 import causes, rivals, squared_error
from studies.small_runs import cells, grids_here, interval, number, stored, with_changes

pytestmark = pytest.mark.filterwarnings("ignore:the final head is right on")  # after a few steps

SEEDS = 3
IMAGES = 130  # a tenth of the digits
FULL_CAUSES, FULL_SQUARED = causes.cause_recipe, squared_error.squared_error_recipe
FULL_RIVALS = rivals.rival_plans
ONE_IMAGE = {
    "per_class": [1],
    "repetitions": [2],
    "hidden": [4],
    "least_steps": 2,
    "passes": 1,
    "most_steps": 5,
}


def narrow(recipe):
    """The recipe with narrow heads of few steps on a tenth of the digits."""
    methods = {
        name: with_changes(method, hidden=(8, 8), head_steps=2, final_head_steps=5)
        for name, method in recipe.methods.items()
    }
    return dataclasses.replace(recipe, dataset="digits", train_fraction=0.1, methods=methods, epochs=1)


def small_causes(longer=False):
    recipe = FULL_CAUSES(longer)
    settings = dict.fromkeys(("co_adaptation", "deeper_cut"), ONE_IMAGE)
    return dataclasses.replace(narrow(recipe), epochs=recipe.epochs // 4, audit_settings=settings)


def small_squared(seeds=None):
    settings = {"co_adaptation": {**ONE_IMAGE, "all_images": False}}
    return dataclasses.replace(narrow(FULL_SQUARED(seeds)), audit_settings=settings)


def run_study(name, monkeypatch, out):
    plans: list[RunPlan] = []
    grids_here(monkeypatch, plans)
    reproduce("sato_2019", only=name, seeds=SEEDS, out=out)
    return stored(out, plans)


def test_the_retrained_head_is_compared_with_the_own_head_also_after_three_times_the_steps(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(causes, "cause_recipe", small_causes)
    monkeypatch.setattr(causes, "IMAGES", IMAGES)
    found = run_study("causes", monkeypatch, tmp_path)
    lines = [
        line for line in (tmp_path / "ledger.md").read_text("utf-8").splitlines() if line.startswith("- ")
    ]
    sides = [
        (causes.AS_RUN, "co_adaptation"),
        (causes.LONGER, "co_adaptation"),
        (causes.AS_RUN, "deeper_cut"),
    ]
    assert len(lines) == len(sides)
    for line, (method, audit) in zip(lines, sides, strict=True):
        gaps = [
            number(found[method, seed], audit, "error", head="retrained", samples=IMAGES)
            - number(found[method, seed], "accuracy", "error", split="test")
            for seed in range(SEEDS)
        ]
        _, low, high = interval(gaps)
        said = "more" if low > 0 else "less" if high < 0 else "not significantly otherwise"
        assert f"the retrained head errs **{said}**" in line
        assert "A6" not in line, "the verdict on the claim is in the ledger of every method"
        assert f"{SEEDS} seeds" in line
    steps = [number(found[method, 0], "training", "steps") for method in (causes.AS_RUN, causes.LONGER)]
    assert steps[1] == 3 * steps[0]


def test_without_mnist_the_study_says_not_run(tmp_path):
    found = reproduce("sato_2019", only="causes", root=str(tmp_path / "nothing"), out=tmp_path)
    assert found.missing
    assert "not run" in found.ledger.read_text("utf-8")


def small_rivals(dataset="mnist", root=None, seeds=SEEDS):
    settings = {"co_adaptation": {**ONE_IMAGE, "all_images": False}}
    plans = FULL_RIVALS(dataset, root, seeds)
    small = [narrow(plan.recipe) for plan in plans]
    return [
        dataclasses.replace(
            plan, recipe=dataclasses.replace(recipe, epochs=plan.recipe.epochs // 4, audit_settings=settings)
        )
        for plan, recipe in zip(plans, small, strict=True)
    ]


def test_every_rival_is_compared_with_foca_from_one_image(monkeypatch, tmp_path):
    monkeypatch.setattr(rivals, "rival_plans", small_rivals)
    plans: list[RunPlan] = []
    grids_here(monkeypatch, plans)
    reproduce("sato_2019", only="rivals", dataset="mnist", seeds=SEEDS, out=tmp_path)
    found = stored(tmp_path, plans)
    steps = {name: number(found[name, 0], "training", "steps") for name in rivals.METHODS}
    assert steps["plain-longer"] == 3 * steps["plain"]
    own = [one_image(found["foca", seed]) for seed in range(SEEDS)]
    for name in rivals.METHODS[:-1]:
        gaps = [mine - one_image(found[name, seed]) for seed, mine in enumerate(own)]
        (line,) = [
            one for one in (tmp_path / "ledger.md").read_text("utf-8").splitlines() if f"than {name}:" in one
        ]
        assert f"than {name}: " + f"{100 * interval(gaps)[0]:.1f}".replace("-", "−") in line


def one_image(records):
    return number(records, "co_adaptation", "error", head="retrained", samples=10)


def test_rivals_train_on_every_image_at_the_rates_of_new_heads():
    plans = {plan.method: plan.recipe for plan in rivals.rival_plans()}
    assert {recipe.samples for recipe in plans.values()} == {None}
    assert [plans[name].methods[name].lr for name in rivals.METHODS] == [
        0.1,
        0.1,
        0.1,
        0.05,
        0.1,
        0.05,
        0.1,
        0.05,
    ]


@pytest.mark.slow
def test_the_share_on_the_first_axis_stands_for_both_losses(monkeypatch, tmp_path):
    monkeypatch.setattr(squared_error, "squared_error_recipe", small_squared)
    found = run_study("squared-error", monkeypatch, tmp_path)
    row = cells(tmp_path)[squared_error.SHARE.label]
    for method in small_squared().methods:
        values = [
            number(found[method, seed], "low_dimension", "first_axis_share", **{"class": "mean"})
            for seed in range(SEEDS)
        ]
        mean, _, _ = interval(values)
        assert row[method].startswith(f"{100 * mean:.1f}")


@pytest.mark.parametrize("seeds", [2, None])
def test_the_seeds_are_those_asked_for(seeds):
    assert squared_error.squared_error_recipe(seeds).seeds == (5 if seeds is None else seeds)
