"""The ledger of the toy of Fig. 1b: errors and exact distances, and whether the margin's are better."""

from collections.abc import Sequence
from pathlib import Path

from clearance.experiments.reproductions.cells import markdown_table, mean_and_spread
from clearance.experiments.reproductions.study_ledger import Quantity, provenance, save
from clearance.records import Report
from clearance.records.summary import compare, summarise

AUDIT = "toy"
ERRORS = (
    Quantity("training error", AUDIT, "train_error"),
    Quantity("test error", AUDIT, "test_error"),
)
DISTANCES = (
    Quantity("smallest distance", AUDIT, "smallest_distance", "pixel units", better="higher"),
    Quantity("median distance", AUDIT, "median_distance", "pixel units", better="higher"),
)
BASELINE, MARGIN = "cross-entropy", "margin-l2"


def write_ledger(report: Report, losses: Sequence[str], picture: str, out: Path) -> Path:
    """``ledger.md``, and ``ledger.json`` with each number of each seed; the first's path.

    Args:
        report: Of all runs.
        losses: Their names, a row for each.
        picture: The file that shows their boundaries, beside the ledger.
        out: The folder.
    """
    return save(report, ledger(report, losses, picture), (*ERRORS, *DISTANCES), (BASELINE,), out)


def ledger(report: Report, losses: Sequence[str], picture: str) -> str:
    """What both losses came to, and whether the margin's distances and test errors are better, seed by seed.

    Args:
        report: Of all runs.
        losses: Their names, a row for each.
        picture: The file that shows their boundaries, beside the ledger.
    """
    judged = (ERRORS[1], *DISTANCES)
    rows = [["", *(one.label for one in (*ERRORS, *DISTANCES))]]
    rows += [[loss, *_cells(report, loss)] for loss in losses]
    lines = [
        "# elsayed-2018: the toy of Fig. 1b",
        provenance(report),
        "Ours: two moons, widths, optimiser and margin; the paper says two-dimensional data, four layers, 10,000 "
        "steps. Distances are exact (the boundary is found on a grid and by bisection), in the picture's unit, whose "
        "side is 1; below 0 a point is on the wrong side. Mean ± sd over seeds.",
        markdown_table(rows),
        "Margin against cross-entropy, paired over seeds: "
        + "; ".join(f"{one.label} {_verdict(report, one)}" for one in judged)
        + ".",
        f"![The boundaries of both losses under every seed, with the training points]({picture})",
    ]
    return "\n\n".join(lines)


def _cells(report: Report, loss: str) -> list[str]:
    return [_cell(report, loss, one, "fraction") for one in ERRORS] + [
        _cell(report, loss, one, "ratio")  # in the picture's unit, as the text says
        for one in DISTANCES
    ]


def _cell(report: Report, loss: str, quantity: Quantity, unit: str) -> str:
    over = summarise(quantity.of(report, loss))
    return mean_and_spread(over.mean, over.spread, unit)


def _verdict(report: Report, quantity: Quantity) -> str:
    sides = [quantity.of(report, loss) for loss in (MARGIN, BASELINE)]
    return str(compare(*sides, better=quantity.better).verdict)
