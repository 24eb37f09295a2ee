"""Records that a study adds to those of finished runs: attacks on what was trained, each network in a process."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clearance.experiments.reproductions.parallel import each
from clearance.experiments.run import RunFindings, RunPlan
from clearance.experiments.study_request import StudyRequest
from clearance.records import Record
from clearance.runs.directory import MODEL
from clearance.vocabulary import Measurement, Outcome

Tree = dict[str, Any]


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
        work: As :func:`parallel.each` takes it; it returns what `records_of` does.
        task: Settings of the work on a run, plain values; None leaves the run as it is.
        name: Of the folder, below that of the study, where records are kept.
        request: What was asked for.
    """
    finished = [plan for plan, one in zip(plans, found, strict=True) if is_finished(one)]
    tasks = {plan.folder: given for plan in finished if (given := task(plan)) is not None}
    made = each(work, tasks, request.out / name, request.jobs, request.listener)
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
    told = {"data": data, "method": plan.method, "seed": plan.seed, "run": plan.folder}
    return {**told, "network": network_of(runs / plan.folder)}


def network_of(run: Path) -> str:
    """Sixteen hexadecimal digits that change with any bit of a finished run's weights: one trained anew is another."""
    return hashlib.sha256((run / MODEL).read_bytes()).hexdigest()[:16]


def records_of(task: Tree, numbers: Sequence[Measurement]) -> Tree:
    """Measurements as plain values, with what they are of: ``data``, ``method`` and ``seed`` of the task."""
    return {"records": [Record(task["data"], task["method"], task["seed"], one).to_json() for one in numbers]}


def _with(found: RunFindings, made: Tree | None) -> RunFindings:
    if made is None:
        return found
    own = tuple(Record.from_json(row) for row in made["records"])
    return dataclasses.replace(found, records=(*found.records, *own))
