"""Small data: few training images, drawn at random, and as many steps as with many.

A draw takes the place of a seed: every method gets the same images, and a larger draw contains a smaller one.
"""

from pathlib import Path

from papers.elsayed_2018.conditions import Table, compared_conditions
from papers.elsayed_2018.protocol import small_data_recipes
from papers.engine.study import StudyRequest

SETTING = "samples"
TABLES = (
    Table(
        "Test accuracy", "accuracy", "error", SETTING, {"split": "test"},
        panel="all test images", label="training images, drawn at random", scale="log",
    ),
)  # fmt: skip


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: The request. Seeds are draws of images, each with its own seed, 10 by default.
    """
    recipes = small_data_recipes(request.dataset, request.root, request.seeds)
    return compared_conditions("small-data", SETTING, TABLES, recipes, request)
