"""A sweep of what the images are: every value is run, and its finished runs are known again, on images of its own."""

from dataclasses import replace

from rich.console import Console

import clearance.cli._progress
from clearance.cli.compare import CompareCommand
from clearance.experiments.recipe import tuned_recipe
from clearance.experiments.run import failed
from clearance.experiments.sweep_words import parse_sweep


def grids(monkeypatch, tmp_path, sweep):
    """For each grid that is run: how many training images it has, and the values of its plans."""
    seen = []

    def run(_console, plans, data, _directory, _jobs):
        seen.append((len(data.train), [plan.recipe.train_fraction for plan in plans]))
        return [failed(plan, "not tried") for plan in plans]

    monkeypatch.setattr(clearance.cli._progress, "run_with_progress", run)
    start = tuned_recipe("digits")
    recipe = replace(start, seeds=2, methods={"plain": start.methods["plain"]})
    card = CompareCommand(out=tmp_path)._compared(Console(quiet=True), recipe, parse_sweep(sweep), jobs=1)
    return seen, [note.status for note in card.report.runs]


def test_each_share_of_the_training_images_has_its_own(monkeypatch, tmp_path):
    seen, notes = grids(monkeypatch, tmp_path, "train_fraction=0.1,0.5")
    assert seen == [(130, [0.1, 0.1]), (650, [0.5, 0.5])]
    assert [note.rpartition("(")[2] for note in notes] == ["train_fraction 0.1)"] * 2 + [
        "train_fraction 0.5)"
    ] * 2


def test_what_leaves_images_alone_is_one_grid(monkeypatch, tmp_path):
    seen, notes = grids(monkeypatch, tmp_path, "lr=0.01,0.1")
    assert seen == [(1300, [1.0] * 4)]
    assert [note.rpartition("(")[2] for note in notes] == ["lr 0.01)"] * 2 + ["lr 0.1)"] * 2
