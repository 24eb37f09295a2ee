"""The search for learning rates: for every method alike, under clean labels, noisy labels, and few images.

A quarter of the training images is held out, and where training labels are noisy so are theirs; the test set is not
read. What was chosen is committed in ``learning_rates.toml``, from which the recipes of the studies take it.
"""

import csv
import dataclasses
from collections.abc import Mapping
from pathlib import Path

from clearance.experiments.grid import Listener
from clearance.experiments.recipe import Recipe
from clearance.experiments.reproductions.elsayed_2018.protocol import (
    PROTOCOLS,
    Condition,
    Protocol,
    base_recipe,
    noise_recipe,
    small_data_recipes,
)
from clearance.experiments.search import Trial, at_edge, best, search

CRITERION = "own_error"
WIDENINGS = 5  # noisy labels ask for far smaller steps than clean ones, in which a search begins
TABLE = "search.md"


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
        "noisy": _shorter(dataclasses.replace(noisy, validation=0.0), varied),
        "few": small_data_recipes(dataset, root, count)[middle],
        "clean": _shorter(base_recipe(dataset, root, count), varied),
    }


def _shorter(recipe: Recipe, varied: Protocol) -> Recipe:
    return dataclasses.replace(recipe, epochs=varied.trial_epochs or recipe.epochs)


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
        dataset: digits, mnist or cifar10.
        root: The folder that holds its files.

    Raises:
        NoDataError: If they are not there.
    """
    text = [f"# Learning rates on {dataset}\n\nError of the own head on a quarter of the training images.\n"]
    for condition, recipe in searched_recipes(dataset, root, seeds).items():
        trials = search(recipe, out / "runs", jobs, listener, criterion=CRITERION, widenings=WIDENINGS)
        write_trials(out / f"search-{condition}.csv", trials)
        text.append(chosen_table(condition, recipe, trials))
    path = out / TABLE
    path.write_text("\n".join(text), "utf-8")
    return path


def write_trials(path: Path, trials: list[Trial]) -> None:
    """Every trial as a line of a CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["method", "lr", "epochs", "own_error", "statuses"])
        lines.writerows([t.method, t.lr, t.epochs, t.own_error, "; ".join(t.statuses)] for t in trials)


def chosen_table(condition: str, recipe: Recipe, trials: list[Trial]) -> str:
    """The best trial of every method, and whether it stands at an edge of what was tried, as Markdown."""
    lines = [f"## {condition}\n", "| method | lr | own error |", "|---|---|---|"]
    for method in recipe.methods:
        found = best(trials, method, CRITERION)
        edge = " (an edge of what was tried)" if at_edge(trials, found) else ""
        lines.append(f"| {method} | {found.lr:g}{edge} | {100 * found.own_error:.2f} % |")
    return "\n".join(lines) + "\n"
