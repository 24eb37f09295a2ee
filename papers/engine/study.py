"""The request to a study, and what most studies do with it: run a grid, under several conditions, add records."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearance import Card, Measurement, load_dataset
from clearance.research import (
    Engine,
    Listener,
    Outcome,
    Recipe,
    Record,
    Report,
    RunData,
    RunFindings,
    RunPlan,
    build_data,
    report_of,
    run_grid,
    silent,
    to_tree,
    with_context,
)
from papers.engine.kept import RUNS, Kept, run_kept, versions_of
from papers.engine.tasks import Tree, each

DEFAULT_DATASET = "digits"  # embedded, so that a study needs no files
NO_DATA = "no data"


class NoDataError(FileNotFoundError):
    """A study's files are missing; raised before any work. `ledger` is the page that says so, if there is one."""

    def __init__(self, message: str, ledger: Path | None = None) -> None:
        super().__init__(message)
        self.ledger = ledger


@dataclass(frozen=True)
class StudyRequest:
    """The request to a study of a paper, and what most studies do with it.

    A study reads the fields that it needs: one with its own dataset ignores `dataset` and `root`, and one without
    random numbers ignores `seeds`. `papers.engine.catalogue.paper_study` raises for settings that a study cannot use.

    Args:
        out: The folder for ledger, report, pictures and runs; the same request resumes there.
        seeds: Number of seeds; None means the study's own. A verdict needs five.
        engine: Processes at a time, each with one thread, or an Executor.
        listener: Called with events, as in :func:`clearance.research.run_grid`.
        dataset: The dataset.
        root: The folder with the dataset's files; datasets are never downloaded.

    >>> StudyRequest(Path("out")).seeds_or(5), StudyRequest(Path("out"), seeds=3).seeds_or(5)
    (5, 3)
    """

    out: Path
    seeds: int | None = None
    engine: Engine = 1
    listener: Listener = silent
    dataset: str = DEFAULT_DATASET
    root: str | None = None

    def seeds_or(self, own: int) -> int:
        """The requested number of seeds, or the study's own."""
        return own if self.seeds is None else self.seeds

    def command(self, start: str) -> str:
        """The command line that makes the ledger again.

        Args:
            start: The command without `--seeds`.

        >>> StudyRequest(Path("out"), seeds=3).command("python -m papers sato_2019 --only weakness")
        'python -m papers sato_2019 --only weakness --seeds 3'
        """
        return start if self.seeds is None else f"{start} --seeds {self.seeds}"

    def grid(self, plans: Sequence[RunPlan], data: RunData | Sequence[RunData]) -> list[RunFindings]:
        """Run these plans, or read back those that are finished."""
        return run_grid(plans, data, self.runs, self.engine, self.listener)

    @property
    def runs(self) -> Path:
        """The folder for runs."""
        return self.out / "runs"

    def paged(
        self,
        recipe: Recipe,
        findings: Iterable[RunFindings],
        command: str,
        conditions: Mapping[Any, Recipe] | None = None,
        **facts: Any,
    ) -> Report:
        """Save the report of a study as a page and as records.

        Args:
            recipe: The recipe that was run.
            findings: Its findings.
            command: The command, for the report.
            conditions: The recipes of `run_conditions`: the report says how they differ, and which versions their kept
                runs were made with.
            **facts: What else the report keeps beside the recipe's settings.
        """
        report = report_of(recipe, findings, command)
        if conditions is not None:
            plans = [plan for _, plan in _planned(conditions)]
            facts["conditions"] = changed_settings(conditions)
            versions = versions_of(Kept(self.out / RUNS), plans, report.versions)
            report = dataclasses.replace(report, versions=versions)
        report = dataclasses.replace(report, recipe={**report.recipe, **facts})
        Card(report).save_folder(self.out)
        return report


def data_if_there(recipe: Recipe) -> RunData | None:
    """The images of a recipe; None without root or files."""
    if recipe.root is None and recipe.dataset != "digits" and ":" not in recipe.dataset:
        return None
    try:
        return build_data(recipe)
    except FileNotFoundError:
        return None


def needed_data(recipe: Recipe) -> RunData:
    """The images of a recipe.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    if (data := data_if_there(recipe)) is None:
        raise NoDataError(f"the study needs the files of {recipe.dataset}; give their folder with --root.")
    return data


def missing_files(recipe: Recipe) -> str:
    """Where the files of a recipe's dataset were looked for."""
    try:
        load_dataset(recipe.dataset, "train", recipe.root, recipe.size)
    except (FileNotFoundError, ValueError) as error:
        return str(error)
    return "the files of its test images are not there"


# The same comparison under several conditions, distinguished by a setting in the context of every number.


def run_conditions(
    recipes: Mapping[Any, Recipe], setting: str, data: RunData, request: StudyRequest
) -> list[RunFindings]:
    """Every method and seed under every condition, seed by seed, so that an interrupted study has whole seeds.

    Args:
        recipes: One for each value of the setting, of one dataset and the same number of seeds.
        setting: What the value is called in the context of every number.
        data: The images, before what is drawn for each seed.
        request: The folder for runs, how many at a time, and the listener.
    """
    planned = _planned(recipes)
    plans, kept = [plan for _, plan in planned], Kept(request.out / RUNS)
    found = run_kept(plans, [data] * len(plans), kept, request.runs, request.engine, request.listener)
    return [with_context(one, {setting: value}) for (value, _), one in zip(planned, found, strict=True)]


def _planned(recipes: Mapping[Any, Recipe]) -> list[tuple[Any, RunPlan]]:
    seeds = next(iter(recipes.values())).seeds
    return [
        (value, RunPlan(recipe, method, seed))
        for seed in range(seeds)
        for value, recipe in recipes.items()
        for method in recipe.methods
    ]


def changed_settings(recipes: Mapping[Any, Recipe]) -> dict[str, Any]:
    """What every condition has otherwise than the first, as plain values by its name: a report names one recipe.

    >>> from clearance import Method
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


# Records that a study adds to those of finished runs: attacks on what was trained, each network in a process.


def with_added_records(
    found: Sequence[RunFindings],
    plans: Sequence[RunPlan],
    work: Callable[[Tree], Tree],
    task: Callable[[RunPlan], Tree | None],
    name: str,
    request: StudyRequest,
) -> list[RunFindings]:
    """The findings of runs, those of finished ones with the records that `work` makes of them.

    Args:
        found: What runs left behind.
        plans: Theirs.
        work: As :func:`papers.engine.tasks.each` takes it; it returns what `records_of` does.
        task: Settings of the work on a run, plain values; None leaves the run as it is.
        name: Of the folder, below that of the study, where records are kept.
        request: The request.
    """
    finished = [plan for plan, one in zip(plans, found, strict=True) if is_finished(one)]
    tasks = {plan.folder: given for plan in finished if (given := task(plan)) is not None}
    made = each(work, tasks, request.out / name, request.engine, request.listener)
    return [_with(one, made.get(plan.folder)) for plan, one in zip(plans, found, strict=True)]


def is_finished(found: RunFindings) -> bool:
    """Whether a run ended as it should: neither collapsed nor stopped."""
    return found.note is not None and found.note.outcome is Outcome.FINISHED


def whose(plan: RunPlan, data: str, runs: Path) -> Tree:
    """What `records_of` reads of a task, ``run``, the folder of the run, and ``network``, what was trained in it.

    Args:
        plan: The run, finished.
        data: The name of its images.
        runs: Where runs are kept.
    """
    facts = {"data": data, "method": plan.method, "seed": plan.seed, "run": plan.folder}
    return {**facts, "network": network_of(runs / plan.folder)}


def network_of(run: Path) -> str:
    """Sixteen hexadecimal digits that identify a finished run's weights, to the bit."""
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()[:16]


def records_of(task: Tree, numbers: Sequence[Measurement]) -> Tree:
    """Measurements as plain values, with what they are of: ``data``, ``method`` and ``seed`` of the task."""
    return {"records": [Record(task["data"], task["method"], task["seed"], one).to_json() for one in numbers]}


def _with(found: RunFindings, made: Tree | None) -> RunFindings:
    if made is None:
        return found
    own = tuple(Record.from_json(row) for row in made["records"])
    return dataclasses.replace(found, records=(*found.records, *own))
