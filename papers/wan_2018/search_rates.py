"""The search for learning rates, the same for every method: by own-head error on a quarter of the training images.

Learning rates a factor 2 apart, five on most datasets, and further ones while the best stands at an edge; on CIFAR-100
with two values of one more setting of every loss. The test set is not read. What was chosen is written into
``learning_rates.toml`` by hand, from which the studies take it.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from clearance.research import Recipe
from papers.engine.catalogue import paper_recipe, with_settings
from papers.engine.rate_search import search_rates
from papers.engine.study import StudyRequest
from papers.wan_2018.combinations import PER_CLASS, combinations_recipe
from papers.wan_2018.protocol import (
    PAPER,
    PLANE_STEPS,
    PROTOCOLS,
    Condition,
    base_recipe,
    paced,
    plane_recipe,
)

WIDENINGS = 3


def searched_recipes(
    dataset: str, root: str | None = None, seeds: int | None = None
) -> Mapping[Condition, Recipe]:
    """The recipe that is searched for each condition, with the learning rates chosen before in the middle.

    On CIFAR-100 those of the recipe are there instead.

    >>> list(searched_recipes("digits")), list(searched_recipes("cifar10"))
    (['all', 'plane', 'combinations'], ['all'])
    """
    varied = PROTOCOLS[dataset]
    count = varied.search_seeds if seeds is None else seeds
    if varied.search_settings:  # those chosen before already have one of the two values
        start = _with_second_settings(paper_recipe(PAPER, dataset, root, count))
    else:
        start = base_recipe(dataset, root, count)
    recipes: dict[Condition, Recipe] = {"all": start}
    if dataset in PLANE_STEPS:
        recipes["plane"] = plane_recipe(dataset, root, count)
    if dataset == "digits":
        recipes["combinations"] = combinations_recipe(count)
    if varied.search_steps is not None:
        recipes = {name: paced(recipe, varied.search_steps) for name, recipe in recipes.items()}
    return recipes


def _with_second_settings(recipe: Recipe) -> Recipe:
    """Every method of a recipe with its own value of a setting, and with the second."""
    methods = dict(recipe.methods)
    for name, settings in PROTOCOLS[recipe.dataset].search_settings.items():
        words = ", ".join(f"{key} {value:g}" for key, value in settings.items())
        methods[f"{name}, {words}"] = with_settings(recipe.methods[name], settings)
    return dataclasses.replace(recipe, methods=methods)


def run(request: StudyRequest) -> Path:
    """Search, and write what was tried and what is best.

    Args:
        request: What was asked for. Seeds are runs of each candidate, those of the protocol by default.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    recipes = searched_recipes(request.dataset, request.root, request.seeds)
    factors = PROTOCOLS[request.dataset].search_factors
    return search_rates(recipes, WIDENINGS, request, PER_CLASS, factors)
