"""Every method of the catalogue under every question: the plan, the search, and the runs.

A plan is a file in ``recipes/`` (one for both datasets of MNIST's form): a recipe, its methods, and the conditions
that they are trained and measured under.
Everything that is finished is in ``results/DATASET/``, a line each, and is never run again.
"""

import dataclasses
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from clearance import Measurement
from clearance.research import (
    Engine,
    Listener,
    Recipe,
    Record,
    RunData,
    RunFindings,
    RunPlan,
    Trial,
    at_edge,
    best_trial,
    build_data,
    draw_classes,
    from_tree,
    identifier,
    one_thread,
    run_grid,
    search_settings,
    to_tree,
)
from papers.engine.kept import RUNS, Kept, findings_in, key_of, run_kept

HERE = Path(__file__).parent
PLANS = {"digits": "digits", "mnist": "mnist", "fashion-mnist": "mnist"}
ROUNDS = {"seconds": 2, "MiB": 3}  # in one process of three the system gives 100 MiB more than are needed
WIDENINGS = 4  # further learning rates at most, while the least own error is at an edge of those tried
LEFT_OUT = 3  # classes, drawn for each seed
WHOLE, NEW_CLASSES = "all images", "new classes"


@dataclass(frozen=True)
class Condition:
    """One way in which every method is trained, and what is measured then.

    Args:
        recipe: The recipe, with every method.
        criterion: The error, on held-out training images, by which its learning rates are chosen.
    """

    recipe: Recipe
    criterion: str


@dataclass(frozen=True)
class Matrix:
    """A plan.

    Args:
        conditions: By name.
        longer: Methods that are trained longer, and how many times as long.
        factors: Of the plan's learning rates, that are tried with all images.
    """

    conditions: Mapping[str, Condition]
    longer: Mapping[str, int]
    factors: tuple[float, ...]

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, in the order of the plan."""
        return tuple(self.conditions[WHOLE].recipe.methods)

    @property
    def seeds(self) -> int:
        """Runs of each method under each condition."""
        return self.conditions[WHOLE].recipe.seeds

    def recipe(self, condition: str, method: str, seed: int) -> Recipe:
        """The recipe of one method: its length, and the classes that a seed leaves out."""
        start = self.conditions[condition].recipe
        times = self.longer.get(method, 1)
        steps = None if start.steps is None else start.steps * times
        left_out = draw_classes(10, LEFT_OUT, seed) if condition == NEW_CLASSES else ()
        return dataclasses.replace(
            start,
            methods={method: start.methods[method]},
            epochs=start.epochs * times,
            steps=steps,
            left_out=left_out,
        )


def read_matrix(dataset: str, root: str | None = None) -> Matrix:
    """The plan of a dataset.

    >>> read_matrix("digits").methods[:2]
    ('plain', 'plain-longer')
    """
    text = (HERE / "recipes" / f"{PLANS[dataset]}.yaml").read_text("utf-8")
    tree = {**yaml.safe_load(text), "dataset": dataset}
    longer, factors, conditions = tree.pop("longer"), tuple(tree.pop("factors")), tree.pop("conditions")
    made = {}
    for name, own in conditions.items():
        criterion = own.pop("chosen_by")
        made[name] = Condition(from_tree({**tree, **own, "root": root}, f"condition {name!r}"), criterion)
    return Matrix(made, longer, factors)


class Work:
    """A plan and what is finished of it.

    Args:
        matrix: The plan.
        results: The folder of what is finished, which is committed.
    """

    def __init__(self, matrix: Matrix, results: Path) -> None:
        self.matrix = matrix
        self._searched, self._done = Kept(results / "search.jsonl"), Kept(results / RUNS)
        self._times, self._memory = Kept(results / "times.jsonl"), Kept(results / "memory.jsonl")
        self._found: dict[tuple[str, str, int], dict[int, RunFindings]] = {}

    def trials(self, method: str) -> list[Trial] | None:
        """The trials that a method's learning rates are chosen from; None before they are run."""
        row = self._searched.found.get(self._trials_key(method))
        return (
            None
            if row is None
            else [Trial(**{**one, "statuses": tuple(one["statuses"])}) for one in row["trials"]]
        )

    def plan(self, condition: str, method: str, seed: int) -> RunPlan | None:
        """One run, at the learning rate that was chosen for it; None before the search."""
        trials = self.trials(method)
        if trials is None:
            return None
        lr = best_trial(trials, method, self.matrix.conditions[condition].criterion).lr
        recipe = self.matrix.recipe(condition, method, seed)
        return RunPlan(
            dataclasses.replace(recipe, methods={method: dataclasses.replace(recipe.methods[method], lr=lr)}),
            method,
            seed,
        )

    def found(self, condition: str, method: str) -> dict[int, RunFindings]:
        """The finished runs of a method under a condition, by seed."""
        key = condition, method, len(self._done.found)  # the page asks a dozen times for the same
        if key not in self._found:
            plans = {seed: self.plan(condition, method, seed) for seed in range(self.matrix.seeds)}
            self._found[key] = {
                seed: found
                for seed, plan in plans.items()
                if plan is not None and (found := findings_in(self._done, plan)) is not None
            }
        return self._found[key]

    def search(self, runs: Path, engine: Engine, listener: Listener) -> None:
        """Search what is not searched yet, method by method."""
        for method in self.matrix.methods:
            if self.trials(method) is None:
                recipe = self._search_recipe(method)
                settings = recipe.methods[method]
                search = partial(
                    search_settings,
                    directory=runs,
                    engine=engine,
                    listener=listener,
                    per_class=(settings.per_class,),
                )
                trials = search(recipe, factors=self.matrix.factors)
                # these go beyond an edge for the one-image error; own errors may be least at an edge as well
                for _ in range(WIDENINGS):
                    further = _beyond_edge(trials, method)
                    if further is None:
                        break
                    changed = {method: dataclasses.replace(settings, lr=further)}
                    one_more = dataclasses.replace(recipe, methods=changed)
                    trials += search(one_more, factors=(1.0,), widenings=0)
                self._searched.add(self._trials_key(method), {"trials": [asdict(trial) for trial in trials]})

    def run(self, runs: Path, engine: Engine, listener: Listener, only: Collection[str] = ()) -> None:
        """Run what is not run yet, one condition after the other, or only some, each seed by seed."""
        plans = [
            plan
            for condition in only or self.matrix.conditions
            for seed in range(self.matrix.seeds)
            for method in self.matrix.methods
            if (plan := self.plan(condition, method, seed)) is not None
        ]
        data: dict[tuple[int, ...], RunData] = {}
        for plan in plans:
            if plan.recipe.left_out not in data:
                data[plan.recipe.left_out] = build_data(plan.recipe)
        images = [data[plan.recipe.left_out] for plan in plans]
        run_kept(plans, images, self._done, runs, engine, listener, is_wanted)

    def measure_cost(self) -> None:
        """Train every method in this process, in turn, `ROUNDS` times, and keep the processor time of each.

        Then in new processes, whose memory is kept.
        """
        for (_, method), key in self._cost_keys("seconds").items():
            if key not in self._times.found:
                plan = self._bare(method)
                data = build_data(plan.recipe)
                began = time.process_time()
                with one_thread():
                    run_grid([plan], data, None, None)
                self._times.add(key, {"seconds": time.process_time() - began})
        for (_, method), key in self._cost_keys("MiB").items():
            if key not in self._memory.found:
                plan = self._bare(method)
                (found,) = run_grid([plan], build_data(plan.recipe), None, 1)
                added = next(one.measurement for one in found.records if one.measurement.name == "memory")
                self._memory.add(key, {"MiB": added.value})

    def times(self) -> dict[str, float]:
        """The least processor time of a training run of each method, in seconds."""
        return self._least(self._times, "seconds")

    def memory(self) -> dict[str, float]:
        """The least that a training run of each method adds to a new process at its peak, in MiB."""
        return self._least(self._memory, "MiB")

    def _least(self, kept: Kept, value: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for (_, method), key in self._cost_keys(value).items():
            if key in kept.found:
                found[method] = min(kept.found[key][value], found.get(method, math.inf))
        return found

    def _cost_keys(self, value: str) -> dict[tuple[int, str], str]:
        """By turn and method; they change with any method's settings, as costs are compared within one measurement."""
        settings = identifier([key_of(self._bare(method)) for method in self.matrix.methods])
        return {
            (turn, method): f"{method}, {turn}, {settings}"
            for turn in range(ROUNDS[value])
            for method in self.matrix.methods
        }

    def _bare(self, method: str) -> RunPlan:
        """Its first run without audits, at the plan's learning rate: costs do not depend on it."""
        recipe = self.matrix.recipe(WHOLE, method, 0)
        return RunPlan(dataclasses.replace(recipe, audits=(), audit_settings={}), method, 0)

    def _search_recipe(self, method: str) -> Recipe:
        return dataclasses.replace(self.matrix.recipe(WHOLE, method, 0), seeds=1)

    def _trials_key(self, method: str) -> str:
        settings = {
            **to_tree(self._search_recipe(method)),
            "audits": None,
            "audit_settings": None,
            "root": None,
        }
        return f"{method}, {identifier([settings, self.matrix.factors])}"


def _beyond_edge(trials: list[Trial], method: str) -> float | None:
    """The next learning rate, a factor 2 outside those tried, if the least own error is at an edge."""
    best = best_trial(trials, method, "own_error")
    if not at_edge(trials, best) or any(trial.failed for trial in trials):
        return None
    return best.lr / 2 if best.lr == min(trial.lr for trial in trials) else best.lr * 2


@dataclass(frozen=True)
class Question:
    """A question and the measurement that answers it.

    Args:
        title: Of its column.
        words: What is measured, in a sentence.
        condition: Under which it is measured.
        audit: The audit.
        name: Of its measurement.
        context: What the measurement's context holds.
    """

    title: str
    words: str
    condition: str
    audit: str
    name: str
    context: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def values(self, work: "Work", method: str) -> dict[int, Measurement]:
        """The answers of a method, by seed."""
        return {
            seed: record.measurement
            for seed, found in work.found(self.condition, method).items()
            for record in found.records
            if self.fits(record)
        }

    def fits(self, record: Record) -> bool:
        """Whether a record answers it, whatever the condition."""
        one = record.measurement
        settings = self.context.items()
        return (one.audit, one.name) == (self.audit, self.name) and all(
            one.context.get(key) == value for key, value in settings
        )


def _few(per_class: int, head: str = "retrained") -> tuple[str, str, str, dict[str, Any]]:
    return "new heads", "co_adaptation", "error", {"head": head, "samples": 10 * per_class}


TEST = {"split": "test"}
QUESTIONS = (
    Question("error", "Of the network as it was trained, on test images.", WHOLE, "accuracy", "error", TEST),
    Question("1 label a class", "Error of new last layers trained on 1 image of each class.", *_few(1)),
    Question("10 labels", "The same, 10 images of each class.", *_few(10)),
    Question("100 labels", "The same, 100 images of each class.", *_few(100)),
    Question("nearest mean", "Error of the nearest class mean, 100 images of each class.", *_few(100, "class mean")),
    Question("5 % of the images", "Error after training on 5 % of the images.",
        "few images", "accuracy", "error", TEST),
    Question("40 % wrong labels", "Error after training with 40 % wrong labels.",
        "noisy labels", "accuracy", "error", TEST),
    Question(
        "right under attack", "Share of test images that no attack within 0.1 (every pixel, of 1) turns wrong.",
        "attacks", "robustness", "robust_accuracy",
    ),
    Question(
        "smallest change", "Largest change of a pixel that turns half of the right images wrong.",
        "attacks", "minimal_perturbation", "median_flip",
    ),
    Question(
        "unknown classes", "AUROC of the distance to training features, images of three classes left out of training.",
        NEW_CLASSES, "likelihood", "auroc", {"score": "neighbours", "unseen": "classes left out"},
    ),
    Question(
        "-log likelihood", "Mean of -log p of the right class, nats.",
        WHOLE, "calibration", "nll", {"temperature": "as trained"},
    ),
    Question(
        "new classes", "Error of new last layers on the three classes left out, 5 images of each.",
        NEW_CLASSES, "new_classes", "error", {"head": "retrained", "per_class": 5},
    ),
)  # fmt: skip


def is_wanted(record: Record) -> bool:
    """Whether a record answers a question."""
    return any(question.fits(record) for question in QUESTIONS)
