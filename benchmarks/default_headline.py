"""How often the headline of `clearance compare` without options tells the methods apart, over blocks of fresh seeds.

    python benchmarks/default_headline.py --runs FOLDER [--first 200] [--blocks 10] [--methods plain,dropout,lgm,foca]

Each block is a comparison of its own, with the settings of the command and as many seeds; no seed is in two blocks, nor
was it used to choose the settings (those had 2000 to 2005). Measured are errors with own last layers, and of layers
retrained on one image per digit; not those of the later cut, which the command's headline also names. One process, one
thread; finished runs in FOLDER are read back. Prints each block's errors, adjusted p values and headline, then the
counts.
"""

import argparse
import dataclasses
from collections import Counter
from pathlib import Path

import torch

from clearance.cli._options import DEFAULT_METHODS
from clearance.experiments.build import build_data
from clearance.experiments.grid import run_grid
from clearance.experiments.provenance import report_of
from clearance.experiments.recipe import Recipe, tuned_recipe
from clearance.experiments.run import RunPlan
from clearance.report.findings import Findings, claimed
from clearance.report.first_screen import first_screen


def headline_recipe(methods: list[str], draws: int | None = None) -> Recipe:
    """The default recipe with the two audits that the headline reads, and of the second only the first size."""
    start = tuned_recipe("digits")
    settings = dict(start.audit_settings["co_adaptation"])
    repetitions = settings["repetitions"][:1] if draws is None else [draws]
    settings |= {"per_class": settings["per_class"][:1], "repetitions": repetitions, "all_images": False}
    return dataclasses.replace(
        start,
        methods={name: start.methods[name] for name in methods},
        audits=("accuracy", "co_adaptation"),
        audit_settings={"co_adaptation": settings},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--first", type=int, default=200)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--methods", default=DEFAULT_METHODS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    recipe = headline_recipe(given.methods.split(","))
    data = build_data(recipe)
    counts: Counter[str] = Counter()
    for block in range(given.blocks):
        first = given.first + block * recipe.seeds
        plans = [
            RunPlan(recipe, name, seed)
            for seed in range(first, first + recipe.seeds)
            for name in recipe.methods
        ]
        findings = Findings(report_of(recipe, run_grid(plans, data, given.runs, None), ""), "digits")
        print(f"seeds {first} to {first + recipe.seeds - 1}")
        for name in findings.methods:
            own, few, row = findings.own_error(name), findings.few_error(name), findings.compared(name)
            assert own is not None
            assert few is not None
            text = f"  {name:12} own {100 * own.value:5.2f} %  one image {100 * few.value:6.2f} %"
            if row is not None:
                counts[f"{name} {claimed(row)}"] += 1
                text += f"  adjusted p {row.adjusted:.2g}: {claimed(row)}"
            print(text)
        print(f"  {first_screen(findings).sentence.striptags()}", flush=True)
    for outcome, count in sorted(counts.items()):
        print(f"{outcome}: {count} of {given.blocks}")


if __name__ == "__main__":
    main()
