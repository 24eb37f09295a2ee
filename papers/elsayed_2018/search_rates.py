"""The search for learning rates: for every method alike, with one rival and with all, under noise, from few images.

A quarter of the training images is held out, and where training labels are noisy so are theirs; the test set is not
read. What was chosen is committed in ``learning_rates.toml``, from which the recipes of the studies take it. Gamma and
the learning rate are searched together under noise, where all rivals count.
"""

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from clearance.research import Recipe
from papers.elsayed_2018.protocol import (
    PROTOCOLS,
    Protocol,
    base_recipe,
    noise_recipe,
    noisy,
    small_data_recipe,
)
from papers.engine.catalogue import with_settings
from papers.engine.rate_search import search_rates
from papers.engine.study import StudyRequest

CLEAN, NOISELESS, NOISY, FEW, GAMMA = "clean", "noiseless", "noisy-", "few-", "gamma-"
GAMMAS = (100, 1000, 100_000)  # besides the 10,000 of all other conditions


def searched_recipes(dataset: str, root: str | None = None, seeds: int | None = None) -> Mapping[str, Recipe]:
    """The recipe that is searched for each condition, with the learning rates chosen before in the middle.

    >>> list(searched_recipes("mnist"))
    ['clean', 'noiseless', 'noisy-40', 'noisy-80', 'few-68', 'few-550', 'few-5500', 'gamma-40', 'gamma-80']
    """
    varied = PROTOCOLS[dataset]
    count, draws = (varied.search_seeds, varied.search_draws) if seeds is None else (seeds, seeds)
    rates = {NOISELESS: 0.0, **{noisy(rate): rate for rate in varied.searched_noise}}
    noise = {
        name: dataclasses.replace(noise_recipe(dataset, rate, root, count), validation=0.0)
        for name, rate in rates.items()
        if rate in varied.noise
    }
    few = {f"{FEW}{n}": small_data_recipe(dataset, n, root, draws) for n in varied.searched_samples}
    return {
        CLEAN: base_recipe(dataset, root, count),
        **noise,
        **few,
        **{name.replace(NOISY, GAMMA): _gammas(recipe) for name, recipe in noise.items() if NOISY in name},
    }


def _gammas(recipe: Recipe) -> Recipe:
    """The recipe with every margin at other gammas, and with nothing else."""
    margins = {name: method for name, method in recipe.methods.items() if "gamma" in method.loss_settings}
    tried = {
        f"{name}, gamma {gamma}": with_settings(method, {"gamma": gamma})
        for name, method in margins.items()
        for gamma in GAMMAS
    }
    return dataclasses.replace(recipe, methods=tried)


def run(request: StudyRequest, starts: tuple[str, ...] = (CLEAN, NOISELESS, NOISY, FEW)) -> Path:
    """Search, and write what was tried and what is best.

    Args:
        request: What was asked for. Seeds are runs of each candidate, those of the protocol by default.
        starts: What names of the conditions to search begin with; all but gamma's by default.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    varied = PROTOCOLS[request.dataset]
    recipes = searched_recipes(request.dataset, request.root, request.seeds)
    chosen = {name: recipe for name, recipe in recipes.items() if name.startswith(starts)}
    return search_rates(
        chosen, varied.widenings, request,
        factors=varied.search_factors,
        finalist_seeds={name: more for name in chosen if (more := _finalist_seeds(varied, name)) is not None},
    )  # fmt: skip


run_clean = partial(run, starts=(CLEAN,))
run_noise = partial(run, starts=(NOISELESS, NOISY))
run_few = partial(run, starts=(FEW,))
run_gamma = partial(run, starts=(GAMMA,))


def _finalist_seeds(varied: Protocol, condition: str) -> int | None:
    if condition.startswith((CLEAN, GAMMA)):
        return None
    return varied.finalist_draws if condition.startswith(FEW) else varied.finalist_seeds
