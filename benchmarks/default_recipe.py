"""The trials that the settings of `clearance compare` on digits were chosen by; writes default_recipe.csv.

    python benchmarks/default_recipe.py --runs FOLDER

A quarter of the training images is held out and measured on; the test images are not read. Seeds 2003 to 2005, which
are used nowhere else. Chosen: 12 epochs, so that five seeds of the default methods take about 100 seconds on two cores
of a slow machine (with 25 they took twice as long; 10 would be nearly as good); of the learning rates the smallest
within a tenth of a point of the lowest error from one image; of FOCA's heads those with the least work, heads x
head_steps / reuse, within a tenth of a point. FOCA had 24 trials, other methods three to five. The seconds are those of
a machine with both cores busy. Two processes, one thread each; finished runs in FOLDER are read back.
"""

import argparse
import csv
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from default_headline import headline_recipe

from clearance.experiments.build import build_data
from clearance.experiments.grid import run_grid
from clearance.experiments.recipe import Recipe, tuned_recipe
from clearance.experiments.run import RunFindings, RunPlan

SEEDS = (2003, 2004, 2005)
DRAWS = 50  # of one image of each class
EPOCHS = 12
LONGER_AND_SHORTER = (25, 16, 10, 8)
RATES = {
    "plain": (0.1, 0.2, 0.4, 0.8),
    "noisy": (0.2, 0.4, 0.8),
    "dropout": (0.1, 0.2, 0.4, 0.8),
    "batchnorm": (0.8, 1.6, 3.2),
    "hinge": (0.05, 0.1, 0.2, 0.4),
    "large-margin": (0.1, 0.2, 0.4),
    "lgm": (0.025, 0.05, 0.1, 0.2, 0.4),
    "center": (0.05, 0.1, 0.2, 0.4),
    "l-softmax": (0.1, 0.2, 0.4, 0.8),
    "contrastive": (0.05, 0.1, 0.2, 0.4),
    "triplet": (0.05, 0.1, 0.2, 0.4),
}
DEFAULTS = {"plain": (0.4, 0.8), "dropout": (0.4, 0.8), "lgm": (0.1, 0.2), "foca": (0.1, 0.2)}
WEAK_HEADS = (
    {"heads": 4, "reuse": 8, "head_steps": 16},
    {"heads": 8, "reuse": 8, "head_steps": 16},
    {"heads": 4, "reuse": 4, "head_steps": 16},
    {"heads": 8, "reuse": 4, "head_steps": 16},
    {"heads": 4, "reuse": 8, "head_steps": 32},
    {"heads": 4, "reuse": 16, "head_steps": 32},
)


def trials() -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Method, epochs and changed settings of every trial."""
    for epochs in LONGER_AND_SHORTER:
        for name, pair in DEFAULTS.items():
            heads = WEAK_HEADS[0] if name == "foca" else {}
            yield from ((name, epochs, {"lr": lr, **heads}) for lr in pair)
        yield "foca", epochs, {"lr": 0.4, **WEAK_HEADS[1]}
    for name, rates in RATES.items():
        yield from ((name, EPOCHS, {"lr": lr}) for lr in rates)
    for heads in WEAK_HEADS:
        yield from (("foca", EPOCHS, {"lr": lr, **heads}) for lr in (0.1, 0.2, 0.4, 0.8))


def planned(base: Recipe, name: str, epochs: int, changes: dict[str, Any]) -> list[RunPlan]:
    """The runs of one trial."""
    method = dataclasses.replace(base.methods[name], **changes)
    recipe = dataclasses.replace(base, epochs=epochs, methods={name: method})
    return [RunPlan(recipe, name, seed) for seed in SEEDS]


def mean_of(runs: list[RunFindings], audit: str, name: str) -> float:
    """Mean over seeds of a measurement on the held-out images; of new heads, the retrained ones."""
    found = [record.measurement for run in runs for record in run.records]
    values = [
        m.value
        for m in found
        if (m.audit, m.name) == (audit, name)
        and m.context.get("head", "retrained") == "retrained"
        and m.context.get("split") != "train"
    ]
    assert len(values) == len(SEEDS)
    return fmean(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    folder = parser.parse_args().runs
    base = dataclasses.replace(headline_recipe(list(tuned_recipe("digits").methods), DRAWS), held_out=0.25)
    data = build_data(base)
    rows = []
    for name, epochs, changes in trials():
        runs = run_grid(planned(base, name, epochs, changes), data, folder, 2)
        row = {"method": name, "epochs": epochs, **dict.fromkeys(WEAK_HEADS[0], ""), **changes}
        row["own_error"] = f"{mean_of(runs, 'accuracy', 'error'):.5f}"
        row["one_image_error"] = f"{mean_of(runs, 'co_adaptation', 'error'):.5f}"
        row["seconds"] = f"{mean_of(runs, 'training', 'seconds'):.2f}"
        rows.append(row)
        print(row, flush=True)
    with Path(__file__).with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
