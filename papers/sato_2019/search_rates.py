"""The learning rates of CIFAR-10's recipe: four trials for every method, on half of the training images.

All epochs, one seed, no widening; the best is that with the smallest error of its own head on the other half. The test
set is not read. What is chosen is written into ``recipes/cifar10.yaml`` by hand.
"""

import dataclasses
from pathlib import Path

from clearance.research import Recipe
from papers.engine.catalogue import whole_recipe
from papers.engine.rate_search import search_rates
from papers.engine.study import StudyRequest

START, FACTORS = {"batchnorm": 0.1}, (0.5, 1.0, 2.0, 4.0)  # all other methods start at 0.05
HALF = "half"


def searched_recipe(dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """The recipe on half of the training images, with one seed by default, and the rates that the search starts from.

    >>> recipe = searched_recipe("cifar10")
    >>> recipe.train_fraction, recipe.seeds, recipe.methods["foca"].lr
    (0.5, 1, 0.05)
    """
    recipe = whole_recipe("sato_2019", dataset, root, 1 if seeds is None else seeds)
    methods = {n: dataclasses.replace(one, lr=START.get(n, 0.05)) for n, one in recipe.methods.items()}
    return dataclasses.replace(recipe, train_fraction=0.5, methods=methods)


def run(request: StudyRequest) -> Path:
    """Search, and write what was tried and what is best.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    recipe = searched_recipe(request.dataset, request.root, request.seeds)
    return search_rates({HALF: recipe}, 0, request, recipe.methods["foca"].per_class, factors=FACTORS)
