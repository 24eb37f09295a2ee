"""What a few epochs of fine-tuning changed, with its cost, as Markdown and JSON."""

import dataclasses
from pathlib import Path

from clearance.experiments.reproductions.study_ledger import (
    COST,
    OWN_HEAD,
    Quantity,
    cost_in_words,
    in_words,
    provenance,
    save,
    table,
)
from clearance.records import Report
from clearance.report.numbers import printed

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
        "# sato-2019: fine-tuning a plainly trained network",
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
        + "; ".join(_told(trial, report) for trial in tried)
        + ".",
    ]
    told = [dataclasses.asdict(t) for t in tried]
    text = "\n\n".join(lines)
    return save(report, text, [*rows, *COST], (BEFORE, SAME_COST, SAME_STEPS), out, epochs=epochs, tried=told)


def _told(trial: Tried, report: Report) -> str:
    chosen = " (chosen)" if report.recipe["methods"][trial.way]["lr"] == trial.lr else ""
    return f"{trial.way}, lr {trial.lr:g}: {printed(trial.error, 'fraction')}{chosen}"


def _quantities(report: Report) -> list[Quantity]:
    """Every head on every number of images that was measured."""
    sizes = sorted(
        {
            r.measurement.context["samples"]
            for r in report.records
            if (r.measurement.audit, r.measurement.name) == ("co_adaptation", "error")
        }
    )
    return [
        Quantity(f"{head} head, {size} images", "co_adaptation", context={"head": head, "samples": size})
        for head in HEADS
        for size in sizes
    ]


def _against(report: Report, rival: str, rows: list[Quantity]) -> str:
    """FOCA against a rival on every row, with its cost."""
    cost = cost_in_words(report, FOCA, rival)
    told = [f"- {row.label}: {in_words(report, row, FOCA, rival)}" for row in rows]
    return f"FOCA against `{rival}`" + (f", at {cost}:" if cost else ":") + "\n\n" + "\n".join(told)
