"""Write the ledger from what `clearance search` and `clearance compare` left.

    python -m papers.all_against_all DATASET --search DIR ... --report DIR ...

Reads every DIR/search.json and DIR/report.json; writes DATASET.md, DATASET-search.csv and DATASET-measurements.csv into
results/. Methods that were not searched or not run again keep their lines there; times are compared with plain
training's of the same day.
"""

import argparse
import csv
import dataclasses
import json
import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from clearance import Measurement
from clearance.research import (
    CRITERIA,
    LEVEL,
    Record,
    Report,
    SummaryRow,
    Trial,
    best_trial,
    compare_seeds,
    holm,
    load_report,
)

RESULTS = Path(__file__).parent / "results"
FEW = "co_adaptation"
WANTED_RATIO = 0.5
AUDITS = ("accuracy", FEW, "class_scatter")
TRAINING = ("seconds", "steps", "memory", "diverged_heads")
TRIED = (
    "method", "lr", "per_class", "epochs", "one_image_error", "one_image_standard_error", "own_error"
)  # fmt: skip
ORDER = (
    "plain", "plain-longer", "noisy", "dropout", "batchnorm", "foca", "center", "contrastive", "triplet", "lgm",
)  # fmt: skip
# of several runs in a cell; a status may hold a semicolon itself
STATUSES = re.compile(r"; (?=finished|stopped|diverged|collapsed|failed)")
FIELDS = ("method", "seed", "audit", "name", "value", "unit", "n", "spread")


def percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def rows(report: Report, kind: str, audit: str, name: str, **context: Any) -> list[SummaryRow]:
    """The summary rows of one quantity."""
    return [
        row
        for row in report.summary
        if (row.kind, row.audit, row.name) == (kind, audit, name)
        and all(row.context.get(key) == value for key, value in context.items())
    ]


def interval(row: SummaryRow, scale: float = 100, unit: str = " %") -> str:
    if row.low is None or row.high is None:
        return f"{scale * row.value:.2f}{unit}"
    return f"{scale * row.value:.2f}{unit} ({scale * row.low:.2f} to {scale * row.high:.2f})"


def results(report: Report) -> list[str]:
    """The table of methods."""
    sizes = sorted({row.context["samples"] for row in rows(report, "mean", FEW, "error", head="retrained")})
    few, everything = sizes[0], sizes[-1]
    lines = [
        f"| method | own head | {few} images | {few}, linear | {few}, class mean | all images | of plain's | time |",
        "|---|---|---|---|---|---|---|---|",
    ]

    def mean(method: str, audit: str, **context: Any) -> SummaryRow:
        return next(r for r in rows(report, "mean", audit, "error", **context) if r.method == method)

    ratios = {r.method: r for r in rows(report, "ratio", FEW, "error", head="retrained", samples=few)}
    times = {r.method: r for r in rows(report, "ratio", "training", "seconds")}
    for method in report.methods:
        cells = [
            interval(mean(method, "accuracy", split="test")),
            interval(mean(method, FEW, head="retrained", samples=few)),
            interval(mean(method, FEW, head="linear", samples=few)),
            interval(mean(method, FEW, head="class mean", samples=few)),
            interval(mean(method, FEW, head="retrained", samples=everything)),
            interval(ratios[method], 1, "") if method in ratios else "1",
            f"{times[method].value:.1f}x" if method in times else "1x",
        ]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    pixel = rows(report, "mean", FEW, "error", head="nearest pixel", samples=few)
    if pixel:
        lines.append(f"| nearest image, no network | | {percent(pixel[0].value)} | | | | | |")
    return lines


def foca_against_each(report: Report, few: Any) -> list[str]:
    """FOCA against every other method from the fewest images, by pairs of seeds, with Holm's adjustment."""
    values: dict[str, dict[int, float]] = {}
    for record in report.records:
        found = record.measurement
        if (found.audit, found.name) == (FEW, "error") and (
            found.context["head"], found.context["samples"]
        ) == ("retrained", few):  # fmt: skip
            values.setdefault(record.method, {})[record.seed] = found.value
    foca = values.pop("foca")
    compared = {name: compare_seeds(foca, other, better="lower") for name, other in values.items()}
    adjusted = holm({name: 1.0 if one.p is None else one.p for name, one in compared.items()})
    lines = []
    for name, one in compared.items():
        assert one.difference is not None
        assert one.low is not None
        assert one.high is not None
        verdict = one.verdict if adjusted[name] < LEVEL else "inconclusive"
        middle, low, high = (f"{100 * value:.2f} %" for value in (one.difference, one.low, one.high))
        lines.append(
            f"- foca against {name}, from {few} images: **{verdict}** (difference {middle} "
            f"({low.removesuffix(' %')} to {high.removesuffix(' %')}); Holm-adjusted p {adjusted[name]:.3g})."
        )
    return lines


def verdicts(report: Report) -> list[str]:
    """What was asked, and whether it holds."""
    few = min(row.context["samples"] for row in rows(report, "mean", FEW, "error", head="retrained"))
    ratio = next(
        r for r in rows(report, "ratio", FEW, "error", head="retrained", samples=few) if r.method == "foca"
    )
    assert ratio.low is not None
    assert ratio.high is not None
    holds = (
        "holds" if ratio.high <= WANTED_RATIO else "refuted" if ratio.low > WANTED_RATIO else "cannot tell"
    )
    lines = [
        f"- FOCA's error from {few} images is at most {WANTED_RATIO} of plain's: **{holds}** "
        f"({interval(ratio, 1, '')}, paired over {ratio.seeds} seeds, on log errors)."
    ]
    return lines + foca_against_each(report, few)


def searched(trials: list[Trial]) -> list[str]:
    """The choices, by either criterion."""
    lines = [
        "| method | chosen by | lr | images per class | one-image error | own error |",
        "|---|---|---|---|---|---|",
    ]
    for method in dict.fromkeys(trial.method for trial in trials):
        for criterion in CRITERIA:
            t = best_trial(trials, method, criterion)
            images = str(t.per_class) if method == "foca" else ""
            errors = f"{percent(t.one_image_error or 0.0)} | {percent(t.own_error)}"
            lines.append(f"| {method} | {criterion.replace('_', ' ')} | {t.lr:g} | {images} | {errors} |")
    return lines


def write_csv(path: Path, header: tuple[str, ...], lines: list[list[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(lines)


def write_text(dataset: str, report: Report, trials: list[Trial], failed: list[str]) -> None:
    """Results, verdicts, and the search behind them."""
    text = [
        f"# {dataset}",
        "",
        f"`{report.command}`, {report.created[:10]}, torch {report.versions['torch']}. Test errors, mean over seeds "
        "with the 95 % t interval.",
        "",
        *results(report),
        "",
        *verdicts(report),
        "",
        *(["Runs that did not finish as asked:", "", *failed, ""] if failed else []),
        "## The search, on a quarter of the training set",
        "",
        *searched(trials),
        "",
    ]
    (RESULTS / f"{dataset}.md").write_text("\n".join(text), "utf-8")


def measurements(report: Report) -> list[list[Any]]:
    """Every number behind the text, a line each."""
    kept = [
        r
        for r in (record.to_json() for record in report.records)
        if r["audit"] in AUDITS or r["name"] in TRAINING
    ]
    return [[*(r[name] for name in FIELDS), json.dumps(r["context"])] for r in kept]


def earlier_trials(path: Path) -> list[Trial]:
    """The trials of a committed file; those of an older one have no epochs and no standard errors."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Trial(
                row["method"],
                float(row["lr"]),
                int(row["per_class"]),
                int(row.get("epochs") or 0),
                float(row["one_image_error"]),
                float(row["one_image_standard_error"]) if row.get("one_image_standard_error") else None,
                float(row["own_error"]),
                tuple(STATUSES.split(row["statuses"])),
            )
            for row in csv.DictReader(file)
        ]


def earlier_records(path: Path, dataset: str, again: Container[str]) -> list[Record]:
    """Committed measurements of methods that were not run again, and times of all of them."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Record(dataset, row["method"], int(row["seed"]), _measurement(row))
            for row in csv.DictReader(file)
            if row["method"] not in again or row["audit"] == "training"
        ]


def _measurement(row: Mapping[str, str]) -> Measurement:
    spread = float(row["spread"]) if row["spread"] else None
    context = json.loads(row["context"])
    numbers = (float(row["value"]), row["unit"], int(row["n"]), spread)
    return Measurement(row["audit"], row["name"], *numbers, better="lower", context=context)


def dated(record: Record, day: str) -> Record:
    """A record whose time and memory can only be compared with those of its day."""
    found = record.measurement
    if found.audit != "training":
        return record
    return dataclasses.replace(
        record, measurement=dataclasses.replace(found, context={**found.context, "day": day})
    )


def joined(reports: Sequence[Report], dataset: str) -> Report:
    """One report of several and of the committed measurements, all made under the same conditions."""
    new = [dated(record, reports[0].created[:10]) for one in reports for record in one.records]
    kept = [
        record for record in new if record.measurement.audit in AUDITS or record.measurement.name in TRAINING
    ]
    again = {record.method for record in kept}
    older = earlier_records(RESULTS / f"{dataset}-measurements.csv", dataset, again)
    records = sorted([*older, *kept], key=lambda record: ORDER.index(record.method))
    commands = "`, `".join(one.command for one in reports)
    return dataclasses.replace(reports[0], command=commands, records=tuple(records), runs=())


def main(dataset: str, search_dirs: Sequence[str], report_dirs: Sequence[str]) -> None:
    reports = [load_report(directory) for directory in report_dirs]
    report = joined(reports, dataset)
    failed = [
        f"- {run.method}, seed {run.seed}: {run.status}" for r in reports for run in r.runs if not run.good
    ]
    new = [
        Trial(**row)
        for directory in search_dirs
        for row in json.loads((Path(directory) / "search.json").read_text("utf-8"))
    ]
    path = RESULTS / f"{dataset}-search.csv"
    again = {trial.method for trial in new}
    trials = [trial for trial in earlier_trials(path) if trial.method not in again] + new
    write_text(dataset, report, trials, failed)
    tried = [[*(getattr(t, name) for name in TRIED), "; ".join(t.statuses)] for t in trials]
    write_csv(path, (*TRIED, "statuses"), tried)
    write_csv(RESULTS / f"{dataset}-measurements.csv", (*FIELDS, "context"), measurements(report))


if __name__ == "__main__":
    about = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m papers.all_against_all", description=about)
    parser.add_argument("dataset", help="for example digits; names the files that are written")
    parser.add_argument("--search", nargs="*", default=[], help="folders that `clearance search` wrote")
    parser.add_argument("--report", nargs="+", required=True, help="folders that `clearance compare` wrote")
    given = parser.parse_args()
    main(given.dataset, given.search, given.report)
