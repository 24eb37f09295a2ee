"""The search for learning rates, alike for every method: the error of its own head on a quarter of the training images.

Five learning rates a factor 2 apart, and further ones while the best stands at an edge; the test set is not read. What
was chosen is written into ``learning_rates.toml`` by hand, from which the studies take it.
"""

from collections.abc import Mapping
from pathlib import Path

from clearance.experiments.grid import Listener
from clearance.experiments.recipe import Recipe
from clearance.experiments.reproduce import NoDataError, data_if_there
from clearance.experiments.reproductions.elsayed_2018.search_rates import (
    CRITERION,
    TABLE,
    chosen_table,
    write_trials,
)
from clearance.experiments.reproductions.wan_2018.combinations import PER_CLASS, combinations_recipe
from clearance.experiments.reproductions.wan_2018.protocol import (
    PLANE_STEPS,
    PROTOCOLS,
    Condition,
    base_recipe,
    paced,
    plane_recipe,
)
from clearance.experiments.search import Trial, best, search

WIDENINGS = 3


def searched_recipes(
    dataset: str, root: str | None = None, seeds: int | None = None
) -> Mapping[Condition, Recipe]:
    """The recipe that is searched for each condition, with the learning rates chosen before in the middle.

    >>> list(searched_recipes("digits")), list(searched_recipes("cifar10"))
    (['all', 'plane', 'combinations'], ['all'])
    """
    varied = PROTOCOLS[dataset]
    count = varied.search_seeds if seeds is None else seeds
    recipes: dict[Condition, Recipe] = {"all": base_recipe(dataset, root, count)}
    if dataset in PLANE_STEPS:
        recipes["plane"] = plane_recipe(dataset, root, count)
    if dataset == "digits":
        recipes["combinations"] = combinations_recipe(count)
    if varied.search_steps is not None:
        recipes = {name: paced(recipe, varied.search_steps) for name, recipe in recipes.items()}
    return recipes


def run(
    out: Path,
    *,
    seeds: int | None,
    jobs: int,
    listener: Listener,
    dataset: str = "digits",
    root: str | None = None,
) -> Path:
    """Search, and write what was tried and what is best; interrupted, it goes on where it stood.

    Args:
        out: Where ``search.md``, a CSV file of all trials for each condition, and the runs are kept.
        seeds: Runs of each candidate; those of the protocol by default.
        jobs: Processes at a time.
        listener: Told of events, as in :func:`clearance.experiments.grid.run_grid`.
        dataset: digits, mnist, cifar10 or cifar100.
        root: The folder that holds its files.

    Raises:
        NoDataError: If they are not there.
    """
    text = [f"# Learning rates on {dataset}\n\nError of the own head on a quarter of the training images.\n"]
    for condition, recipe in searched_recipes(dataset, root, seeds).items():
        if data_if_there(recipe) is None:
            raise NoDataError(f"the search needs the files of {dataset}; give their folder with --root.")
        trials = search(
            recipe,
            out / "runs",
            jobs,
            listener,
            per_class=(PER_CLASS,),
            criterion=CRITERION,
            widenings=WIDENINGS,
        )
        write_trials(out / f"search-{condition}.csv", trials)
        text += [chosen_table(condition, recipe, trials), as_toml(dataset, condition, recipe, trials)]
    path = out / TABLE
    path.write_text("\n".join(text), "utf-8")
    return path


def as_toml(dataset: str, condition: str, recipe: Recipe, trials: list[Trial]) -> str:
    """The chosen learning rates as ``learning_rates.toml`` takes them."""
    lines = [f"[{dataset}.{condition}]"]
    lines += [f'"{method}" = {best(trials, method, CRITERION).lr:g}' for method in recipe.methods]
    return "```toml\n" + "\n".join(lines) + "\n```\n"
