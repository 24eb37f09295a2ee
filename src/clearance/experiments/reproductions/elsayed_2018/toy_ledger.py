"""The ledger of the toy of Fig. 1b: errors and exact distances, and whether the margin's are better."""

from collections.abc import Sequence
from typing import Literal

from clearance.experiments.reproductions.cells import markdown_table, mean_and_spread
from clearance.records import Report
from clearance.records.summary import compare, summarise

HEADER = ("", "training error", "test error", "smallest distance", "median distance")
QUANTITIES = ("train_error", "test_error", "smallest_distance", "median_distance")


def ledger(report: Report, losses: Sequence[str], picture: str) -> str:
    """What both losses came to, and whether the margin's distances and test errors are better, seed by seed.

    Args:
        report: Of all runs.
        losses: Their names, a row for each.
        picture: The file that shows their boundaries, beside the ledger.
    """
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    rows = [HEADER, *([loss, *_cells(report, loss)] for loss in losses)]
    lines = [
        "# elsayed-2018: the toy of Fig. 1b",
        f"Made by `{report.command}`, {report.created}. Versions: {versions}.",
        "Ours: two moons, widths, optimiser and margin; the paper says two-dimensional data, four layers, 10,000 "
        "steps. Distances are exact (the boundary is found on a grid and by bisection), in the picture's unit, whose "
        "side is 1; below 0 a point is on the wrong side. Mean ± sd over seeds.",
        markdown_table(rows),
        "Margin against cross-entropy, paired over seeds: "
        + "; ".join(f"{name.replace('_', ' ')} {_verdict(report, name)}" for name in QUANTITIES[1:])
        + ".",
        f"![The boundaries of both losses under every seed, with the training points]({picture})",
    ]
    return "\n\n".join(lines) + "\n"


def _cells(report: Report, loss: str) -> list[str]:
    cells = []
    for name in QUANTITIES:
        values, unit = _values(report, loss, name)
        # distances are in the picture's unit, as the text says
        unit = unit if name.endswith("error") else "ratio"
        over = summarise(values)
        cells.append(mean_and_spread(over.mean, over.spread, unit))
    return cells


def _verdict(report: Report, name: str) -> str:
    better: Literal["lower", "higher"] = "lower" if name.endswith("error") else "higher"
    sides = [_values(report, loss, name)[0] for loss in ("margin-l2", "cross-entropy")]
    return str(compare(*sides, better=better).verdict)


def _values(report: Report, loss: str, name: str) -> tuple[dict[int, float], str]:
    own = [r for r in report.records if (r.method, r.measurement.name) == (loss, name)]
    return {r.seed: r.measurement.value for r in own}, own[0].measurement.unit
