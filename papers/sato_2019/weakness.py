"""How weak FOCA's heads must be: their images, steps and decay, the extractor's max-norm, and reuse, on digits.

The paper trains each weak head on few images for few steps and does not say what happens otherwise. Here FOCA
is trained under many settings, one short run a seed, and plain training once, with which time and memory are
compared; no choice is made and no claim is judged.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearance import Method
from clearance.research import (
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
    by_seed,
    cost_cells,
    in_unit,
    made_from,
    mean_and_spread,
    versions_in_words,
    write_ledger_files,
)
from papers.engine.study import StudyRequest

PER_CLASS = (1, 3, 10, 30, 100)
HEAD_STEPS = (8, 32, 128)
CHANGES: dict[str, dict[str, Any]] = {
    "decay 0": {"head_decay": 0.0},
    "max-norm 4": {"max_norm": 4.0},
    "reuse 8": {"reuse": 8},
}
EPOCHS = 10  # a sixth of the recipe's, so that 66 runs stay within an hour on two cores
SEEDS = 3
BASELINE = "plain"
COMMAND = "python -m papers sato_2019 --only weakness"
HEADER = (
    "setting", "runs", "collapsed", "other failures", "one-image error", "own error",
    "training time, plain = 1×", "memory that training adds, plain = 1×",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Setting:
    """What became of FOCA under one setting, or of plain training, over its seeds.

    Args:
        name: The setting.
        runs: How many runs there were.
        collapsed: How many ended with all features equal or at chance.
        failed: How many ended otherwise before their time.
        one_image_error: Of heads retrained on one image of each class; None where nothing was measured.
        own_error: Of the model's own head.
        seconds: Of training.
        values: Each of the three under each seed.
    """

    name: str
    runs: int
    collapsed: int
    failed: int
    one_image_error: SeedSummary | None
    own_error: SeedSummary | None
    seconds: SeedSummary | None
    values: dict[str, dict[int, float]]


def weakness_recipe(seeds: int | None = None) -> Recipe:
    """The comparison: plain training and FOCA of the digits recipe under every setting, for fewer epochs.

    Each of images and steps with each other; then, at 1 and 10 images and 32 steps, one change at a time: no
    decay of the head's weights, max-norm on the extractor, eight steps with the same head.

    >>> len(weakness_recipe().methods)
    22
    """
    start = paper_recipe("sato_2019", "digits")
    foca = start.methods["foca"]

    def method(per_class: int, steps: int = 32, **changes: Any) -> Method:
        return dataclasses.replace(foca, per_class=per_class, head_steps=steps, **changes)

    methods = {BASELINE: start.methods[BASELINE]}
    methods |= {f"k={k}, S={steps}": method(k, steps) for k in PER_CLASS for steps in HEAD_STEPS}
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
    report.save(request.out)  # no page: it would have a column for each of 22 settings
    return write_ledger(report, request.out)


def write_ledger(report: Report, out: Path) -> Path:
    """Write ``ledger.md`` and ``ledger.json`` of a report of this study; the path of the first."""
    settings = settings_of(report)
    origin = {"command": report.command, "created": report.created, "versions": report.versions}
    origin |= made_from(report)
    rows = {**origin, "settings": [dataclasses.asdict(setting) for setting in settings]}
    return write_ledger_files(out, _markdown(report, settings), rows)


def settings_of(report: Report) -> tuple[Setting, ...]:
    """One row for each setting, from the records alone."""
    return tuple(_setting(report, name) for name in report.methods)


def _setting(report: Report, name: str) -> Setting:
    outcomes = [note.outcome for note in report.runs if note.method == name]
    collapsed = sum(outcome is Outcome.COLLAPSED for outcome in outcomes)
    values = {
        "one_image_error": by_seed(report.records, name, "co_adaptation", "error", {"head": "retrained"}),
        "own_error": by_seed(report.records, name, "accuracy", "error", {"split": "test"}),
        "seconds": by_seed(report.records, name, "training", "seconds"),
    }
    over = {key: summarise(found) if found else None for key, found in values.items()}
    return Setting(
        name,
        len(outcomes),
        collapsed,
        sum(outcome is not Outcome.FINISHED for outcome in outcomes) - collapsed,
        **over,
        values=values,
    )


def _markdown(report: Report, settings: Sequence[Setting]) -> str:
    lines = [
        "# sato_2019: how weak FOCA's heads must be",
        f"Made by `{report.command}`, {report.created}. Versions: {versions_in_words(report)}.",
        f"Digits, {EPOCHS} epochs; k images of each class and S steps for a weak head. Mean ± sd over seeds; "
        "costs are factors of plain training's under the same seeds, with 95 % intervals.",
        markdown_table(_rows(report, settings)),
    ]
    return "\n\n".join(lines) + "\n"


def _rows(report: Report, settings: Sequence[Setting]) -> list[Sequence[str]]:
    rows = [(*_row(setting), *cost_cells(report, setting.name, BASELINE)) for setting in settings]
    return [HEADER, *rows]


def _row(setting: Setting) -> Sequence[str]:
    return (
        setting.name,
        str(setting.runs),
        in_unit(setting.collapsed / max(setting.runs, 1), "fraction"),
        str(setting.failed),
        _shown(setting.one_image_error, "fraction"),
        _shown(setting.own_error, "fraction"),
    )


def _shown(over: SeedSummary | None, unit: str) -> str:
    return "–" if over is None else mean_and_spread(over.mean, over.spread, unit)
