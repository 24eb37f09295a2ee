"""The search for one setting of every loss besides its learning rate, by error and detection on held-out images.

L-GM is judged by distances to means that it learns, and how near these come to their classes depends on their step
size. So its factor is searched at the study's full length: a short search favours a rate that a long run does not
need. Every other loss gets as many trials, of a setting of its own. Fixed before any trial: the values below, and the
rule of `chosen`. The test set is not read; what was chosen is written into ``learning_rates.toml`` by hand.
"""

import csv
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from clearance.research import Recipe, RunFindings, plans_of, write_bytes
from papers.engine.catalogue import with_settings
from papers.engine.ledger import measured
from papers.engine.study import StudyRequest, needed_data
from papers.wan_2018.protocol import PROTOCOLS, base_recipe
from papers.wan_2018.verification import ATTACKED, AUDIT, CURVE, own_score

HELD_OUT = 0.25
ALLOWED = 0.005  # more held-out error than the method's lowest: half a point, three of digits' 650 answers
DECAYS, FACTORS = (0.0001, 0.0003, 0.001, 0.003), (0.3, 1.0, 3.0, 10.0)
SETTING: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "softmax": ("weight_decay", DECAYS),
    "center": ("weight", (0.003, 0.01, 0.03, 0.1)),
    "l-softmax": ("weight_decay", DECAYS),
    "gm": ("means_lr", FACTORS),
    "lgm": ("means_lr", FACTORS),
}


@dataclass(frozen=True)
class Tried:
    """A trial; its error and area are means over seeds.

    Args:
        method: The method.
        value: Of its setting.
        own_error: Of its own head, on the held-out images; 1 where a run failed.
        area: Under the ROC curve of its own likelihood against FGSM, mean over the radii; 0 where a run failed.
        statuses: How the runs ended.
    """

    method: str
    value: float
    own_error: float
    area: float
    statuses: tuple[str, ...]


def chosen(trials: Sequence[Tried], method: str) -> Tried:
    """Of a method's trials within `ALLOWED` of its lowest error, the one with the largest area.

    >>> trials = [Tried("lgm", 1.0, 0.010, 0.6, ()), Tried("lgm", 3.0, 0.014, 0.9, ()),
    ...           Tried("lgm", 10.0, 0.020, 0.95, ())]
    >>> chosen(trials, "lgm").value
    3.0
    """
    own = [trial for trial in trials if trial.method == method]
    limit = min(trial.own_error for trial in own) + ALLOWED
    return max((trial for trial in own if trial.own_error <= limit), key=lambda trial: trial.area)


def candidates(dataset: str, root: str | None = None, seeds: int | None = None) -> Recipe:
    """Every trial as a method of one recipe, of the study's full length, audited on held-out training images.

    Args:
        dataset: digits or mnist.
        root: The folder that holds its files.
        seeds: Runs of each trial; those of the protocol by default.

    >>> list(candidates("digits").methods)[-4:]
    ['lgm means_lr=0.3', 'lgm means_lr=1', 'lgm means_lr=3', 'lgm means_lr=10']
    """
    varied = PROTOCOLS[dataset]
    start = base_recipe(dataset, root, varied.search_seeds if seeds is None else seeds)
    radii: dict[str, Any] = {"epsilons": list(varied.epsilons), "adaptive": []}
    return dataclasses.replace(
        start,
        held_out=HELD_OUT,
        audits=("accuracy", AUDIT),
        audit_settings={AUDIT: radii},
        methods={
            label: with_settings(start.methods[name], settings)
            for label, (name, settings) in _labelled().items()
        },
    )


def _labelled() -> dict[str, tuple[str, dict[str, float]]]:
    """Method and settings of every trial, by the trial's name."""
    return {
        f"{name} {setting}={value:g}": (name, {setting: value})
        for name, (setting, values) in SETTING.items()
        for value in values
    }


def run(request: StudyRequest) -> Path:
    """Search, and write what was tried and what is chosen.

    Args:
        request: What was asked for. Seeds are runs of each trial, those of the protocol by default.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    recipe = candidates(request.dataset, request.root, request.seeds)
    data = needed_data(recipe)
    plans = plans_of(recipe)
    found = request.grid(plans, data)
    trials = [
        tried(name, settings, [one for plan, one in zip(plans, found, strict=True) if plan.method == label])
        for label, (name, settings) in _labelled().items()
    ]
    return write_trials(trials, request.dataset, request.out)


def tried(name: str, settings: Mapping[str, float], runs: Sequence[RunFindings]) -> Tried:
    """What a trial of a method came to.

    Args:
        name: The method.
        settings: What is tried.
        runs: One for each seed.
    """
    setting = SETTING[name][0]
    area = {**ATTACKED, "score": own_score(name)}
    return Tried(
        name,
        settings[setting],
        fmean(_mean(one, "accuracy", "error", {"split": "test"}, 1.0) for one in runs),
        fmean(_mean(one, AUDIT, CURVE, area, 0.0) for one in runs),
        tuple("" if one.note is None else one.note.status for one in runs),
    )


def _mean(run: RunFindings, audit: str, name: str, context: Mapping[str, Any], failed: float) -> float:
    """The mean of a run's numbers with these settings; `failed` where there is none."""
    found = [record.measurement.value for record in measured(run.records, audit, name, context)]
    return fmean(found) if found else failed


def write_trials(trials: Sequence[Tried], dataset: str, out: Path) -> Path:
    """Write ``search-all.csv``, and ``search.md`` with what is chosen; the path of the latter."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "search-all.csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["method", "setting", "value", "own_error", "auroc", "statuses"])
        lines.writerows(
            [t.method, SETTING[t.method][0], t.value, t.own_error, t.area, "; ".join(t.statuses)]
            for t in trials
        )
    best = {name: chosen(trials, name) for name in SETTING}
    table = ["| method | setting | own error | area under the ROC curve |", "|---|---|---|---|"]
    toml = [f"[{dataset}.all]"]
    for name, trial in best.items():
        setting = SETTING[name][0]
        numbers = f"{100 * trial.own_error:.2f} % | {100 * trial.area:.1f} %"
        table.append(f"| {name} | {setting} {trial.value:g} | {numbers} |")
        lr = base_recipe(dataset).methods[name].lr
        toml.append(f'"{name}" = {{ lr = {lr!r}, {setting} = {trial.value!r} }}')
    text = [f"# Settings on {dataset}", "\n".join(table), "```toml\n" + "\n".join(toml) + "\n```"]
    path = out / "search.md"
    write_bytes(path, ("\n\n".join(text) + "\n").encode())
    return path
