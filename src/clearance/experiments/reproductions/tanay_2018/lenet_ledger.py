"""The ledger of LeNet: what was trained, tables of errors, sizes and norms over seeds, and pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearance._files import write_bytes
from clearance.experiments.reproductions.tanay_2018.lenet_numbers import AUDIT, DECAYS, HIGH, LOW
from clearance.experiments.reproductions.tanay_2018.lenet_pictures import (
    as_png,
    contact_sheet,
    error_curves,
    filters,
)
from clearance.experiments.reproductions.tanay_2018.seed_tables import (
    Column,
    Quantity,
    factor_in_words,
    table,
    unfinished,
)
from clearance.records import Record
from clearance.report.svg import as_svg

INITS = ("he", "small")
Tree = dict[str, Any]


@dataclass(frozen=True)
class LeNetSettings:
    """What can be changed; the defaults are those of the ledger, within an hour on two cores.

    Args:
        epochs: 50 in the article.
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

    epochs: int = 25
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
    Quantity("wrong on training images", "accuracy", "error", {"split": "train"}, "0 % / 1.2 %, low / high"),
    Quantity("wrong on test images", "accuracy", "error", {"split": "test"}, "1.6 % / 1.2 %"),
    Quantity("more often than on training images", "accuracy", "error_gap", {}, "1.6 % / 0 %"),
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


def about(settings: LeNetSettings) -> str:
    """How the networks were trained, and how they began."""
    return (
        f"Trained for {settings.epochs} epochs of batches of {settings.batch_size} on the first "
        f"{settings.per_class:,} images of each class (the article: 50 epochs; the number of images is not stated), "
        f"SGD with momentum 0.9 and learning rate {settings.lr:g} on pixels of 0 to 255 minus the mean image; decay "
        f"coupled, of weights and biases; gradients longer than {settings.clip_norm} are shortened (ours: without that "
        "the larger weights of three of five seeds diverge within thirty steps). Initialisations: "
        "`he`, Conv1 0.01 times normal and the other layers He with fan-out, and `small`, all 0.01 times normal. "
        "Mean ± sd over seeds."
    )


def _columns() -> dict[str, Column]:
    return {f"{method}, {init}": (method, {"init": init}) for init in INITS for method in (LOW, HIGH)}


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
    write_bytes(out / "filters.png", as_png(filters(networks)))
    return [
        "## Errors and weights",
        table(records, NETWORK_ROWS, _columns()),
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
        write_bytes(out / file, as_png(contact_sheet(sheet, f"{method}, init {init}")))
        sheets.append(
            f"![Images, what became of them, and the change: {method}, init {init}, first seed.]({file})"
        )
    ratios = [
        f"Init {init}, high decay over low: the ascent's length {factor_in_words(records, NORM, *_sides(init))}, the "
        f"nearest mistake's distance {factor_in_words(records, NEAREST, *_sides(init))}."
        for init in INITS
    ]
    return [
        "## Adversarial images at equal median confidence",
        "The ascent's path is not the shortest: beside its length stands the nearest mistake that a search found. Both "
        "are means over the images for which high and low decay of one seed have them: those that reached the "
        "confidence, those that are right. The article's ratio is 3.26, of ten images.",
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
