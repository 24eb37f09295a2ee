"""The same comparison under several conditions, told apart by a setting in the context of every number."""

from collections.abc import Mapping
from typing import Any

from clearance.experiments.build import RunData
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunFindings, RunPlan
from clearance.experiments.study_request import StudyRequest
from clearance.experiments.sweep import under


def run_conditions(
    recipes: Mapping[Any, Recipe], setting: str, data: RunData, request: StudyRequest
) -> list[RunFindings]:
    """Every method and seed under every condition, seed by seed, so that an interrupted study has whole seeds.

    Args:
        recipes: One for each value of the setting, of one dataset and equally many seeds.
        setting: What the value is called in the context of every number.
        data: The images, before what is drawn for each seed.
        request: Where runs are kept, how many at a time, and who is told.
    """
    seeds = next(iter(recipes.values())).seeds
    planned = [
        (value, RunPlan(recipe, method, seed))
        for seed in range(seeds)
        for value, recipe in recipes.items()
        for method in recipe.methods
    ]
    found = request.grid([plan for _, plan in planned], data)
    return [under(one, {setting: value}) for (value, _), one in zip(planned, found, strict=True)]
