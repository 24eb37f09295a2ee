"""LeNet with high and low weight decay, from two initialisations: errors, weights, and adversarial images."""

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from clearance import Classifier, ImageSet, Measurement
from clearance.attacks import MinimumNorm, TargetedAscent
from clearance.audits import Accuracy, WeightScale
from clearance.research import (
    GRID,
    INK,
    Recipe,
    Record,
    RunFindings,
    as_svg,
    calibrated_temperature,
    change_sheet,
    derived_seed,
    draw_legend,
    evaluating,
    fixed_images,
    page_figure,
    report_with,
    series,
    write_bytes,
)
from clearance.research import contact_sheet as drawn_sheet
from papers.engine.figures import INK as PAGE_INK
from papers.engine.figures import as_png
from papers.engine.ledger import JudgedStudy
from papers.engine.study import StudyRequest, needed_data
from papers.engine.tasks import Tree, each
from papers.tanay_2018.networks import PAPER, WATCHED, trained
from papers.tanay_2018.seed_tables import Column, SeedRow, factor_in_words, table, unfinished

# What is measured of one trained LeNet: errors, sizes of weights, and images that it takes for another class.

HIGH = "high-decay"
LOW = "low-decay"
DECAYS = {HIGH: 0.1, LOW: 1e-4}
CONFIDENCE = 0.95  # of the target, and in the median of the test set: the article's
AUDIT = "targeted"
CLASSES = 10
LANDMARKS = (5, 9, 10, 15, 20)  # epochs at which errors are compared with the article's curves


def measured_network(task: Tree, root: str | None, folder: str) -> Tree:
    """Errors and sizes of a network, how its errors went, and its first filters.

    Args:
        task: As `networks.trained` takes it.
        root: Where the dataset's files are.
        folder: Where networks are kept.
    """
    result, train, test = trained(task, root, folder)
    found = [audit(result.model, train, test, task["seed"]) for audit in (Accuracy(), WeightScale())]
    filters = result.model.state_dict()["extractor.conv1.weight"][:, 0]
    measured = [*(m for one in found for m in one.measurements), *smoothness(filters)]
    return {
        "records": [one.to_json() for one in _records([*measured, _gap(measured, len(test))], task)],
        "status": str(result.status),
        "seconds": result.seconds,
        "history": result.history,
        "filters": filters.tolist(),
    }


def smoothness(filters: Tensor) -> list[Measurement]:
    """Two numbers of filters (n, H, W): white noise has 1.13 and 0.20; of filters that are not finite there are none.

    The *total variation* is the mean step from a weight to its neighbours, over the root mean square of the filter's
    weights. The *low-frequency share* is that of the energy of its Fourier transform below 0.25 cycles per pixel, half
    of what pixels can show. Both are means over the filters that are not 0.
    """
    some = filters.double()[filters.flatten(1).ne(0).any(dim=1)]
    if not len(some) or not bool(some.isfinite().all()):
        return []
    steps = torch.cat([some.diff(dim=1).flatten(1), some.diff(dim=2).flatten(1)], dim=1).abs().mean(dim=1)
    variation = steps / some.flatten(1).square().mean(dim=1).sqrt()
    energy = torch.fft.fft2(some, s=(64, 64)).abs().square()
    frequency = torch.fft.fftfreq(64, dtype=torch.float64)
    low = torch.hypot(frequency[:, None], frequency[None]) < 0.25
    share = energy[:, low].sum(dim=1) / energy.flatten(1).sum(dim=1)
    count = len(some)
    return [
        Measurement("filters", "total_variation", float(variation.mean()), "", count, better="neither"),
        Measurement(
            "filters", "low_frequency_share", float(share.mean()), "fraction", count, better="neither"
        ),
    ]


def _gap(measured: Iterable[Measurement], count: int) -> Measurement:
    """How much more often test images are wrong than training images."""
    errors = {m.context["split"]: m.value for m in measured if (m.audit, m.name) == ("accuracy", "error")}
    return Measurement(
        "accuracy", "error_gap", errors["test"] - errors["train"], "fraction", count, better="lower"
    )


def attacked_network(task: Tree, root: str | None, folder: str) -> Tree:
    """How far images must change until the network predicts the next class with 95 % confidence, and until it is wrong.

    The ascent's steps are one grey level long (``grey_levels``), along the gradient of the target's log probability, at
    the temperature at which the median test image has 95 % confidence; targets are cyclic. Also the nearest wrong image
    that a search finds, of those that are right.

    Args:
        task: As `networks.trained` takes it, with ``images``, how many, ``grey_levels``, the length of a step of
            the ascent, ``ascent``, how many of them at most, and ``search``, the steps of the search.
        root: Where the dataset's files are.
        folder: Where networks are kept.

    Returns:
        ``records``; ``lengths`` of both kinds, image by image, None where the target was not reached, or the image was
        wrong from the start; and ``sheet``. Of a network whose answers are no numbers there is none of these.
    """
    result, _, test = trained(task, root, folder)
    model = result.model
    some = fixed_images(test, task["images"], derived_seed(0, "tanay-2018"))  # the same for all networks
    logits = _logits(model, test)
    if not bool(logits.isfinite().all()):  # diverged: nothing to attack
        return {"records": [], "lengths": None, "sheet": None}
    temperature = calibrated_temperature(logits, CONFIDENCE)
    ascent = TargetedAscent(
        confidence=CONFIDENCE, step=task["grey_levels"] / 255, steps=task["ascent"], temperature=temperature
    )
    hit = ascent(model, some.images, some.labels)
    near = MinimumNorm(norm=2.0, steps=task["search"])(model, some.images, some.labels)
    numbers = [
        Measurement(
            AUDIT, "reached", float(hit.success.double().mean()), "fraction", len(some), better="higher"
        ),
        Measurement(AUDIT, "temperature", temperature, "", len(test), better="neither"),
    ]
    with evaluating(model):
        sheet = change_sheet(AUDIT, model, some, hit.images, hit.distance, temperature)
    lengths = {
        "norm_at_confidence": _where(hit.distance, hit.success),
        "minimum_norm": _where(near.distance, near.success & (near.distance > 0)),
    }
    records = [one.to_json() for one in _records(numbers, task)]
    return {"records": records, "lengths": lengths, "sheet": sheet.columns}


def paired_lengths(found: Mapping[str, Tree], tasks: Mapping[str, Tree]) -> list[Record]:
    """Mean lengths of high and low decay over the same images: those for which both networks have one of each kind.

    Args:
        found: What `attacked_network` made of each task.
        tasks: The tasks; a pair are those that differ in their decay alone.

    A network without its counterpart, or whose counterpart diverged, has the mean of its own.
    """
    pairs: dict[tuple[str, int], list[str]] = {}
    for name, tree in found.items():
        if tree["lengths"] is not None:
            pairs.setdefault((tasks[name]["init"], tasks[name]["seed"]), []).append(name)
    records: list[Record] = []
    for names in pairs.values():
        lengths = {(name, kind): row for name in names for kind, row in found[name]["lengths"].items()}
        common = [k for k, values in enumerate(zip(*lengths.values(), strict=True)) if None not in values]
        if not common:  # a length of 0 would be the nearest of all
            continue
        for (name, measure), row in lengths.items():
            mean = statistics.fmean(row[k] for k in common)
            one = Measurement(AUDIT, measure, mean, "pixel units", len(common), better="higher")
            records += _records([one], tasks[name])
    return records


def errors_on_the_way(found: Mapping[str, Tree], tasks: Mapping[str, Tree]) -> list[Record]:
    """Training and test errors after each of the landmarks, from how errors went.

    Args:
        found: What `measured_network` made of each task.
        tasks: The tasks.
    """
    records = []
    for name, tree in found.items():
        last = [Record.from_json(row).measurement for row in tree["records"]]
        shown = {m.context["split"]: m.n for m in last if (m.audit, m.name) == ("accuracy", "error")}
        shown["train"] = min(shown["train"], CLASSES * WATCHED)
        errors = [
            Measurement("accuracy", "error_after", row[f"{split}_error"], "fraction", n, better="lower",
                        context={"split": split, "epoch": row["epoch"]})
            for row in tree["history"] if row["epoch"] in LANDMARKS for split, n in shown.items()
        ]  # fmt: skip
        records += _records(errors, tasks[name])
    return records


def _where(values: Tensor, counted: Tensor) -> list[float | None]:
    return [float(value) if one else None for value, one in zip(values, counted.tolist(), strict=True)]


def _records(measurements: Iterable[Measurement], task: Tree) -> list[Record]:
    method = next(name for name, decay in DECAYS.items() if decay == task["decay"])
    return [
        Record(task["dataset"], method, task["seed"], replace(m, context={**m.context, "init": task["init"]}))
        for m in measurements
    ]


def _logits(model: Classifier, data: ImageSet) -> Tensor:
    with evaluating(model):
        return torch.cat([model(part) for part in data.images.split(512)])


# The pictures of LeNet: errors by epoch, first filters, and images next to their adversarial versions.

GAP = 2  # pixels between images
ERRORS = ("test_error", "train_error")


def error_curves(networks: Mapping[tuple[str, str], Sequence[Tree]]) -> Figure:
    """Test errors (solid) and training errors (dashed) after every epoch, a colour for each method and init.

    Args:
        networks: What `measured_network` found, a list over seeds, by (method, init).
    """
    figure, axes = page_figure((7.2, 4.2))
    for index, ((method, init), found) in enumerate(networks.items()):
        for place, one in enumerate(found):
            label = f"{method}, init {init}" if place == 0 else "_"
            epochs = [row["epoch"] for row in one["history"]]
            for column, dashed in zip(ERRORS, (False, True), strict=True):
                axes.plot(
                    epochs, [100 * row[column] for row in one["history"]], color=series(index), alpha=0.85,
                    linewidth=1.1, linestyle="--" if dashed else "-", label="_" if dashed else label,
                )  # fmt: skip
    axes.set_ylim(0, _highest(networks))
    axes.set_xlabel("epoch", color=INK)
    axes.set_ylabel("wrong, %; dashed on training images", color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    draw_legend(axes)
    return figure


def _highest(networks: Mapping[tuple[str, str], Sequence[Tree]]) -> float:
    """6 % as in the article, or what holds the last error of every network."""
    last = [
        row[name]
        for found in networks.values()
        for one in found
        for row in one["history"][-1:]
        for name in ERRORS
    ]
    return max(6.0, 110 * max(last, default=0.0))


def filters(networks: Mapping[tuple[str, str], Sequence[Tree]]) -> Figure:
    """The filters of the first convolution of each first seed, each row with its own scale."""
    rows = {key: np.array(found[0]["filters"]) for key, found in networks.items() if found}
    figure = Figure(figsize=(9.0, 0.9 * len(rows)), layout="constrained")
    cells = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    for axes, ((method, init), row) in zip(cells, rows.items(), strict=True):
        most = np.abs(row[np.isfinite(row)]).max(initial=0.0) or 1.0
        axes.imshow(_side_by_side(row, np.nan), cmap="gray", vmin=-most, vmax=most, interpolation="nearest")
        axes.set_title(f"{method}, init {init}, up to {most:.2g}", fontsize=8, loc="left", color=PAGE_INK)
        axes.set_axis_off()
    return figure


def contact_sheet(sheet: Tree, title: str) -> Figure:
    """Three rows: images, what they became, each with its confidence, and the change with its norm.

    Args:
        sheet: Of one network, as `attacked_network` gives it.
        title: Whose it is.
    """
    figure = drawn_sheet(sheet, PAGE_INK)
    figure.suptitle(title, fontsize=10, color=PAGE_INK)
    return figure


def _side_by_side(images: np.ndarray, between: float) -> np.ndarray:
    """(n, H, W) as one picture; drawn as one, because an axes for each takes seconds."""
    return np.concatenate(
        [np.pad(image, ((0, 0), (0, GAP)), constant_values=between) for image in images], axis=1
    )


# The ledger of LeNet: what was trained, tables of errors, sizes and norms over seeds, and pictures.

INITS = {"mnist": ("he", "small"), "fashion-mnist": ("he",)}  # the claims are about "he"


@dataclass(frozen=True)
class LeNetSettings:
    """What can be changed; about a quarter of an hour of processor time for each network.

    Args:
        epochs: The article's.
        per_class: Training images of each class, the first ones; the article says nothing.
        batch_size: The article's.
        lr: The article's, for pixels of 0 to 255.
        clip_norm: Longer gradients are shortened to it. Not in the article; without it the larger first weights
            of three of five seeds diverge here within thirty steps. Later gradients are shorter.
        images: Test images that are attacked.
        grey_levels: L2 length of a step of the ascent, of 255; the article's.
        ascent: Steps of the ascent, at most.
        search: Steps of the search for the nearest wrong image.
    """

    epochs: int = 50
    per_class: int = 5000
    batch_size: int = 300
    lr: float = 5e-4
    clip_norm: float | None = 50.0
    images: int = 200
    grey_levels: float = 1.0
    ascent: int = 5000
    search: int = 100


LAYERS = (
    ("Conv1", "1", ".04 / .03"),
    ("Conv2", "2", ".04 / .005"),
    ("FC1", "3", ".02 / .001"),
    ("FC2", "4", ".5 / .01"),
)
NETWORK_ROWS = (
    SeedRow("wrong on training images", "accuracy", "error", {"split": "train"}, "0 % / 1.2 %, low / high"),
    SeedRow("wrong on test images", "accuracy", "error", {"split": "test"}, "1.6 % / 1.2 %"),
    SeedRow("more often than on training images", "accuracy", "error_gap", {}, "1.6 % / 0 %"),
    *(
        SeedRow(f"RMS of {name}", "weight_scale", "weight_rms", {"layer": k}, quoted)
        for name, k, quoted in LAYERS
    ),
    SeedRow("total variation of Conv1's filters (white noise: 1.13)", "filters", "total_variation"),
    SeedRow("share of their energy at low frequencies (white noise: 20 %)", "filters", "low_frequency_share"),
    SeedRow("size of the logits", "weight_scale", "logit_scale"),
    SeedRow("calibration temperature", "weight_scale", "temperature", {"by": "likelihood"}),
    SeedRow("training images still active", "weight_scale", "active_share"),
)
NORM = SeedRow("L2 norm at 95 % for the next class", AUDIT, "norm_at_confidence", {}, "1.77 / 5.75")
NEAREST = SeedRow("L2 norm of the nearest mistake found", AUDIT, "minimum_norm")
ATTACK_ROWS = (
    SeedRow("temperature for a median confidence of 95 %", AUDIT, "temperature"),
    NORM,
    SeedRow("images that reached it", AUDIT, "reached"),
    NEAREST,
)


def about(settings: LeNetSettings) -> str:
    """How the networks were trained, and how they began."""
    return (
        f"Trained for {settings.epochs} epochs of batches of {settings.batch_size} on the first "
        f"{settings.per_class:,} images of each class (the article: 50 epochs; the number of images is not stated), "
        f"SGD with momentum 0.9 and learning rate {settings.lr:g} on pixels of 0 to 255 minus the mean image; decay "
        f"coupled, of weights and biases; gradients longer than {settings.clip_norm} are shortened (ours: without that "
        "the larger weights of three of five seeds diverge within thirty steps). Initialisations: "
        "`he`, Conv1 0.01 times normal and the other layers He with fan-out, and, on MNIST alone, `small`, all 0.01 "
        "times normal. Mean ± sd over seeds."
    )


def _columns(tasks: Mapping[str, Tree]) -> dict[str, Column]:
    return {
        f"{method}, {init}": (method, {"init": init}) for init in _inits_of(tasks) for method in (LOW, HIGH)
    }


def _inits_of(tasks: Mapping[str, Tree]) -> list[str]:
    return list(dict.fromkeys(task["init"] for task in tasks.values()))


def network_part(
    found: Mapping[str, Tree] | None, records: Sequence[Record], tasks: Mapping[str, Tree], out: Path
) -> list[str]:
    """Errors and weights: a table, and the pictures of `measured_network`, written into `out`; nothing of None."""
    if found is None:
        return []
    networks = _grouped(found, tasks)
    write_bytes(
        out / "errors.svg", str(as_svg(error_curves(networks), "errors", "Errors epoch by epoch.")).encode()
    )
    write_bytes(out / "filters.png", as_png(filters(networks), 110))
    return [
        "## Errors and weights",
        table(records, NETWORK_ROWS, _columns(tasks)),
        "![Errors after every epoch, test (solid) and training (dashed).](errors.svg)",
        "![Filters of the first convolution, first seed.](filters.png)",
        unfinished(found),
    ]


def attack_part(
    found: Mapping[str, Tree] | None, records: Sequence[Record], tasks: Mapping[str, Tree], out: Path
) -> list[str]:
    """Adversarial images: a table, ratios, and a contact sheet of each first seed, written into `out`."""
    if found is None:
        return []
    sheets = []
    for (method, init), trees in _grouped(found, tasks).items():
        file = f"adversarial-{method}-{init}.png"
        sheet = next((tree["sheet"] for tree in trees if tree["sheet"] is not None), None)
        if sheet is None:
            continue
        write_bytes(out / file, as_png(contact_sheet(sheet, f"{method}, init {init}"), 110))
        sheets.append(
            f"![Images, what became of them, and the change: {method}, init {init}, first seed.]({file})"
        )
    ratios = [
        f"Init {init}, high decay over low: the ascent's length {factor_in_words(records, NORM, *_sides(init))}, the "
        f"nearest mistake's distance {factor_in_words(records, NEAREST, *_sides(init))}."
        for init in _inits_of(tasks)
    ]
    return [
        "## Adversarial images at equal median confidence",
        "The ascent's path is not the shortest: its length is shown with that of the nearest mistake found. Both "
        "are means over the images for which high and low decay of one seed have them: those that reached the "
        "confidence, those that are right. The article's ratio is 3.26, of ten images.",
        table(records, ATTACK_ROWS, _columns(tasks)),
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


SEEDS = 5


def run(request: StudyRequest) -> Path:
    """Train and measure every network, attack it, and write the ledger; what is finished is read back.

    Args:
        request: What was asked for. Seeds are networks of each initialisation and decay, 5 by default.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    needed_data(Recipe(dataset=request.dataset, root=request.root))
    return study(LeNetSettings(), ("lenet", "adversarial"), request, request.out / "networks")


def run_adversarial(request: StudyRequest) -> Path:
    """Only the adversarial images; networks that ``--only lenet`` left in the neighbouring folder are used again.

    Args:
        request: As in `run`.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    needed_data(Recipe(dataset=request.dataset, root=request.root))
    trained = request.out.parent / f"lenet-{request.dataset}" / "networks"
    networks = trained if trained.is_dir() else request.out / "networks"
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
            found[part] = each(given, tasks[part], out / part, request.engine, request.listener)
    records = [
        Record.from_json(row)
        for trees in found.values()
        for tree in trees.values()
        for row in tree["records"]
    ]
    records += errors_on_the_way(found.get("lenet", {}), tasks["lenet"])
    records += paired_lengths(found.get("adversarial", {}), tasks["adversarial"])
    facts = {"dataset": dataset, "seeds": count, "decays": DECAYS, **vars(settings)}
    judged = JudgedStudy(PAPER, parts, dataset)
    findings = [RunFindings(None, tuple(records), ())]
    report = report_with(facts, findings, judged.command(request.seeds))
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
        for seed, init, method in itertools.product(range(seeds), INITS[dataset], (HIGH, LOW))
    }
    return {"lenet": plain, "adversarial": {name: {**task, **attack} for name, task in plain.items()}}
