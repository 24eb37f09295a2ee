"""How much co-adaptation a few epochs of FOCA remove from a network that was trained plainly.

Plainly trained networks go on, on the target's training images, with FOCA or with cross-entropy: for the same
cost, and for the same number of steps. Fresh heads say what became of their features. On digits the target is
what they were trained on; with a root, networks trained on MNIST meet photographs of the same ten digits as
hand signs.
"""

import dataclasses
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clearance import Card, ImageSet, Method, load_model
from clearance.audits import Subject
from clearance.data import Preprocessing
from clearance.research import (
    AuditPlan,
    ExhibitRecord,
    Outcome,
    Recipe,
    Record,
    Report,
    RunData,
    RunFindings,
    RunNote,
    RunPlan,
    build_data,
    one_thread,
    open_folder,
    printed,
    report_with,
    to_tree,
    write_bytes,
)
from papers.engine.catalogue import paper_recipe
from papers.engine.ledger import (
    COST,
    OWN_HEAD,
    TableRow,
    cost_in_words,
    in_words,
    measured,
    provenance,
    save,
    table,
)
from papers.engine.study import NoDataError, StudyRequest

# What a few epochs of fine-tuning changed, with its cost, as Markdown and JSON.

BEFORE = "as it was"
SAME_COST, SAME_STEPS, FOCA = "cross-entropy, same cost", "cross-entropy, same steps", "foca"
HEADS = ("retrained", "linear", "class mean")


@dataclasses.dataclass(frozen=True)
class Tried:
    """A learning rate that was tried on a split of train, and the one-image error there."""

    way: str
    lr: float
    error: float


def write_ledger(report: Report, tried: list[Tried], out: Path) -> Path:
    """Write ``ledger.md`` and ``ledger.json``; the path of the first."""
    errors = _quantities(report)
    rows = [OWN_HEAD, *errors]
    epochs = report.recipe["epochs"]
    lines = [
        "# sato_2019: fine-tuning a plainly trained network",
        provenance(report),
        f"Networks trained plainly on {report.recipe['start']['dataset']}, tuned and measured on "
        f"{report.recipe['dataset']}. Test error, mean over the networks ({report.recipe['seeds']}) with the 95 % t "
        f"interval; in brackets the verdict against the network {BEFORE}, paired over networks and not adjusted "
        "for the number of cells.",
        table(report, rows, report.methods, BEFORE),
        f"Cost of the tuning alone, as a factor of `{SAME_COST}`:",
        table(report, COST, [method for method in report.methods if method != BEFORE], SAME_COST),
        f"Cross-entropy's budget is matched in time, not in steps: it has {epochs.get(SAME_COST)} epochs, "
        f"FOCA {epochs.get(FOCA)} and its final head, a number set before the study from the time of an epoch of "
        f"each; the table says what it came to. `{SAME_STEPS}` takes as many steps as FOCA.",
        *(_against(report, rival, rows) for rival in (SAME_COST, SAME_STEPS)),
        "Learning rates were chosen on a quarter of the training images, with one network, by one-image error: "
        + "; ".join(_line(trial, report) for trial in tried)
        + ".",
    ]
    trials = [dataclasses.asdict(t) for t in tried]
    text = "\n\n".join(lines)
    return save(
        report, text, [*rows, *COST], (BEFORE, SAME_COST, SAME_STEPS), out, epochs=epochs, tried=trials
    )


def _line(trial: Tried, report: Report) -> str:
    chosen = " (chosen)" if report.recipe["methods"][trial.way]["lr"] == trial.lr else ""
    return f"{trial.way}, lr {trial.lr:g}: {printed(trial.error, 'fraction')}{chosen}"


def _quantities(report: Report) -> list[TableRow]:
    """Every head on every number of images that was measured."""
    found = measured(report.records, "co_adaptation", "error")
    sizes = sorted({record.measurement.context["samples"] for record in found})
    return [
        TableRow(f"{head} head, {size} images", "co_adaptation", context={"head": head, "samples": size})
        for head in HEADS
        for size in sizes
    ]


def _against(report: Report, rival: str, rows: list[TableRow]) -> str:
    """FOCA against a rival on every row, with its cost."""
    cost = cost_in_words(report, FOCA, rival)
    lines = [f"- {row.label}: {in_words(report, row, FOCA, rival)}" for row in rows]
    return f"FOCA against `{rival}`" + (f", at {cost}:" if cost else ":") + "\n\n" + "\n".join(lines)


# Where the networks of the fine-tuning study come from, and what they are tuned on.

PHOTOGRAPHS = "sign-language-digits"
SIDE = 28  # of MNIST's images
# Epochs of cross-entropy that take as long as 10 of FOCA and its final head, measured on one core; the
# ledger says what it came to.
EPOCHS = {SAME_COST: 25, SAME_STEPS: 10, FOCA: 10}


@dataclasses.dataclass(frozen=True)
class Task:
    """Where the networks come from, and what they are tuned on.

    Args:
        start: The recipe of plain training.
        target: The recipe of tuning, without a model and methods.
        foca: FOCA's settings.
        shared: Whether the target's training images are those of the start, so that a choice on a split of
            them needs networks that have not seen the split either.
    """

    start: Recipe
    target: Recipe
    foca: Method
    shared: bool


def task(root: str | None, out: Path) -> Task:
    """Digits to digits, or with a root MNIST to the photographs ``ROOT/sign-language-digits``.

    The photographs are kept in `out` as grey images of MNIST's size, which every run reads.

    Raises:
        NoDataError: If MNIST or the photographs are not under `root`.
    """
    known = paper_recipe("sato_2019", "digits" if root is None else "mnist", root)
    start = dataclasses.replace(known, methods={"plain": known.methods["plain"]}, audits=("accuracy",))
    if root is None:
        return Task(start, start, known.methods["foca"], shared=True)
    try:
        build_data(start)
        pictures = open_folder(Path(root).expanduser() / PHOTOGRAPHS, Preprocessing(size=SIDE))
    except FileNotFoundError as error:
        raise NoDataError(
            f"`root` must hold mnist and {PHOTOGRAPHS}, a folder of pictures for each class; {error}"
        ) from error
    target = dataclasses.replace(start, dataset=f"npz:{_kept(pictures, out)}", root=None)
    return Task(start, target, known.methods["foca"], shared=False)


def _kept(pictures: ImageSet, out: Path) -> Path:
    """The pictures in grey, as an archive that processes read."""
    grey = (pictures.images.mean(dim=1) * 255).round().numpy().astype(np.uint8)
    content = io.BytesIO()
    np.savez(content, images=grey, labels=pictures.labels.numpy(), classes=np.array(pictures.classes))
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{pictures.name}.npz"
    write_bytes(path, content.getvalue())
    return path


FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the recipe's learning rates, tried on a split of train
HELD_OUT = 0.25
# about 40 passes, a quarter of the recipe's: for a few epochs, 2,000 would be most of the cost
FINAL_HEAD_STEPS = 500
COMMAND = "python -m papers sato_2019 --only fine-tuning"
AUDITS = ("accuracy", "co_adaptation")
SETTINGS: Mapping[str, Mapping[str, Any]] = {"co_adaptation": {"per_class": [1, 10], "repetitions": [50, 20]}}
WAYS = (SAME_COST, SAME_STEPS, FOCA)


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
    chosen = task(root, request.out)
    count = request.seeds_or(chosen.start.seeds)
    methods, tried = _search(chosen, request)
    starts, found = _plain_networks(request, chosen.start, count)
    data = build_data(chosen.target)
    found += [_before(path, data, seed) for seed, path in starts.items()]
    plans = [_plan(chosen, n, m, path, s) for s, path in starts.items() for n, m in methods.items()]
    found += request.grid(plans, data)
    settings = {
        "dataset": data.train.name,
        "seeds": count,
        "audit_settings": SETTINGS,
        "start": {**to_tree(chosen.start), "root": None if root is None else "given"},
        "epochs": EPOCHS,
        "methods": {name: to_tree(method) for name, method in methods.items()},
    }
    command = COMMAND if root is None else f"{COMMAND} --root ROOT"
    report = report_with(settings, found, request.command(command))
    Card(report).save_folder(request.out)
    return write_ledger(report, tried, request.out)


def _plain_networks(
    request: StudyRequest, start: Recipe, count: int
) -> tuple[dict[int, Path], list[RunFindings]]:
    """The directories of plainly trained networks by seed, and the notes of those that broke down."""
    plans = [RunPlan(start, "plain", seed) for seed in range(count)]
    found = request.grid(plans, build_data(start))
    folders = {plan.seed: request.runs / plan.folder for plan in plans}
    ready = {seed: folder for seed, folder in folders.items() if (folder / "model.json").exists()}
    broken = [f.note for f in found if f.note is not None and f.note.seed not in ready]
    if not ready:
        raise ValueError(f"no network could be trained to start from: {broken[0].status}.")
    return ready, [RunFindings(dataclasses.replace(note, method=BEFORE), (), ()) for note in broken]


def _search(chosen: Task, request: StudyRequest) -> tuple[dict[str, Method], list[Tried]]:
    """The best learning rate of each way to go on, by one-image error on a split of train; one network."""
    held_out = HELD_OUT if chosen.shared else 0.0
    starts, _ = _plain_networks(request, dataclasses.replace(chosen.start, held_out=held_out), 1)
    split = dataclasses.replace(chosen, target=dataclasses.replace(chosen.target, held_out=HELD_OUT))
    trials = [(way, _method(chosen, way, factor)) for way in WAYS for factor in FACTORS]
    plans = [_plan(split, way, method, starts[0], 0) for way, method in trials]
    found = request.grid(plans, build_data(split.target))
    tried = [
        Tried(way, method.lr, _one_image_error(f)) for (way, method), f in zip(trials, found, strict=True)
    ]
    best = {way: min((t for t in tried if t.way == way), key=lambda t: t.error).lr for way in WAYS}
    return {way: method for way, method in trials if method.lr == best[way]}, tried


def _method(chosen: Task, way: str, factor: float) -> Method:
    plain, foca = chosen.start.methods["plain"], chosen.foca
    method = dataclasses.replace(foca, final_head_steps=FINAL_HEAD_STEPS) if way == FOCA else plain
    return dataclasses.replace(method, lr=method.lr * factor)


def _plan(chosen: Task, way: str, method: Method, network: Path, seed: int) -> RunPlan:
    recipe = dataclasses.replace(
        chosen.target,
        model=f"run:{network}",
        epochs=EPOCHS[way],
        methods={way: method},
        audits=AUDITS,
        audit_settings=SETTINGS,
    )
    return RunPlan(recipe, way, seed)


def _before(network: Path, data: RunData, seed: int) -> RunFindings:
    """The plainly trained network itself; its own training is not part of the cost."""
    with one_thread():
        subject = Subject(load_model(network), data.train, data.test, seed, data.new_classes)
        found = [audit.examine(subject) for audit in AuditPlan.of(AUDITS, SETTINGS).audits]
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
        for r in measured(found.records, "co_adaptation", "error", {"head": "retrained"})
    }
    return errors[min(errors)] if errors else 1.0
