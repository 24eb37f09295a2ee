"""LeNet with high and low weight decay, from two initialisations: errors, weights, and adversarial images."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from clearance._files import write_bytes
from clearance.experiments.grid import Listener
from clearance.experiments.reproduction_ledger import reproduce_command
from clearance.experiments.reproductions.tanay_2018.lenet_numbers import (
    AUDIT,
    DECAYS,
    HIGH,
    LOW,
    attacked_network,
    measured_network,
)
from clearance.experiments.reproductions.tanay_2018.lenet_pictures import (
    as_png,
    contact_sheet,
    error_curves,
    filters,
)
from clearance.experiments.reproductions.tanay_2018.networks import check_data
from clearance.experiments.reproductions.tanay_2018.parallel import each
from clearance.experiments.reproductions.tanay_2018.study_ledger import (
    PAPER,
    Column,
    Quantity,
    factor_in_words,
    report_of_study,
    table,
    written,
)
from clearance.records import Record
from clearance.report.svg import as_svg

INITS = ("he", "small")
SEEDS = 3
Tree = dict[str, Any]


@dataclass(frozen=True)
class LeNetSettings:
    """What can be changed; the defaults are those of the ledger, within an hour on two cores.

    Args:
        epochs: 50 in the article.
        per_class: Training images of each class, the first ones; the article says nothing.
        batch_size: The article's.
        lr: The article's, for pixels of 0 to 255.
        images: Test images that are attacked.
        ascent: Steps of one grey level of the ascent, at most.
        search: Steps of the search for the nearest wrong image.
    """

    epochs: int = 25
    per_class: int = 5000
    batch_size: int = 300
    lr: float = 5e-4
    images: int = 200
    ascent: int = 5000
    search: int = 100


LAYERS = (
    ("Conv1", "1", ".04 / .03"),
    ("Conv2", "2", ".04 / .005"),
    ("FC1", "3", ".02 / .001"),
    ("FC2", "4", ".5 / .01"),
)
NETWORK_ROWS = (
    Quantity("wrong on training images", "accuracy", "error", {"split": "train"}, "0 % / 1.2 %, low / high"),
    Quantity("wrong on test images", "accuracy", "error", {"split": "test"}, "1.6 % / 1.2 %"),
    *(
        Quantity(f"RMS of {name}", "weight_scale", "weight_rms", {"layer": k}, told)
        for name, k, told in LAYERS
    ),
    Quantity("size of the logits", "weight_scale", "logit_scale"),
    Quantity("temperature, as sure as right", "weight_scale", "temperature", {"by": "likelihood"}),
    Quantity("training images still active", "weight_scale", "active_share"),
)
NORM = Quantity("L2 norm at 95 % for the next class", AUDIT, "norm_at_confidence", {}, "1.77 / 5.75")
NEAREST = Quantity("L2 norm of the nearest mistake found", AUDIT, "minimum_norm")
ATTACK_ROWS = (
    Quantity("temperature, median 95 % sure", AUDIT, "temperature"),
    NORM,
    Quantity("images that reached it", AUDIT, "reached"),
    NEAREST,
)


def run(
    out: Path, *, seeds: int | None, jobs: int, listener: Listener, dataset: str = "mnist", root: str | None = None
) -> Path:  # fmt: skip
    """Train and measure every network, attack it, and write the ledger; interrupted, it goes on where it stood.

    Args:
        out: Where ledger, pictures, records and networks are kept.
        seeds: Networks of each initialisation and decay; 3 by default. A verdict needs five.
        jobs: Networks at a time, each in a process with one thread.
        listener: Not used: the files in ``out/measured`` say how far it is.
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
    text = [_about(settings), *_network_part(found.get("lenet"), records, tasks["lenet"], out)]
    text += _attack_part(found.get("adversarial"), records, tasks["adversarial"], out)
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
    train = {key: getattr(settings, key) for key in ("epochs", "per_class", "batch_size", "lr")}
    attack = {key: getattr(settings, key) for key in ("images", "ascent", "search")}
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


def _about(settings: LeNetSettings) -> str:
    return (
        f"Trained for {settings.epochs} epochs of batches of {settings.batch_size} on the first "
        f"{settings.per_class:,} images of each class (the article: 50 epochs; the number of images is not stated), SGD "
        f"with momentum 0.9 and learning rate {settings.lr:g} on pixels of 0 to 255 minus the mean image; decay coupled, of weights and biases. Initialisations: "
        "`he`, Conv1 0.01 times normal and the other layers He with fan-out, and `small`, all 0.01 times normal. "
        "Mean ± sd over seeds."
    )


def _columns() -> dict[str, Column]:
    return {f"{method}, {init}": (method, {"init": init}) for init in INITS for method in (LOW, HIGH)}


def _network_part(
    found: Mapping[str, Tree] | None, records: Sequence[Record], tasks: Mapping[str, Tree], out: Path
) -> list[str]:
    if found is None:
        return []
    networks = _grouped(found, tasks)
    write_bytes(
        out / "errors.svg", str(as_svg(error_curves(networks), "errors", "Errors epoch by epoch.")).encode()
    )
    write_bytes(out / "filters.png", as_png(filters(networks)))
    bad = [
        f"{name}: {tree['status']}"
        for name, tree in found.items()
        if not tree["status"].startswith("finished")
    ]
    return [
        "## Errors and weights",
        table(records, NETWORK_ROWS, _columns()),
        "![Errors after every epoch, test (solid) and training (dashed).](errors.svg)",
        "![Filters of the first convolution, first seed.](filters.png)",
        f"Did not finish: {'; '.join(bad)}." if bad else "",
    ]


def _attack_part(
    found: Mapping[str, Tree] | None, records: Sequence[Record], tasks: Mapping[str, Tree], out: Path
) -> list[str]:
    if found is None:
        return []
    sheets = []
    for (method, init), trees in _grouped(found, tasks).items():
        file = f"adversarial-{method}-{init}.png"
        write_bytes(out / file, as_png(contact_sheet(trees[0]["sheet"], f"{method}, init {init}")))
        sheets.append(
            f"![Images, what became of them, and the change: {method}, init {init}, first seed.]({file})"
        )
    ratios = [
        f"Init {init}: with high decay the ascent goes {factor_in_words(records, NORM, *_sides(init))} as far, the "
        f"nearest mistake is {factor_in_words(records, NEAREST, *_sides(init))} as far."
        for init in INITS
    ]
    return [
        "## Adversarial images at equal median confidence",
        "The ascent's path is not the shortest: beside its length stands the nearest mistake that a search found, of "
        "images that are right. The article's ratio is 3.26, of ten images.",
        table(records, ATTACK_ROWS, _columns()),
        " ".join(ratios),
        *sheets,
    ]


def _sides(init: str) -> tuple[Column, Column]:
    return (HIGH, {"init": init}), (LOW, {"init": init})


def _grouped(found: Mapping[str, Tree], tasks: Mapping[str, Tree]) -> dict[tuple[str, str], list[Tree]]:
    """By method and initialisation, a list over seeds."""
    groups: dict[tuple[str, str], list[Tree]] = {}
    names = {decay: method for method, decay in DECAYS.items()}
    for name, tree in found.items():
        groups.setdefault((names[tasks[name]["decay"]], tasks[name]["init"]), []).append(tree)
    return groups
