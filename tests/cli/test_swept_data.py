"""A sweep of what the images are: every value is run, and its finished runs are known again, on images of its own."""

from dataclasses import replace

from clearance.experiments import compare
from clearance.experiments.compare import Comparison
from clearance.experiments.recipe import tuned_recipe
from clearance.experiments.run import failed
from clearance.experiments.sweep import parse_sweep


def compared(monkeypatch, sweep):
    """For each run: how many training images it has and its share of them; and how the runs ended."""
    seen: list[tuple[int, float]] = []

    def run(plans, data, *_, **__):
        seen.extend(
            (len(one.train), plan.recipe.train_fraction) for plan, one in zip(plans, data, strict=True)
        )
        return [failed(plan, "not tried") for plan in plans]

    monkeypatch.setattr(compare, "run_grid", run)
    start = tuned_recipe("digits")
    recipe = replace(start, seeds=2, methods={"plain": start.methods["plain"]})
    card = Comparison(recipe, parse_sweep(sweep)).run()
    return seen, [note.status for note in card.report.runs]


def test_each_share_of_the_training_images_has_its_own(monkeypatch):
    seen, notes = compared(monkeypatch, "train_fraction=0.1,0.5")
    assert seen == [(130, 0.1)] * 2 + [(650, 0.5)] * 2
    assert [note.rpartition("(")[2] for note in notes] == ["train_fraction 0.1)"] * 2 + [
        "train_fraction 0.5)"
    ] * 2


def test_what_leaves_images_alone_shares_them(monkeypatch):
    seen, notes = compared(monkeypatch, "lr=0.01,0.1")
    assert seen == [(1300, 1.0)] * 4
    assert [note.rpartition("(")[2] for note in notes] == ["lr 0.01)"] * 2 + ["lr 0.1)"] * 2
