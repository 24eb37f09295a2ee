"""Small data: few training images, drawn at random, and as many steps as with many.

A draw takes the place of a seed: every method gets the same images, and a larger draw contains a smaller one.
"""

from pathlib import Path

from clearance.experiments.grid import Listener
from clearance.experiments.reproduce import data_if_there
from clearance.experiments.reproductions.elsayed_2018.conditions import StudyOf, Table, run_conditions
from clearance.experiments.reproductions.elsayed_2018.protocol import small_data_recipes

SETTING = "samples"
TABLES = (Table("Test accuracy", "accuracy", "error", SETTING, {"split": "test"}),)


def run(
    out: Path,
    *,
    seeds: int | None,
    jobs: int,
    listener: Listener,
    dataset: str = "digits",
    root: str | None = None,
) -> Path:
    """Run the study and write its ledger; interrupted, it goes on where it stood.

    Args:
        out: Where ledger, report, figure and runs are kept.
        seeds: Draws of images, each with a seed of its own; 10 by default (CIFAR-10: 5).
        jobs: Processes at a time.
        listener: Told of events, as in :func:`clearance.experiments.grid.run_grid`.
        dataset: digits, mnist or cifar10.
        root: The folder that holds its files. Without them the ledger says "not run: no data".
    """
    recipes = small_data_recipes(dataset, root, seeds)
    study = StudyOf("small-data", dataset, TABLES)
    start = next(iter(recipes.values()))
    if (data := data_if_there(start)) is None:
        return study.without_data(start, seeds, out)
    return study.written(start, run_conditions(recipes, SETTING, data, out, jobs, listener), seeds, out)
