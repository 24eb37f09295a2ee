"""LeNet with high and low weight decay, from two initialisations: errors, weights, and adversarial images."""

import itertools
from functools import partial
from pathlib import Path
from typing import Any

from clearance.experiments.provenance import report_with
from clearance.experiments.reproductions.judged_study import JudgedStudy
from clearance.experiments.reproductions.parallel import each
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
    errors_on_the_way,
    measured_network,
    paired_lengths,
)
from clearance.experiments.reproductions.tanay_2018.networks import PAPER, check_data
from clearance.experiments.run import RunFindings
from clearance.experiments.study_request import StudyRequest
from clearance.records import Record

SEEDS = 3
Tree = dict[str, Any]


def run(request: StudyRequest) -> Path:
    """Train and measure every network, attack it, and write the ledger; what is finished is read back.

    Args:
        request: What was asked for. Seeds are networks of each initialisation and decay, 3 by default, but a verdict
            needs five.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    check_data(request.dataset, request.root)
    return study(LeNetSettings(), ("lenet", "adversarial"), request, request.out / "networks")


def run_adversarial(request: StudyRequest) -> Path:
    """The adversarial images alone; networks that ``--only lenet`` left in the folder beside are not trained again.

    Args:
        request: As in `run`.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    check_data(request.dataset, request.root)
    beside = request.out.parent / f"lenet-{request.dataset}" / "networks"
    networks = beside if beside.is_dir() else request.out / "networks"
    return study(LeNetSettings(), ("adversarial",), request, networks)


def study(settings: LeNetSettings, parts: tuple[str, ...], request: StudyRequest, networks: Path) -> Path:
    """The same with settings of the caller's own.

    Args:
        settings: The settings.
        parts: ``"lenet"``, ``"adversarial"`` or both.
        request: What was asked for.
        networks: Where networks are kept.
    """
    count, dataset, out = request.seeds_or(SEEDS), request.dataset, request.out
    tasks = _tasks(settings, dataset, count)
    found: dict[str, dict[str, Tree]] = {}
    for part, work in (("lenet", measured_network), ("adversarial", attacked_network)):
        if part in parts:
            given = partial(work, root=request.root, folder=str(networks))
            found[part] = each(given, tasks[part], out / part, request.jobs, request.listener)
    records = [
        Record.from_json(row)
        for trees in found.values()
        for tree in trees.values()
        for row in tree["records"]
    ]
    records += errors_on_the_way(found.get("lenet", {}), tasks["lenet"])
    records += paired_lengths(found.get("adversarial", {}), tasks["adversarial"])
    told = {"dataset": dataset, "seeds": count, "decays": DECAYS, **vars(settings)}
    judged = JudgedStudy(PAPER, parts, dataset)
    findings = [RunFindings(None, tuple(records), ())]
    report = report_with(told, findings, judged.command(request.seeds))
    report.save(out)
    text = [about(settings), *network_part(found.get("lenet"), records, tasks["lenet"], out)]
    text += attack_part(found.get("adversarial"), records, tasks["adversarial"], out)
    return judged.write_ledger(report, text, out)


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
