"""The search for a learning rate and one more setting of every loss, by error and by detection on held-out images.

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
from papers.engine.catalogue import paper_recipe, with_settings
from papers.engine.study import NoDataError, StudyRequest, data_if_there
from papers.wan_2018.protocol import PAPER, PROTOCOLS
from papers.wan_2018.verification import ATTACKED, AUDIT, CURVE, own_score

HELD_OUT = 0.25
ALLOWED = 0.005  # more held-out error than the method's lowest: half a point, three of digits' 650 answers
DECAYS, FACTORS = (0.0001, 0.0003, 0.001, 0.003), (0.3, 1.0, 3.0, 10.0)
SECOND: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "softmax": ("weight_decay", DECAYS),
    "center": ("weight", (0.003, 0.01, 0.03, 0.1)),
    "l-softmax": ("weight_decay", DECAYS),
    "gm": ("means_lr", FACTORS),
    "lgm": ("means_lr", FACTORS),
}
# Learning rates: those that `--only search` had chosen, on digits also half and twice as large.
MIDDLE: Mapping[str, Mapping[str, float]] = {
    "digits": {"softmax": 0.025, "center": 0.1, "l-softmax": 0.0125, "gm": 0.025, "lgm": 0.0125},
    "mnist": {"softmax": 0.03, "center": 0.03, "l-softmax": 0.015, "gm": 0.03, "lgm": 0.015},
}
AROUND = {"digits": (0.5, 1.0, 2.0), "mnist": (1.0,)}


@dataclass(frozen=True)
class Tried:
    """A trial; its error and area are means over seeds.

    Args:
        method: The method.
        lr: Its learning rate.
        value: Of its second setting.
        own_error: Of its own head, on the held-out images; 1 where a run failed.
        area: Under the ROC curve of its own likelihood against FGSM, mean over the radii; 0 where a run failed.
        statuses: How the runs ended.
    """

    method: str
    lr: float
    value: float
    own_error: float
    area: float
    statuses: tuple[str, ...]


def chosen(trials: Sequence[Tried], method: str) -> Tried:
    """Of a method's trials within `ALLOWED` of its lowest error, the one with the largest area.

    >>> trials = [Tried("lgm", 0.1, 1.0, 0.010, 0.6, ()), Tried("lgm", 0.1, 3.0, 0.014, 0.9, ()),
    ...           Tried("lgm", 0.1, 10.0, 0.020, 0.95, ())]
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

    >>> len(candidates("digits").methods), len(candidates("mnist").methods)
    (60, 20)
    """
    varied = PROTOCOLS[dataset]
    start = paper_recipe(PAPER, dataset, root, varied.search_seeds if seeds is None else seeds)
    settings = {"epsilons": list(varied.epsilons), "adaptive": []}
    return dataclasses.replace(
        start,
        held_out=HELD_OUT,
        audits=("accuracy", AUDIT),
        audit_settings={AUDIT: settings},
        methods={
            label: with_settings(start.methods[name], settings)
            for label, (name, settings) in _labelled(dataset, list(start.methods)).items()
        },
    )


def _labelled(dataset: str, methods: Sequence[str]) -> dict[str, tuple[str, dict[str, float]]]:
    """Method and settings of every trial, by the trial's name."""
    return {
        f"{name} lr={lr:g} {second}={value:g}": (name, {"lr": lr, second: value})
        for name in methods
        for second, values in [SECOND[name]]
        for lr in (MIDDLE[dataset][name] * factor for factor in AROUND[dataset])
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
    if (data := data_if_there(recipe)) is None:
        raise NoDataError(f"the search needs the files of {request.dataset}; give their folder with --root.")
    plans = plans_of(recipe)
    found = request.grid(plans, data)
    methods = list(SECOND)
    trials = [
        _tried(name, settings, [one for plan, one in zip(plans, found, strict=True) if plan.method == label])
        for label, (name, settings) in _labelled(request.dataset, methods).items()
    ]
    return write_trials(trials, request.dataset, request.out)


def _tried(name: str, settings: Mapping[str, float], runs: Sequence[RunFindings]) -> Tried:
    second = SECOND[name][0]
    area = {**ATTACKED, "score": own_score(name)}
    return Tried(
        name,
        settings["lr"],
        settings[second],
        fmean(_mean(one, "accuracy", "error", {"split": "test"}, 1.0) for one in runs),
        fmean(_mean(one, AUDIT, CURVE, area, 0.0) for one in runs),
        tuple("" if one.note is None else one.note.status for one in runs),
    )


def _mean(run: RunFindings, audit: str, name: str, context: Mapping[str, Any], failed: float) -> float:
    """The mean of a run's numbers with these settings; `failed` where there is none."""
    found = [
        one.value
        for one in (record.measurement for record in run.records)
        if (one.audit, one.name) == (audit, name)
        and all(one.context.get(key) == value for key, value in context.items())
    ]
    return fmean(found) if found else failed


def write_trials(trials: Sequence[Tried], dataset: str, out: Path) -> Path:
    """Write ``search-all.csv``, and ``search.md`` with what is chosen; the path of the latter."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "search-all.csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["method", "lr", "setting", "value", "own_error", "auroc", "statuses"])
        lines.writerows(
            [t.method, t.lr, SECOND[t.method][0], t.value, t.own_error, t.area, "; ".join(t.statuses)]
            for t in trials
        )
    best = {name: chosen(trials, name) for name in SECOND}
    table = ["| method | lr | setting | own error | area under the ROC curve |", "|---|---|---|---|---|"]
    toml = [f"[{dataset}.all]"]
    for name, trial in best.items():
        second = SECOND[name][0]
        numbers = f"{100 * trial.own_error:.2f} % | {100 * trial.area:.1f} %"
        table.append(f"| {name} | {trial.lr:g} | {second} {trial.value:g} | {numbers} |")
        toml.append(f'"{name}" = {{ lr = {trial.lr!r}, {second} = {trial.value!r} }}')
    text = [f"# Settings on {dataset}", "\n".join(table), "```toml\n" + "\n".join(toml) + "\n```"]
    path = out / "search.md"
    write_bytes(path, ("\n\n".join(text) + "\n").encode())
    return path
