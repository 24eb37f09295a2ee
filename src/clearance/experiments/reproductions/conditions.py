"""The same comparison under several conditions, told apart by a setting in the context of every number."""

from collections.abc import Mapping
from typing import Any

from clearance.experiments.build import RunData
from clearance.experiments.recipe import Recipe, to_tree
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


def changed_settings(recipes: Mapping[Any, Recipe]) -> dict[str, Any]:
    """What every condition has otherwise than the first, as plain values by its name: a report names one recipe.

    >>> from clearance.experiments.method import Method
    >>> fast, slow = ({"plain": Method(lr=lr), "other": Method()} for lr in (0.1, 0.01))
    >>> changed_settings({0.0: Recipe(methods=fast), 0.8: Recipe(methods=slow, label_noise=0.8)})
    {'0.0': {}, '0.8': {'label_noise': 0.8, 'methods': {'plain': {'lr': 0.01}}}}
    """
    trees = {str(value): to_tree(recipe) for value, recipe in recipes.items()}
    first = next(iter(trees.values()))
    return {value: _difference(first, tree) for value, tree in trees.items()}


def _difference(start: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Entries of `other` that `start` has otherwise or not at all, branch by branch; None for those that are gone."""
    found: dict[str, Any] = {name: None for name in start if name not in other}
    for name, value in other.items():
        before = start.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            value = _difference(before, value)
            if not value:
                continue
        elif value == before:
            continue
        found[name] = value
    return found
