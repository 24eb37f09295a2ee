"""Choose settings on a split of the training set: the same search for every method."""

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, variance

from clearance._checks import check_choice
from clearance.experiments.build import RunData, build_data, check_draws
from clearance.experiments.engines import on_processes
from clearance.experiments.grid import Engine, Listener, run_grid
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import FAILED_RUN, RunFindings, RunPlan
from clearance.experiments.saved import check_networks
from clearance.records import Record
from clearance.runs.remote import RemoteRuns
from clearance.vocabulary import Measurement, Outcome

CRITERIA = ("one_image_error", "own_error")


@dataclass(frozen=True)
class Trial:
    """One candidate of one method, measured on the held-out part of the training set; means over seeds.

    Args:
        method: The method.
        lr: Its learning rate.
        per_class: Images per class of its weak heads; only FOCA's candidates differ in it.
        epochs: Passes over the training images.
        one_image_error: Test error of heads retrained from one image of each class; None if not measured.
        one_image_standard_error: Standard error of that mean, over draws of images and seeds.
        own_error: Error of the model's own head.
        statuses: How the runs ended.
    """

    method: str
    lr: float
    per_class: int
    epochs: int
    one_image_error: float | None
    one_image_standard_error: float | None
    own_error: float
    statuses: tuple[str, ...]

    @property
    def failed(self) -> str:
        """How the first run that failed outside training ended, for a reason unrelated to its settings; else empty."""
        return next((status for status in self.statuses if status.startswith(FAILED_RUN)), "")


def best_trial(trials: list[Trial], method: str, criterion: str = "one_image_error") -> Trial:
    """The trial of a method that is best by a criterion, among those with most epochs and seeds.

    By one-image error: of all trials within one standard error of the lowest (Breiman et al. 1984), the one
    with the smallest own error. By own error: the smallest; ties go to the smaller one-image error.

    Raises:
        ValueError: If all of them failed.
    """
    most = max((_effort(trial) for trial in trials if trial.method == method), default=(0, 0))
    own = measured_trials([trial for trial in trials if _effort(trial) == most], method)
    if criterion == "own_error":
        return min(own, key=lambda trial: (trial.own_error, one_image_order(trial)))
    lowest = min(own, key=one_image_order)
    limit = one_image_order(lowest) + (lowest.one_image_standard_error or 0.0)
    alike = [trial for trial in own if one_image_order(trial) <= limit]
    return min(alike, key=lambda trial: (trial.own_error, one_image_order(trial)))


def measured_trials(trials: list[Trial], method: str) -> list[Trial]:
    """A method's trials that were measured."""
    own = [trial for trial in trials if trial.method == method]
    if own and all(trial.failed for trial in own):
        raise ValueError(
            f"no trial of method {method!r} could be measured, so no settings can be chosen: {own[0].failed}"
        )
    return [trial for trial in own if not trial.failed]


def _effort(trial: Trial) -> tuple[int, int]:
    return trial.epochs, len(trial.statuses)


def one_image_order(trial: Trial) -> float:
    """The one-image error for sorting; 0 if it was not measured."""
    return 0.0 if trial.one_image_error is None else trial.one_image_error


def at_edge(trials: list[Trial], chosen: Trial) -> bool:
    """Whether a trial has the smallest or largest learning rate tried for its method."""
    tried = [trial.lr for trial in trials if trial.method == chosen.method]
    return chosen.lr in (min(tried), max(tried))


HELD_OUT = 0.25
WIDENINGS = 2
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
ONE_IMAGE = {"per_class": [1], "repetitions": [50], "all_images": False}


def search_settings(
    recipe: Recipe,
    directory: Path | RemoteRuns,
    engine: Engine,
    listener: Listener,
    *,
    per_class: tuple[int, ...] = (1, 10),
    factors: tuple[float, ...] = FACTORS,
    trial_epochs: int | None = None,
    finalists: int = 3,
    criterion: str = CRITERIA[0],
    widenings: int = WIDENINGS,
    finalist_seeds: int | None = None,
) -> list[Trial]:
    """Try each method at five learning rates a factor 2 apart, FOCA also at each `per_class`.

    A quarter of the training set is held out, or the part that the recipe does not use if that is more, so that
    trials train on the same number of images as the recipe; the test set is never read. If the recipe's training
    labels are noisy, so are the held-out labels. If the best candidate by the criterion is at an edge of the learning
    rates tried, the next one outside is tried too, at most `widenings` times. If these trials are shorter than the
    recipe, or have fewer seeds than finalists, the best few of each method are repeated in full, the choice is made
    among those, and they are widened at an edge in the same way.

    Args:
        recipe: Epochs, seeds, and methods with the learning rates in the middle of the search.
        directory: The folder for runs, or their address; called again, finished runs are read back.
        engine: A number of local processes, or an Executor; None means this process.
        listener: Called with events, as in :func:`clearance.experiments.grid.run_grid`.
        per_class: Candidates for FOCA's weak heads.
        factors: Factors of the recipe's learning rate.
        trial_epochs: Epochs of the first trials, fewer than the recipe's; None means the recipe's.
        finalists: Trials of each method that are repeated with all epochs and seeds.
        criterion: ``"one_image_error"``, or ``"own_error"``, for which no other heads are trained.
        widenings: How often the learning rates of a method are widened at most.
        finalist_seeds: Seeds of the finalists, to exclude a rate that is best by chance; None means the recipe's.

    Raises:
        ValueError: If the criterion is unknown, `trial_epochs` is given for a recipe that counts steps, or every
            trial of a method failed. Settings with a failed run are not chosen, and their method has no further trials:
            called again, the search goes on as if nothing had failed. Diverged runs have error 1.
    """
    check_choice("criterion", criterion, CRITERIA)
    if trial_epochs is not None and recipe.steps is not None:
        raise ValueError(
            f"`trial_epochs` must be None if the recipe counts steps; got {trial_epochs} and {recipe.steps} steps."
        )
    if trial_epochs is not None and trial_epochs > recipe.epochs:
        raise ValueError(
            f"`trial_epochs` must be at most the recipe's epochs, {recipe.epochs}; got {trial_epochs}."
        )
    trials: list[Trial] = []
    short = dataclasses.replace(recipe, epochs=trial_epochs or recipe.epochs)
    wanted = {
        name: [
            dataclasses.replace(method, lr=_rounded(method.lr * factor), per_class=count)
            for factor in factors
            for count in (per_class if method.way == "foca" else (method.per_class,))
        ]
        for name, method in recipe.methods.items()
    }

    def widened(run: Recipe, wanted: Mapping[str, list[Method]], engine: Engine) -> None:
        """Try these, then one more rate of every method whose best is at an edge."""
        for turn in range(1 + widenings):
            trials.extend(_run(run, wanted, data, directory, engine, listener, criterion))
            if turn == widenings:
                break
            wanted = {
                name: _beyond_edge(method, trials, name, criterion) for name, method in recipe.methods.items()
            }
            if not any(wanted.values()):
                break

    data = build_data(_held_out(recipe))
    seeds = max(recipe.seeds, finalist_seeds or 0)
    check_draws(_held_out(recipe), data, range(seeds))
    check_networks(recipe, data)
    with contextlib.nullcontext() if engine is None else on_processes(engine) as executor:
        widened(short, wanted, executor)
        if short.epochs < recipe.epochs or recipe.seeds < seeds:
            again = {
                name: _best_few(method, trials, name, finalists, criterion)
                for name, method in recipe.methods.items()
            }
            widened(dataclasses.replace(recipe, seeds=seeds), again, executor)
    return trials


def _best_few(method: Method, trials: list[Trial], name: str, count: int, criterion: str) -> list[Method]:
    def order(trial: Trial) -> tuple[float, float]:
        errors = (one_image_order(trial), trial.own_error)
        return errors if criterion == CRITERIA[0] else errors[::-1]

    if _has_failed(trials, name):
        return []
    own = measured_trials(trials, name)
    return [
        dataclasses.replace(method, lr=t.lr, per_class=t.per_class) for t in sorted(own, key=order)[:count]
    ]


def _held_out(recipe: Recipe) -> Recipe:
    """The recipe on a part of its training images, measured on the others."""
    share = max(HELD_OUT, 1 - recipe.train_fraction)
    fraction = min(1.0, recipe.train_fraction / (1 - share))
    return dataclasses.replace(recipe, held_out=share, train_fraction=fraction)


def _run(
    recipe: Recipe,
    wanted: Mapping[str, list[Method]],
    data: RunData,
    directory: Path | RemoteRuns,
    engine: Engine,
    listener: Listener,
    criterion: str,
) -> list[Trial]:
    candidates = {
        f"{name} lr={method.lr:g} per_class={method.per_class}": (name, method)
        for name, methods in wanted.items()
        for method in methods
    }
    retrained = criterion == CRITERIA[0]
    held_out = dataclasses.replace(
        _held_out(recipe),
        audits=("accuracy", "co_adaptation") if retrained else ("accuracy",),
        audit_settings={"co_adaptation": ONE_IMAGE} if retrained else {},
        methods={label: method for label, (_, method) in candidates.items()},
    )
    plans = [RunPlan(held_out, label, seed) for label in candidates for seed in range(recipe.seeds)]
    found = run_grid(plans, data, directory, engine, listener)
    trials = []
    for label, (name, method) in candidates.items():
        own = [f for plan, f in zip(plans, found, strict=True) if plan.method == label]
        few = [_error(f, "co_adaptation", "head", "retrained") for f in own] if retrained else []
        trials.append(
            Trial(
                name,
                method.lr,
                method.per_class,
                recipe.epochs,
                fmean(found.value for found in few) if few else None,
                _standard_error(few) if few else None,
                fmean(_error(f, "accuracy", "split", "test").value for f in own),
                tuple(map(_status, own)),
            )
        )
    return trials


def _status(found: RunFindings) -> str:
    """How a run ended; an audit that failed has no error to choose by."""
    note = found.note
    if found.left_out and note is not None and note.outcome is not Outcome.DIVERGED:
        return f"{FAILED_RUN} audit {found.left_out[0].audit}: {found.left_out[0].reason}"
    return note.status if note else ""


def _error(findings: RunFindings, audit: str, key: str, wanted: str) -> Measurement:
    """One error of a run; 1 if training diverged."""

    def fits(record: Record) -> bool:
        found = record.measurement
        return found.audit == audit and found.name == "error" and found.context.get(key) == wanted

    broken = Measurement(audit, "error", 1.0, "fraction", 1)
    return next((r.measurement for r in findings.records if fits(r)), broken)


def _standard_error(found: list[Measurement]) -> float:
    """The standard error of a mean over seeds, each a mean over draws: the larger of the two sources."""
    draws = sum((one.spread or 0.0) ** 2 / one.n for one in found) / len(found) ** 2
    seeds = variance(one.value for one in found) / len(found) if len(found) > 1 else 0.0
    return math.sqrt(max(draws, seeds))


def _has_failed(trials: list[Trial], name: str) -> bool:
    return any(trial.failed for trial in trials if trial.method == name)


def _beyond_edge(method: Method, trials: list[Trial], name: str, criterion: str) -> list[Method]:
    """The candidate one factor outside, if the best one is at an edge."""
    if _has_failed(trials, name):
        return []
    chosen = best_trial(trials, name, criterion)
    tried = sorted({trial.lr for trial in trials if trial.method == name})
    if chosen.lr == tried[-1]:
        return [dataclasses.replace(method, lr=_rounded(chosen.lr * 2), per_class=chosen.per_class)]
    if chosen.lr == tried[0]:
        return [dataclasses.replace(method, lr=_rounded(chosen.lr / 2), per_class=chosen.per_class)]
    return []


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
