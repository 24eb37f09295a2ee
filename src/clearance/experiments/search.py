"""Choose settings on a split of the training set: the same search for every method."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from clearance.experiments.build import build_data
from clearance.experiments.grid import Listener, run_grid
from clearance.experiments.recipe import Method, Recipe
from clearance.experiments.run import RunFindings, RunPlan
from clearance.records import Record

HELD_OUT = 0.25
CRITERIA = ("one_image_error", "own_error")
WIDENINGS = 2


@dataclass(frozen=True)
class Trial:
    """One candidate of one method, measured on the held-out part of the training set; means over seeds.

    Args:
        method: The method.
        lr: Its step size.
        per_class: Its images of every class for a weak head; only FOCA's candidates differ in it.
        one_image_error: Test error of heads retrained from one image of each class.
        own_error: Error of the model's own head.
        statuses: How the runs ended.
    """

    method: str
    lr: float
    per_class: int
    one_image_error: float
    own_error: float
    statuses: tuple[str, ...]


def search(
    recipe: Recipe,
    directory: Path,
    jobs: int,
    listener: Listener,
    *,
    per_class: tuple[int, ...] = (1, 10),
    factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0),
) -> list[Trial]:
    """Try each method at five learning rates a factor 2 apart, FOCA also at each `per_class`.

    A quarter of the training set is held out; the test set is never read. Where the best candidate by
    one-image error stands at an edge of the learning rates tried, the next one beyond that edge is tried
    too, at most twice.

    Args:
        recipe: Methods with the learning rates in the middle of the search, epochs, seeds.
        directory: Where runs are kept; called again, finished ones are read back.
        jobs: Runs at a time.
        listener: Told of events, as in :func:`clearance.experiments.grid.run_grid`.
        per_class: Candidates for FOCA's weak heads.
        factors: Of the recipe's learning rate.
    """
    trials: list[Trial] = []
    wanted = {
        name: [
            dataclasses.replace(method, lr=_rounded(method.lr * factor), per_class=count)
            for factor in factors
            for count in (per_class if method.regime == "foca" else (method.per_class,))
        ]
        for name, method in recipe.methods.items()
    }
    for _ in range(1 + WIDENINGS):
        trials += _run(recipe, wanted, directory, jobs, listener)
        wanted = {name: _beyond_edge(recipe.methods[name], trials, name) for name in recipe.methods}
        if not any(wanted.values()):
            break
    return trials


def best(trials: list[Trial], method: str, criterion: str = "one_image_error") -> Trial:
    """The trial of a method that is best by a criterion; ties go to the smaller other error."""
    other = next(name for name in CRITERIA if name != criterion)
    own = [trial for trial in trials if trial.method == method]
    return min(own, key=lambda trial: (getattr(trial, criterion), getattr(trial, other)))


def _run(
    recipe: Recipe, wanted: Mapping[str, list[Method]], directory: Path, jobs: int, listener: Listener
) -> list[Trial]:
    candidates = {
        f"{name} lr={method.lr:g} per_class={method.per_class}": (name, method)
        for name, methods in wanted.items()
        for method in methods
    }
    held_out = dataclasses.replace(
        recipe,
        held_out=HELD_OUT,
        audits=("accuracy", "co_adaptation"),
        audit_settings={"co_adaptation": {"per_class": [1], "repetitions": [50], "all_images": False}},
        methods={label: method for label, (_, method) in candidates.items()},
    )
    plans = [RunPlan(held_out, label, seed) for label in candidates for seed in range(recipe.seeds)]
    found = run_grid(plans, build_data(held_out), directory, jobs, listener)
    trials = []
    for label, (name, method) in candidates.items():
        own = [f for plan, f in zip(plans, found, strict=True) if plan.method == label]
        trials.append(
            Trial(
                name,
                method.lr,
                method.per_class,
                fmean(_value(f, "co_adaptation", "head", "retrained") for f in own),
                fmean(_value(f, "accuracy", "split", "test") for f in own),
                tuple(f.note.status if f.note else "" for f in own),
            )
        )
    return trials


def _value(findings: RunFindings, audit: str, key: str, wanted: str) -> float:
    """One error of a run; 1 where the run broke down before it could be measured."""

    def fits(record: Record) -> bool:
        found = record.measurement
        return found.audit == audit and found.name == "error" and found.context.get(key) == wanted

    return next((r.measurement.value for r in findings.records if fits(r)), 1.0)


def at_edge(trials: list[Trial], chosen: Trial) -> bool:
    """Whether a trial has the smallest or largest learning rate that its method was tried with."""
    tried = [trial.lr for trial in trials if trial.method == chosen.method]
    return chosen.lr in (min(tried), max(tried))


def _beyond_edge(method: Method, trials: list[Trial], name: str) -> list[Method]:
    """The candidate one factor beyond the edge at which the best one stands, if it stands at one."""
    chosen = best(trials, name)
    tried = sorted({trial.lr for trial in trials if trial.method == name})
    if chosen.lr == tried[-1]:
        return [dataclasses.replace(method, lr=_rounded(chosen.lr * 2), per_class=chosen.per_class)]
    if chosen.lr == tried[0]:
        return [dataclasses.replace(method, lr=_rounded(chosen.lr / 2), per_class=chosen.per_class)]
    return []


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
