"""How much co-adaptation a few epochs of FOCA remove from a network that was trained plainly.

Plainly trained networks go on, on the target's training images, with FOCA or with cross-entropy for about the
same cost; fresh heads say what became of their features. On digits the target is what they were trained on;
with a root, networks trained on MNIST meet photographs of the same ten digits as hand signs.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from clearance._files import write_bytes
from clearance.data import ImageSet
from clearance.experiments.build import RunData, build_data
from clearance.experiments.compare import report_with
from clearance.experiments.datasets import SPLIT_SEED, load_dataset
from clearance.experiments.grid import Listener, run_grid
from clearance.experiments.papers import paper_recipe
from clearance.experiments.recipe import Method, Recipe, to_tree
from clearance.experiments.run import RunFindings, RunPlan, audit_model, chosen_audits, run_method
from clearance.experiments.saved import load_model
from clearance.records import ExhibitRecord, Record, Report
from clearance.report import Card
from clearance.report.numbers import THIN, printed

EPOCHS = {
    "cross-entropy": 15,
    "foca": 5,
}  # an epoch of FOCA costs about three plain ones; the table has the times
BEFORE = "as it was"
FACTORS = (0.125, 0.25, 0.5, 1.0)  # of the recipe's learning rates, tried on a split of train
HELD_OUT = 0.25
PHOTOGRAPHS = "sign-language-digits"
COMMAND = "clearance reproduce sato-2019 --only fine-tuning"
AUDITS = ("accuracy", "co_adaptation")
SETTINGS = {"co_adaptation": {"per_class": [1, 10], "repetitions": [50, 20]}}


@dataclass(frozen=True)
class Task:
    """Where the networks come from, and what they are tuned on.

    Args:
        start: The recipe of plain training.
        target: The images to tune and measure on, given the share of train that stands in for the test set.
        shared: Whether the target's training images are those of the start, so that a choice on a split of
            them needs networks that have not seen the split either.
    """

    start: Recipe
    target: Callable[[float], RunData]
    shared: bool


def task(root: str | None = None) -> Task:
    """Digits to digits, or with a root MNIST to the photographs ``ROOT/sign-language-digits``."""
    start = paper_recipe("sato-2019", "digits" if root is None else "mnist", root)
    start = dataclasses.replace(start, methods={"plain": start.methods["plain"]}, audits=("accuracy",))
    if root is None:
        return Task(start, lambda share: build_data(dataclasses.replace(start, held_out=share)), shared=True)
    return Task(start, partial(_photographs, Path(root) / PHOTOGRAPHS), shared=False)


def run(out: Path, *, seeds: int | None, jobs: int, listener: Listener, root: str | None = None) -> Path:
    """Run the study and write its ledger; interrupted, it goes on where it stood.

    Args:
        out: Where ledger, report and runs are kept.
        seeds: Networks to start from; those of the recipe by default.
        jobs: Processes at a time, for the plain training.
        listener: Told of events, as in :func:`clearance.experiments.grid.run_grid`.
        root: Folder that holds ``mnist`` and ``sign-language-digits``; None is digits alone.
    """
    chosen = task(root)
    count = chosen.start.seeds if seeds is None else seeds
    methods, lines = _search(chosen, out, jobs, listener)
    data = chosen.target(0.0)
    starts = _plain_networks(chosen.start, count, out, jobs, listener)
    found = [_before(path, data, seed) for seed, path in enumerate(starts)]
    for seed, path in enumerate(starts):
        found += [
            _tuned(chosen.start, name, method, path, data, seed, out) for name, method in methods.items()
        ]
    settings = {"start": to_tree(chosen.start), "methods": {n: to_tree(m) for n, m in methods.items()}}
    settings["start"]["root"] = None if root is None else "given"
    command = COMMAND + ("" if root is None else " --root ROOT")
    report = report_with({"dataset": data.train.name, "seeds": count, **settings}, found, command)
    Card(report).save_folder(out)
    write_bytes(out / "ledger.md", ledger(report, lines).encode())
    return out / "ledger.md"


def _plain_networks(recipe: Recipe, seeds: int, out: Path, jobs: int, listener: Listener) -> list[Path]:
    plans = [RunPlan(recipe, "plain", seed) for seed in range(seeds)]
    run_grid(plans, build_data(recipe), out / "runs", jobs, listener)
    return [out / "runs" / plan.folder for plan in plans]


def _search(chosen: Task, out: Path, jobs: int, listener: Listener) -> tuple[dict[str, Method], list[str]]:
    """The best learning rate of each way to go on, by one-image error on a split of train; one network."""
    held_out = HELD_OUT if chosen.shared else 0.0
    (start,) = _plain_networks(dataclasses.replace(chosen.start, held_out=held_out), 1, out, jobs, listener)
    data = chosen.target(HELD_OUT)
    methods, lines = {}, []
    for name in EPOCHS:
        errors = {}
        for factor in FACTORS:
            method = _method(chosen.start.dataset, name, factor)
            run = _tuned(chosen.start, f"{name} x{factor:g}", method, start, data, 0, out)
            errors[method] = _value(run, "co_adaptation", "head", "retrained")
            lines.append(f"{name}, lr {method.lr:g}: {printed(errors[method], 'fraction')}")
        methods[name] = min(errors, key=lambda method: errors[method])
    return methods, lines


def _method(dataset: str, name: str, factor: float) -> Method:
    known = paper_recipe("sato-2019", dataset).methods
    method = known["foca" if name == "foca" else "plain"]
    return dataclasses.replace(method, lr=method.lr * factor)


def _tuned(
    start: Recipe, name: str, method: Method, network: Path, data: RunData, seed: int, out: Path
) -> RunFindings:
    recipe = dataclasses.replace(
        start,
        dataset=data.train.name,
        epochs=EPOCHS[name.split()[0]],
        batch_size=min(start.batch_size, 64),
        methods={name: method},
        audits=AUDITS,
        audit_settings=SETTINGS,
    )
    return run_method(RunPlan(recipe, name, seed, model=partial(load_model, network)), data, out / "tuned")


def _before(network: Path, data: RunData, seed: int) -> RunFindings:
    found = audit_model(load_model(network), data, chosen_audits(AUDITS, SETTINGS), seed)
    where = (data.train.name, BEFORE, seed)
    return RunFindings(
        None,
        tuple(Record(*where, m) for f in found for m in f.measurements),
        tuple(ExhibitRecord(*where, e) for f in found for e in f.exhibits),
    )


def _photographs(folder: Path, share: float) -> RunData:
    train, test = (_grey(load_dataset(f"folder:{folder}", split, size=28)) for split in ("train", "test"))
    return RunData(*train.split(share, SPLIT_SEED)) if share > 0 else RunData(train, test)


def _grey(data: ImageSet) -> ImageSet:
    return dataclasses.replace(data, images=data.images.mean(dim=1, keepdim=True))


def _value(found: RunFindings, audit: str, key: str, wanted: str) -> float:
    values = [
        r.measurement.value
        for r in found.records
        if (r.measurement.audit, r.measurement.name) == (audit, "error")
        and r.measurement.context.get(key) == wanted
    ]
    return values[0] if values else 1.0


def ledger(report: Report, searched: list[str]) -> str:
    """What a few epochs changed, with its cost, and how the learning rates were chosen."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return (
        "\n\n".join(
            [
                "# sato-2019: fine-tuning a plainly trained network",
                f"Made by `{report.command}`, {report.created}. Versions: {versions}.",
                f"Target: {report.recipe['dataset']}. Mean over {report.recipe['seeds']} networks with the 95 % t "
                "interval; time is that of the fine-tuning alone.",
                "\n".join(_table(report)),
                "Learning rates were chosen on a quarter of the training images, with one network, by one-image "
                "error: " + "; ".join(searched).replace(THIN, " ") + ".",
            ]
        )
        + "\n"
    )


def _table(report: Report) -> list[str]:
    sizes = sorted(
        {
            r.context["samples"]
            for r in report.summary
            if r.audit == "co_adaptation" and "samples" in r.context
        }
    )
    rows = [
        "| | own head | " + " | ".join(f"new head, {size} images" for size in sizes) + " | seconds |",
        "|---" * (3 + len(sizes)) + "|",
    ]
    for method in report.methods:
        few = [_cell(report, method, "co_adaptation", "error", head="retrained", samples=n) for n in sizes]
        cells = [_cell(report, method, "accuracy", "error", split="test"), *few]
        rows.append(f"| {method} | {' | '.join(cells)} | {_cell(report, method, 'training', 'seconds')} |")
    return rows


def _cell(report: Report, method: str, audit: str, name: str, **context: object) -> str:
    for row in report.summary:
        same = (row.kind, row.method, row.audit, row.name) == ("mean", method, audit, name)
        if same and all(row.context.get(key) == value for key, value in context.items()):
            ends = (
                ""
                if row.low is None or row.high is None
                else (f" ({printed(row.low, row.unit)} to {printed(row.high, row.unit)})")
            )
            return f"{printed(row.value, row.unit)}{ends}".replace(THIN, " ")
    return "–"
