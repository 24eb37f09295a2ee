"""Noisy labels: training labels switched at random to another class, the test set clean.

Labels are switched once for each seed; what is wrong at a low rate is wrong at a higher one too. Errors are recorded
after every epoch, the verdict is the last one's, and beside it stands the epoch that noisy validation would choose.
"""

from pathlib import Path

from clearance.experiments.grid import Listener
from clearance.experiments.reproduce import data_if_there
from clearance.experiments.reproductions.elsayed_2018.conditions import StudyOf, Table, run_conditions
from clearance.experiments.reproductions.elsayed_2018.protocol import noise_recipes

SETTING = "noise"
TABLES = (
    Table("Test accuracy after the last epoch", "accuracy", "error", SETTING, {"split": "test"}),
    Table(
        "Test accuracy at the epoch with the lowest error on noisy validation labels",
        "training",
        "early_stopped_error",
        SETTING,
    ),
)


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
        seeds: Runs of each method at each rate; those of the recipe by default.
        jobs: Processes at a time.
        listener: Told of events, as in :func:`clearance.experiments.grid.run_grid`.
        dataset: digits, mnist or cifar10.
        root: The folder that holds its files. Without them the ledger says "not run: no data".
    """
    recipes = noise_recipes(dataset, root, seeds)
    study = StudyOf("noise", dataset, TABLES)
    start = next(iter(recipes.values()))
    if (data := data_if_there(start)) is None:
        return study.without_data(start, seeds, out)
    return study.written(start, run_conditions(recipes, SETTING, data, out, jobs, listener), seeds, out)
