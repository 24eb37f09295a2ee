"""Noisy labels: training labels switched at random to another class, the test set clean.

Labels are switched once for each seed; what is wrong at a low rate is wrong at a higher one too. Errors are recorded
after every epoch, the verdict is the last one's, and beside it stands the epoch that noisy validation would choose.
"""

from pathlib import Path

from clearance.experiments.reproductions.elsayed_2018.condition_tables import Table, compared_conditions
from clearance.experiments.reproductions.elsayed_2018.protocol import noise_recipes
from clearance.experiments.study_request import StudyRequest

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


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: What was asked for. Seeds are runs of each method at each rate; those of the recipe by default.
    """
    recipes = noise_recipes(request.dataset, request.root, request.seeds)
    return compared_conditions("noise", SETTING, TABLES, recipes, request)
