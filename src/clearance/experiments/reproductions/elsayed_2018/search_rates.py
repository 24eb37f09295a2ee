"""The search for learning rates: for every method alike, with one rival and with all, under noise, from few images.

A quarter of the training images is held out, and where training labels are noisy so are theirs; the test set is not
read. What was chosen is committed in ``learning_rates.toml``, from which the recipes of the studies take it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from clearance.experiments.recipe import Recipe
from clearance.experiments.reproductions.elsayed_2018.protocol import (
    PROTOCOLS,
    Condition,
    base_recipe,
    noise_recipe,
    small_data_recipes,
)
from clearance.experiments.reproductions.rate_search import search_rates
from clearance.experiments.study_request import StudyRequest

WIDENINGS = 5  # noisy labels ask for far smaller steps than clean ones, in which a search begins


def searched_recipes(
    dataset: str, root: str | None = None, seeds: int | None = None
) -> Mapping[Condition, Recipe]:
    """The recipe that is searched for each condition, with the learning rates chosen before in the middle.

    >>> searched_recipes("digits")["noisy"].label_noise
    0.4
    """
    varied = PROTOCOLS[dataset]
    count = varied.search_seeds if seeds is None else seeds
    middle = varied.samples[len(varied.samples) // 2]
    noisy = noise_recipe(dataset, varied.searched_noise, root, count)
    return {
        "clean": base_recipe(dataset, root, count),
        "noisy": dataclasses.replace(noisy, validation=0.0),
        "few": small_data_recipes(dataset, root, count)[middle],
    }


def run(request: StudyRequest) -> Path:
    """Search, and write what was tried and what is best.

    Args:
        request: What was asked for. Seeds are runs of each candidate, those of the protocol by default.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    return _searched(request, get_args(Condition))


def run_clean(request: StudyRequest) -> Path:
    """The same for clean labels alone, which all attacks are about, and noise 0."""
    return _searched(request, ("clean",))


def run_noisy(request: StudyRequest) -> Path:
    """The same for wrong labels alone."""
    return _searched(request, ("noisy",))


def run_few(request: StudyRequest) -> Path:
    """The same for few images alone."""
    return _searched(request, ("few",))


def _searched(request: StudyRequest, conditions: Sequence[Condition]) -> Path:
    recipes = searched_recipes(request.dataset, request.root, request.seeds)
    chosen = {condition: recipes[condition] for condition in conditions}
    return search_rates(chosen, WIDENINGS, request, trial_epochs=PROTOCOLS[request.dataset].trial_epochs)
