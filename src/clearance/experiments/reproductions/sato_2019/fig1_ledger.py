"""The ledger of Fig. 1: numbers by panel and seed, and each guess beside what was found; from records alone."""

import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearance._files import write_bytes
from clearance.experiments.reproductions.sato_2019.fig1_guesses import (
    PAIRS,
    guesses,
    times_smaller,
    values_of,
    verdict,
)
from clearance.records import Record, Report
from clearance.records.encoding import encode
from clearance.records.markdown import markdown_table
from clearance.report.numbers import THIN, printed

COLUMNS = {
    "within_between": ("within/between", "ratio"),
    "pair_accuracy": ("one-pair accuracy, mean", "fraction"),
    "worst_pair_accuracy": ("worst", "fraction"),
    "own_error": ("own error", "fraction"),
    "distance": ("distance D", "ratio"),
}
ABOUT = (
    "Two moons; an extractor 2-64-64-2 with softplus after every layer; squared error against "
    "targets +1 and -1; all panels of a seed start from the same extractor. Data, widths and budget are ours: the "
    "paper names none.",
    "within/between: root mean squared distance of a point from its class mean, over the distance D of the class "
    "means. One-pair accuracy: share of all points that a linear head gets right which was fitted on one random "
    "pair of points, mean and worst of 256 pairs. Features are of the points that were trained on. Where the "
    "features lie on a line, joint training alone makes each class a point (see its smallest ratios).",
    "Settings were looked for with FOCA, on these same seeds: with MLP heads and a step size of 0.005 its "
    "features vanished in the first steps under two of five seeds, so 0.002 is in use, for joint training too. "
    "The penalty of the linear heads is 1; 0.001 to 0.1 had been guessed. Linear panels were first trained for 2,000 "
    "steps as the MLP ones are; there FOCA's class extent was 2.99 times smaller than joint training's, by medians "
    "of the five seeds, and still falling. 5,000 steps are in use since, for joint training too.",
)


def write_ledger(report: Report, out: Path, picture: str) -> Path:
    """Write ``ledger.md`` and ``ledger.json``; the path of the first.

    Args:
        report: Of this study.
        out: Where to.
        picture: Name of the picture's file beside it.
    """
    text = json.dumps(encode(_told(report)), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    write_bytes(out / "ledger.json", text.encode())
    write_bytes(out / "ledger.md", _markdown(report, picture).encode())
    return out / "ledger.md"


def _told(report: Report) -> dict[str, Any]:
    panels = {}
    for method in report.methods:
        values = {name: values_of(report.records, method, name) for name in COLUMNS}
        panels[method] = {
            name: {"by_seed": one, "median": statistics.median(one.values())} for name, one in values.items()
        }
    compared = {
        head: {
            "times_smaller": times_smaller(report.records, head),
            **dataclasses.asdict(verdict(report.records, head)),
        }
        for head in PAIRS
    }
    return {
        "claim": "F1",
        "command": report.command,
        "created": report.created,
        "versions": report.versions,
        "recipe": report.recipe,
        "runs": [note.to_json() for note in report.runs],
        "panels": panels,
        "foca_against_joint": compared,
        "guesses": [dataclasses.asdict(guess) for guess in guesses(report.records)],
    }


def _markdown(report: Report, picture: str) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    seeds = sorted({record.seed for record in report.records})
    bad = [f"{note.method}, seed {note.seed}: {note.status}" for note in report.runs if not note.good]
    between = [["", "median", *(f"seed {seed}" for seed in seeds)]]
    between += [_by_seed(report.records, method, seeds) for method in report.methods]
    lines = [
        "# sato-2019: Fig. 1, a toy (claim F1)",
        f"Made by `{report.command}`, {report.created}. Versions: {versions}.",
        *ABOUT,
        f"Not finished, and counted as they ended: {'; '.join(bad)}." if bad else "",
        f"![Features in the plane]({picture})",
        "Each panel of the picture is the finished run whose within/between is nearest the median over seeds.",
        "## Medians over seeds",
        markdown_table(_medians(report)),
        "## within/between by seed",
        markdown_table(between),
        "\n".join(f"- {_sentence(report.records, head)}" for head in PAIRS),
        "## What had been guessed",
        "By the median over seeds; beside it, in how many seeds it holds alone.",
        "\n".join(f"- {guess.words}: {guess.verdict}." for guess in guesses(report.records)),
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


def _medians(report: Report) -> list[list[str]]:
    titles = [*(title for title, _ in COLUMNS.values()), "training time"]
    rows = [["", *titles]]
    for method in report.methods:
        cells = [
            _number(statistics.median(values_of(report.records, method, name).values()), unit)
            for name, (_, unit) in COLUMNS.items()
        ]
        rows.append([method, *cells, _time(report, method)])
    return rows


def _time(report: Report, method: str) -> str:
    """The median over seeds, for FOCA as a factor of joint training with the same head, too."""
    seconds = statistics.median(values_of(report.records, method, "seconds", "training").values())
    joint = next((joint for foca, joint in PAIRS.values() if foca == method), None)
    if joint is None:
        return _number(seconds, "seconds")
    factor = seconds / statistics.median(values_of(report.records, joint, "seconds", "training").values())
    return f"{_number(seconds, 'seconds')}, {_number(factor, 'factor')}"


def _by_seed(records: Sequence[Record], method: str, seeds: Sequence[int]) -> list[str]:
    values = values_of(records, method, "within_between")
    cells = [
        _number(value, "ratio") for value in (statistics.median(values.values()), *(values[s] for s in seeds))
    ]
    return [method, *cells]


def _sentence(records: Sequence[Record], head: str) -> str:
    """How many times smaller FOCA's ratio is: seed by seed, and whether seeds tell the two apart."""
    foca, joint = PAIRS[head]
    times, found = times_smaller(records, head), verdict(records, head)
    middle = _number(statistics.median(times.values()), "factor")
    by_seed = ", ".join(_number(value, "factor") for value in times.values())
    return (
        f"{foca} against {joint}: {middle} smaller in the median ({by_seed}); paired over seeds, as logarithms: "
        f"{found.verdict}."
    )


def _number(value: float, unit: str) -> str:
    return printed(value, unit).replace(THIN, " ")
