"""Whether weight decay helps less with depth: perceptrons of 1, 2, 4 and 8 layers, at nearly equal held-out error.

The article expects it and shows nothing. Here, for every depth, networks are trained with decays from none to strong;
"high" is the strongest whose error on held-out training images is, on average over seeds, no more than a tenth above
that without decay. The nearest mistakes that a search finds are then compared with and without it, network by network.
"""

import functools
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from clearance import ImageSet, Measurement, load_dataset
from clearance.attacks import MinimumNorm
from clearance.models import predictions
from clearance.research import Better, Recipe, Record, RunFindings, derived_seed, fixed_images, report_with
from papers.engine.ledger import JudgedStudy
from papers.engine.study import StudyRequest, needed_data
from papers.engine.tasks import Tree, each
from papers.tanay_2018.networks import PAPER, trained
from papers.tanay_2018.seed_tables import SeedRow, table, unfinished

STUDY, METHOD = "depth", "high-decay"
SEEDS = 5
ALLOWED = 1.1  # times the error without decay, on held-out images


@dataclass(frozen=True)
class DepthSettings:
    """What can be changed; the defaults are those of the ledger.

    Args:
        layers: Numbers of weight matrices.
        decays: From none upwards; the others are compared with the first.
        epochs: Passes over the training images.
        per_class: Training images of each class, the first ones.
        held_out: Further training images of each class, on which decays are chosen.
        batch_size: Images a step.
        lr: Step size of SGD with momentum 0.9.
        images: Test images whose nearest mistake is searched for.
        search: Steps of that search.
    """

    layers: tuple[int, ...] = (1, 2, 4, 8)
    decays: tuple[float, ...] = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
    epochs: int = 10
    per_class: int = 1000
    held_out: int = 300
    batch_size: int = 100
    lr: float = 0.02
    images: int = 200
    search: int = 60


def run(request: StudyRequest) -> Path:
    """Train and measure every network and write the ledger; what is finished is read back.

    Args:
        request: What was asked for. Seeds are networks of each depth and decay, 5 by default.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    needed_data(Recipe(dataset=request.dataset, root=request.root))
    return study(DepthSettings(), request)


def study(settings: DepthSettings, request: StudyRequest) -> Path:
    """The same with settings of the caller's own."""
    count, dataset, out = request.seeds_or(SEEDS), request.dataset, request.out
    tasks = {
        f"{layers}-decay{decay:g}-{seed}": _task(settings, dataset, layers, decay, seed)
        for seed, layers, decay in itertools.product(range(count), settings.layers, settings.decays)
    }
    work = partial(measured_depth, root=request.root, folder=str(out / "networks"))
    found = each(work, tasks, out / "measured", request.engine, request.listener)
    chosen = {layers: chosen_decay(settings, layers, found, count) for layers in settings.layers}
    records = _records(settings, dataset, found, chosen, count)
    facts = {"dataset": dataset, "seeds": count, **vars(settings)}
    judged = JudgedStudy(PAPER, (STUDY,), dataset)
    findings = [RunFindings(None, tuple(records), ())]
    report = report_with(facts, findings, judged.command(request.seeds))
    report.save(out)
    text = [*_text(settings, records, chosen), unfinished(found)]
    return judged.write_ledger(report, text, out)


def _task(settings: DepthSettings, dataset: str, layers: int, decay: float, seed: int) -> Tree:
    names = ("epochs", "per_class", "held_out", "batch_size", "lr", "images", "search")
    given = {name: getattr(settings, name) for name in names}
    return {"dataset": dataset, "layers": layers, "decay": decay, "seed": seed, **given}


def measured_depth(task: Tree, root: str | None, folder: str) -> Tree:
    """Errors of one perceptron, and how far its nearest mistakes are.

    Args:
        task: As `networks.trained` takes it, with ``held_out``, ``images`` and ``search``.
        root: Where the dataset's files are.
        folder: Where networks are kept.
    """
    result, train, test = trained(task, root, folder)
    sets = {
        "test": test,
        "held_out": held_out_images(task["dataset"], root, task["per_class"], task["held_out"]),
        "train": train,
    }
    found = {
        f"{name}_error": float((predictions(result.model, data) != data.labels).double().mean())
        for name, data in sets.items()
    }
    some = fixed_images(test, task["images"], derived_seed(0, "tanay-2018"))
    near = MinimumNorm(norm=2.0, steps=task["search"])(result.model, some.images, some.labels)
    right = (near.success & (near.distance > 0)).tolist()
    distances = [float(d) if one else None for d, one in zip(near.distance, right, strict=True)]
    return {**found, "tested": len(test), "distances": distances, "status": str(result.status)}


@functools.lru_cache(maxsize=1)
def held_out_images(dataset: str, root: str | None, first: int, count: int) -> ImageSet:
    """The training images of each class after its first `first`, at most `count` of them.

    >>> len(held_out_images("digits", None, 50, 10))
    100
    """
    data = load_dataset(dataset, "train", root)
    rows = [(data.labels == k).nonzero().flatten()[first : first + count] for k in range(data.class_count)]
    return data.subset(torch.cat(rows))


def chosen_decay(settings: DepthSettings, layers: int, found: Mapping[str, Tree], seeds: int) -> float:
    """The strongest decay whose mean error on held-out images is at most 1.1 times that of the first decay.

    >>> rows = {f"1-decay{d:g}-0": {"held_out_error": e} for d, e in ((0, 0.10), (0.1, 0.11), (1, 0.12))}
    >>> chosen_decay(DepthSettings(decays=(0.0, 0.1, 1.0)), 1, rows, 1)
    0.1
    """
    errors = {
        decay: statistics.fmean(
            found[f"{layers}-decay{decay:g}-{seed}"]["held_out_error"] for seed in range(seeds)
        )
        for decay in settings.decays
    }
    allowed = ALLOWED * errors[settings.decays[0]] + 1e-12
    return max(decay for decay, error in errors.items() if error <= allowed)


def _records(
    settings: DepthSettings, dataset: str, found: Mapping[str, Tree], chosen: Mapping[int, float], seeds: int
) -> list[Record]:
    records = []
    for seed, layers in itertools.product(range(seeds), settings.layers):
        plain = found[f"{layers}-decay{settings.decays[0]:g}-{seed}"]
        high = found[f"{layers}-decay{chosen[layers]:g}-{seed}"]
        numbers: dict[str, tuple[float, str, Better]] = {
            "plain_error": (plain["test_error"], "fraction", "lower"),
            "decayed_error": (high["test_error"], "fraction", "lower"),
        }
        common = [
            pair for pair in zip(plain["distances"], high["distances"], strict=True) if None not in pair
        ]
        if common:
            before, after = (statistics.median(side) for side in zip(*common, strict=True))
            numbers |= {
                "plain_distance": (before, "pixel units", "higher"),
                "decayed_distance": (after, "pixel units", "higher"),
                "distance_ratio": (after / before, "ratio", "higher"),
            }
        for name, (value, unit, better) in numbers.items():
            count = len(common) if "distance" in name else plain["tested"]
            one = Measurement(STUDY, name, value, unit, count, better=better, context={"layers": layers})
            records.append(Record(dataset, METHOD, seed, one))
    return records


def _edge(settings: DepthSettings, decay: float) -> str:
    """What a choice at an end of the grid means."""
    if decay == settings.decays[-1]:
        return " (the strongest tried: the ratio may be larger yet)"
    return " (none allowed: the ratio says nothing)" if decay == settings.decays[0] else ""


def _text(settings: DepthSettings, records: Sequence[Record], chosen: Mapping[int, float]) -> list[str]:
    columns = {
        f"{layers} layer{'s' if layers > 1 else ''}, decay {chosen[layers]:g}{_edge(settings, chosen[layers])}": (
            METHOD,
            {"layers": layers},
        )
        for layers in settings.layers
    }
    rows = [
        SeedRow("wrong on test images, no decay", STUDY, "plain_error"),
        SeedRow("with the chosen decay", STUDY, "decayed_error"),
        SeedRow("nearest mistake found, median L2 norm, no decay", STUDY, "plain_distance"),
        SeedRow("with the chosen decay", STUDY, "decayed_distance"),
        SeedRow("ratio", STUDY, "distance_ratio", {}, "expected to fall with depth"),
    ]
    about = (
        f"Perceptrons of {', '.join(map(str, settings.layers))} layers, 256 wide, {settings.epochs} epochs on "
        f"{settings.per_class:,} images of each class. Of the decays {', '.join(f'{d:g}' for d in settings.decays)} "
        f"(coupled, SGD with momentum 0.9, learning rate {settings.lr:g}) the strongest is taken whose error on "
        f"{settings.held_out:,} further training images of each class is at most {ALLOWED:g} times that without decay. "
        f"Nearest mistakes are searched for from {settings.images} test images; medians are over those that both "
        "networks of a pair have right. Mean ± sd over seeds."
    )
    return ["## Depth", about, table(records, rows, columns)]
