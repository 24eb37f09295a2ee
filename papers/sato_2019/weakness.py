"""How weak FOCA's heads must be: their images, steps and decay, the extractor's max-norm, and reuse, on digits.

The paper trains each weak head on few images for few steps and does not say what happens otherwise. Here FOCA
is trained under many settings, one short run a seed, and plain training once, with which time and memory are
compared; no choice is made and no claim is judged.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearance import Method
from clearance.research import (
    THIN,
    Outcome,
    Recipe,
    Report,
    SeedSummary,
    build_data,
    markdown_table,
    plans_of,
    report_of,
    summarise,
)
from papers.engine.catalogue import paper_recipe
from papers.engine.ledger import (
    COST,
    TableRow,
    cost_cells,
    in_unit,
    mean_and_spread,
    provenance,
    report_in,
    save,
)
from papers.engine.study import StudyRequest

PER_CLASS = (1, 3, 10, 30, 100)
HEAD_STEPS = (8, 32, 128)
CHANGES: dict[str, dict[str, Any]] = {
    "decay 0": {"head_decay": 0.0},
    "max-norm 1": {"max_norm": 1.0},
    "max-norm 4": {"max_norm": 4.0},
    "reuse 8": {"reuse": 8},
}
LARGE_BATCH = (100, 20)  # "a large batch and some 20 iterations" (section 2.2): most of the training images
EPOCHS = 10  # a sixth of the recipe's, so that 75 runs stay within an hour on two cores
SEEDS = 3
BASELINE = "plain"
COMMAND = "python -m papers sato_2019 --only weakness"
HEADER = (
    "setting", "runs", "collapsed", "other failures", "one-image error", "own error",
    "training time, plain = 1×", "memory that training adds, plain = 1×",
)  # fmt: skip


ERRORS = (
    TableRow("one-image error", "co_adaptation", context={"head": "retrained", "samples": 10}),
    TableRow("own error", "accuracy", context={"split": "test"}),
)


def weakness_recipe(seeds: int | None = None) -> Recipe:
    """The comparison: plain training and FOCA of the digits recipe under every setting, for fewer epochs.

    Each of images and steps with each other; the paper's other way, a large batch and 20 steps; then, at 1 and 10
    images and 32 steps, one change at a time: no decay of the head's weights, max-norm on the extractor, eight steps
    with the same head.

    >>> len(weakness_recipe().methods)
    25
    """
    start = paper_recipe("sato_2019", "digits")
    foca = start.methods["foca"]

    def method(per_class: int, steps: int = 32, **changes: Any) -> Method:
        return dataclasses.replace(foca, per_class=per_class, head_steps=steps, **changes)

    methods = {BASELINE: start.methods[BASELINE]}
    methods |= {f"k={k}, S={steps}": method(k, steps) for k in PER_CLASS for steps in HEAD_STEPS}
    k, steps = LARGE_BATCH
    methods[f"k={k}, S={steps}"] = method(k, steps)
    for k in (1, 10):
        methods |= {f"k={k}, S=32, {name}": method(k, **change) for name, change in CHANGES.items()}
    return dataclasses.replace(
        start,
        epochs=EPOCHS,
        seeds=SEEDS if seeds is None else seeds,
        audits=("accuracy", "co_adaptation"),
        audit_settings={"co_adaptation": {"per_class": [1], "repetitions": [50], "all_images": False}},
        methods=methods,
    )


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: What was asked for. Seeds are runs of each setting, 3 by default.
    """
    recipe = weakness_recipe(request.seeds)
    findings = request.grid(plans_of(recipe), build_data(recipe))
    report = report_of(recipe, findings, request.command(COMMAND))
    report.save(request.out)  # no page: it would have a column for each setting
    return write_ledger(report, request.out)


def write_ledger(report: Report, out: Path) -> Path:
    """Write ``ledger.md`` and ``ledger.json`` of a report of this study; the path of the first."""
    lines = [
        "# sato_2019: how weak FOCA's heads must be",
        provenance(report),
        f"Digits, {EPOCHS} epochs; k images of each class and S steps for a weak head. Mean ± sd over seeds; "
        "costs are factors of plain training's under the same seeds, with 95 % intervals.",
        _table(report),
    ]
    return save(report, "\n\n".join(lines), (*ERRORS, *COST), (BASELINE,), out)


def passages_in(tree: Mapping[str, Any], _folder: Path) -> list[str]:
    """The table of a committed ledger, from its values."""
    return [_table(report_in(tree, "digits"))]


def _table(report: Report) -> str:
    return markdown_table([HEADER, *(_row(report, name) for name in report.methods)]).replace(THIN, " ")


def _row(report: Report, name: str) -> Sequence[str]:
    outcomes = [note.outcome for note in report.runs if note.method == name]
    collapsed = outcomes.count(Outcome.COLLAPSED)
    failed = len(outcomes) - collapsed - outcomes.count(Outcome.FINISHED)
    errors = [row.of(report, name) for row in ERRORS]
    return (
        name,
        str(len(outcomes)),
        in_unit(collapsed / max(len(outcomes), 1), "fraction"),
        str(failed),
        *(_shown(summarise(values)) if values else "–" for values in errors),
        *cost_cells(report, name, BASELINE),
    )


def _shown(over: SeedSummary) -> str:
    return mean_and_spread(over.mean, over.spread, "fraction")
