"""LeNet with high and low weight decay, from two initialisations: errors, weights, and adversarial images."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from clearance.experiments.grid import Listener
from clearance.experiments.reproduction_ledger import reproduce_command
from clearance.experiments.reproductions.tanay_2018.lenet_ledger import (
    INITS,
    LeNetSettings,
    about,
    attack_part,
    network_part,
)
from clearance.experiments.reproductions.tanay_2018.lenet_numbers import (
    DECAYS,
    HIGH,
    LOW,
    attacked_network,
    measured_network,
)
from clearance.experiments.reproductions.tanay_2018.networks import check_data
from clearance.experiments.reproductions.tanay_2018.parallel import each
from clearance.experiments.reproductions.tanay_2018.study_ledger import PAPER, report_of_study, written
from clearance.records import Record

SEEDS = 3
Tree = dict[str, Any]


def run(
    out: Path, *, seeds: int | None, jobs: int, listener: Listener, dataset: str = "mnist", root: str | None = None
) -> Path:  # fmt: skip
    """Train and measure every network, attack it, and write the ledger; interrupted, it goes on where it stood.

    Args:
        out: Where ledger, pictures, records and networks are kept.
        seeds: Networks of each initialisation and decay; 3 by default. A verdict needs five.
        jobs: Networks at a time, each in a process with one thread.
        listener: Not used: the files in ``out/lenet`` and ``out/adversarial`` say how far it is.
        dataset: What to learn.
        root: The folder that holds its files.

    Raises:
        NoDataError: If they are not there.
    """
    del listener
    check_data(dataset, root)
    return study(LeNetSettings(), ("lenet", "adversarial"), dataset, root, seeds, jobs, out, out / "networks")


def run_adversarial(
    out: Path, *, seeds: int | None, jobs: int, listener: Listener, dataset: str = "mnist", root: str | None = None
) -> Path:  # fmt: skip
    """The adversarial images alone; networks that ``--only lenet`` left in the folder beside are not trained again.

    Args:
        out: Where ledger, pictures and records are kept.
        seeds: As in `run`.
        jobs: As in `run`.
        listener: Not used.
        dataset: As in `run`.
        root: As in `run`.

    Raises:
        NoDataError: If the files are not there.
    """
    del listener
    check_data(dataset, root)
    beside = out.parent / f"lenet-{dataset}" / "networks"
    networks = beside if beside.is_dir() else out / "networks"
    return study(LeNetSettings(), ("adversarial",), dataset, root, seeds, jobs, out, networks)


def study(
    settings: LeNetSettings,
    parts: Sequence[str],
    dataset: str,
    root: str | None,
    seeds: int | None,
    jobs: int,
    out: Path,
    networks: Path,
) -> Path:
    """The same with settings of the caller's own.

    Args:
        settings: The settings.
        parts: ``"lenet"``, ``"adversarial"`` or both.
        dataset: What to learn.
        root: Where its files are.
        seeds: Networks of each kind.
        jobs: Networks at a time.
        out: Where everything but networks is kept.
        networks: Where those are.
    """
    count = SEEDS if seeds is None else seeds
    tasks = _tasks(settings, dataset, count)
    found: dict[str, dict[str, Tree]] = {}
    for part, work in (("lenet", measured_network), ("adversarial", attacked_network)):
        if part in parts:
            found[part] = _each(work, tasks[part], root, networks, out / part, jobs)
    records = [
        Record.from_json(row)
        for trees in found.values()
        for tree in trees.values()
        for row in tree["records"]
    ]
    name = parts[0]
    told = {"dataset": dataset, "seeds": count, "decays": DECAYS, **vars(settings)}
    report = report_of_study(told, records, reproduce_command(PAPER, dataset, seeds, only=name))
    text = [about(settings), *network_part(found.get("lenet"), records, tasks["lenet"], out)]
    text += attack_part(found.get("adversarial"), records, tasks["adversarial"], out)
    return written(report, parts, dataset, text, out)


def _each(
    work: Callable[..., Tree],
    tasks: Mapping[str, Tree],
    root: str | None,
    networks: Path,
    folder: Path,
    jobs: int,
) -> dict[str, Tree]:
    return each(partial(work, root=root, folder=str(networks)), tasks, folder, jobs)


def _tasks(settings: LeNetSettings, dataset: str, seeds: int) -> dict[str, dict[str, Tree]]:
    """Of both parts, by name; seed by seed, so that an interrupted study has whole seeds."""
    train = {key: getattr(settings, key) for key in ("epochs", "per_class", "batch_size", "lr", "clip_norm")}
    attack = {key: getattr(settings, key) for key in ("images", "grey_levels", "ascent", "search")}
    plain = {
        f"{method}-{init}-{seed}": {
            "dataset": dataset,
            "init": init,
            "decay": DECAYS[method],
            "seed": seed,
            **train,
        }
        for seed, init, method in itertools.product(range(seeds), INITS, (HIGH, LOW))
    }
    return {"lenet": plain, "adversarial": {name: {**task, **attack} for name, task in plain.items()}}
