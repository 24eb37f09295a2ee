"""Runs that were begun and ended without a word, and what is in their directories."""

import json
from pathlib import Path

import torch

from clearance.runs import RunDirectory

SEED = {"seed": 0}


def names(folder):
    return sorted(entry.relative_to(folder).as_posix() for entry in Path(folder).rglob("*"))


def checkpoints(folder):
    return [entry.name for entry in (folder / "checkpoints").iterdir()]


def metrics_of(run):
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


def latest(run):
    found = run.latest()
    assert found is not None
    return found


def begin(path, *, steps=(1, 2, 3), save=2):
    """A run that logged `steps`, saved after step `save`, and then ended without a word."""
    with RunDirectory.open(path, SEED) as run:
        for step in steps:
            run.log({"step": step, "loss": 1 / step})
            if step == save:
                run.save(step, {"weight": torch.full((2,), float(step))})
