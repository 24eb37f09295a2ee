"""How much co-adaptation a few epochs of FOCA remove from a network that was trained plainly.

Plainly trained networks go on, on the target's training images, with FOCA or with cross-entropy: for the same
cost, and for the same number of steps. Fresh heads say what became of their features. On digits the target is
what they were trained on; with a root, networks trained on MNIST meet photographs of the same ten digits as
hand signs.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearance.experiments.audit_plan import AuditPlan
from clearance.experiments.auditing import audit_model
from clearance.experiments.build import RunData, build_data
from clearance.experiments.engines import one_thread
from clearance.experiments.method import Method
from clearance.experiments.provenance import report_with
from clearance.experiments.recipe import Recipe, to_tree
from clearance.experiments.reproductions.sato_2019.fine_tuning_ledger import (
    BEFORE,
    FOCA,
    SAME_COST,
    SAME_STEPS,
    Tried,
    write_ledger,
)
from clearance.experiments.reproductions.sato_2019.fine_tuning_task import Task, task
from clearance.experiments.run import RunFindings, RunPlan
from clearance.experiments.saved import FACTS, START, load_model
from clearance.experiments.study_request import StudyRequest
from clearance.records import ExhibitRecord, Record, RunNote
from clearance.report import Card
from clearance.vocabulary import Outcome

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the recipe's learning rates, tried on a split of train
HELD_OUT = 0.25
# about 40 passes, a quarter of the recipe's: for a few epochs, 2,000 would be most of the cost
FINAL_HEAD_STEPS = 500
COMMAND = "clearance reproduce sato-2019 --only fine-tuning"
AUDITS = ("accuracy", "co_adaptation")
SETTINGS: Mapping[str, Mapping[str, Any]] = {"co_adaptation": {"per_class": [1, 10], "repetitions": [50, 20]}}
WAYS = (SAME_COST, SAME_STEPS, FOCA)


@dataclasses.dataclass(frozen=True)
class Study:
    """What every part of the study is given."""

    chosen: Task
    request: StudyRequest


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: What was asked for. Seeds are networks to start from, those of the recipe, 5, by default. The root is
            the folder that holds ``mnist`` and ``sign-language-digits``; None is digits alone.

    Raises:
        NoDataError: If one of the two is not there.
        ValueError: If no network could be trained to start from.
    """
    root = request.root
    study = Study(task(root, request.out), request)
    count = request.seeds_or(study.chosen.start.seeds)
    methods, tried = _search(study)
    starts, found = _plain_networks(study, study.chosen.start, count)
    data = build_data(study.chosen.target)
    found += [_before(path, data, seed) for seed, path in starts.items()]
    plans = [_plan(study.chosen, n, m, path, s) for s, path in starts.items() for n, m in methods.items()]
    found += request.grid(plans, data)
    settings = {
        "dataset": data.train.name,
        "seeds": count,
        "audit_settings": SETTINGS,
        "start": {**to_tree(study.chosen.start), "root": None if root is None else "given"},
        "epochs": dict(study.chosen.epochs),
        "methods": {name: to_tree(method) for name, method in methods.items()},
    }
    command = COMMAND if root is None else f"{COMMAND} --root ROOT"
    report = report_with(settings, found, request.command(command))
    Card(report).save_folder(request.out)
    return write_ledger(report, tried, request.out)


def _plain_networks(study: Study, start: Recipe, count: int) -> tuple[dict[int, Path], list[RunFindings]]:
    """The directories of plainly trained networks by seed, and the notes of those that broke down."""
    plans = [RunPlan(start, "plain", seed) for seed in range(count)]
    found = study.request.grid(plans, build_data(start))
    folders = {plan.seed: study.request.runs / plan.folder for plan in plans}
    ready = {seed: folder for seed, folder in folders.items() if (folder / FACTS).exists()}
    broken = [f.note for f in found if f.note is not None and f.note.seed not in ready]
    if not ready:
        raise ValueError(f"no network could be trained to start from: {broken[0].status}.")
    return ready, [RunFindings(dataclasses.replace(note, method=BEFORE), (), ()) for note in broken]


def _search(study: Study) -> tuple[dict[str, Method], list[Tried]]:
    """The best learning rate of each way to go on, by one-image error on a split of train; one network."""
    chosen = study.chosen
    held_out = HELD_OUT if chosen.shared else 0.0
    starts, _ = _plain_networks(study, dataclasses.replace(chosen.start, held_out=held_out), 1)
    split = dataclasses.replace(chosen, target=dataclasses.replace(chosen.target, held_out=HELD_OUT))
    trials = [(way, _method(chosen, way, factor)) for way in WAYS for factor in FACTORS]
    plans = [_plan(split, way, method, starts[0], 0) for way, method in trials]
    found = study.request.grid(plans, build_data(split.target))
    tried = [
        Tried(way, method.lr, _one_image_error(f)) for (way, method), f in zip(trials, found, strict=True)
    ]
    best = {way: min((t for t in tried if t.way == way), key=lambda t: t.error).lr for way in WAYS}
    return {way: method for way, method in trials if method.lr == best[way]}, tried


def _method(chosen: Task, way: str, factor: float) -> Method:
    method = chosen.start.methods["plain"] if way != FOCA else chosen.foca
    return dataclasses.replace(method, lr=method.lr * factor, final_head_steps=FINAL_HEAD_STEPS)


def _plan(chosen: Task, way: str, method: Method, network: Path, seed: int) -> RunPlan:
    recipe = dataclasses.replace(
        chosen.target,
        model=f"{START}{network}",
        epochs=chosen.epochs[way],
        methods={way: method},
        audits=AUDITS,
        audit_settings=SETTINGS,
    )
    return RunPlan(recipe, way, seed)


def _before(network: Path, data: RunData, seed: int) -> RunFindings:
    """The plainly trained network itself; its own training is no cost of what follows."""
    with one_thread():
        found = audit_model(load_model(network), data, AuditPlan.of(AUDITS, SETTINGS).audits, seed)
    where = (data.train.name, BEFORE, seed)
    return RunFindings(
        RunNote(BEFORE, seed, Outcome.FINISHED, "trained plainly"),
        tuple(Record(*where, m) for f in found for m in f.measurements),
        tuple(ExhibitRecord(*where, e) for f in found for e in f.exhibits),
    )


def _one_image_error(found: RunFindings) -> float:
    """Of retrained heads; chance where nothing could be measured."""
    errors = {
        r.measurement.context["samples"]: r.measurement.value
        for r in found.records
        if (r.measurement.audit, r.measurement.name) == ("co_adaptation", "error")
        and r.measurement.context["head"] == "retrained"
    }
    return errors[min(errors)] if errors else 1.0
