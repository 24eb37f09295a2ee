"""A paper's search for learning rates: the same for every method, by the error of its own head on held-out images.

What is chosen is written into ``learning_rates.toml`` by hand, from which the paper's studies take it.
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearance.research import FACTORS, Recipe, Trial, at_edge, best_trial, search_settings
from papers.engine.study import StudyRequest, needed_data

CRITERION, FINALISTS = "own_error", 2
NONE_MORE: Mapping[Any, int] = {}
TABLE = "search.md"


def search_rates(
    recipes: Mapping[Any, Recipe],
    widenings: int,
    request: StudyRequest,
    per_class: int = 1,
    factors: tuple[float, ...] = FACTORS,
    finalist_seeds: Mapping[Any, int] = NONE_MORE,
) -> Path:
    """Search, and write ``search.md`` and a CSV file of all trials for each condition; the former's path.

    Args:
        recipes: What is searched for each condition, with the learning rates chosen before in the middle.
        widenings: How often the learning rates of a method are widened, at most.
        request: The request.
        per_class: Images for FOCA's weak heads; one candidate, so that no method gets more trials than others.
        factors: Of the learning rates chosen before.
        finalist_seeds: By condition, runs of each of the best two of a method, where those of its recipe are too few.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    out, dataset = request.out, request.dataset
    text = [f"# Learning rates on {dataset}\n\nError of the own head on training images that are held out.\n"]
    for condition, recipe in recipes.items():
        needed_data(recipe)
        trials = search_settings(
            recipe, request.runs, request.engine, request.listener,
            per_class=(per_class,), criterion=CRITERION, widenings=widenings, finalists=FINALISTS, factors=factors,
            finalist_seeds=finalist_seeds.get(condition),
        )  # fmt: skip
        _write_trials(out / f"search-{condition}.csv", trials)
        text += [_chosen_table(condition, recipe, trials), _as_toml(dataset, condition, recipe, trials)]
    path = out / TABLE
    path.write_text("\n".join(text), "utf-8")
    return path


def _write_trials(path: Path, trials: list[Trial]) -> None:
    """Every trial as a line of a CSV file; after how many updates it ended is in its runs' statuses."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["method", "lr", "own_error", "statuses"])
        lines.writerows([t.method, t.lr, t.own_error, "; ".join(t.statuses)] for t in trials)


def _chosen_table(condition: str, recipe: Recipe, trials: list[Trial]) -> str:
    """The best trial of every method, and whether it is at an edge of the rates tried, as Markdown."""
    lines = [f"## {condition}\n", "| method | lr | own error |", "|---|---|---|"]
    for method in recipe.methods:
        found = best_trial(trials, method, CRITERION)
        edge = " (an edge of what was tried)" if at_edge(trials, found) else ""
        lines.append(f"| {method} | {found.lr:g}{edge} | {100 * found.own_error:.2f} % |")
    return "\n".join(lines) + "\n"


def _as_toml(dataset: str, condition: str, recipe: Recipe, trials: list[Trial]) -> str:
    """The chosen learning rates as ``learning_rates.toml`` takes them."""
    lines = [f"[{dataset}.{condition}]"]
    lines += [f'"{method}" = {best_trial(trials, method, CRITERION).lr!r}' for method in recipe.methods]
    return "```toml\n" + "\n".join(lines) + "\n```\n"
