"""All pairs of classes at 81 lambdas: the exact machines behind the article's interactive figures."""

import itertools
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from clearance._files import write_bytes
from clearance.experiments.datasets import load_dataset
from clearance.experiments.papers import paper_claims
from clearance.experiments.provenance import report_with
from clearance.experiments.reproduction_ledger import Ledger, reproduce_command
from clearance.experiments.reproductions.parallel import each
from clearance.experiments.reproductions.tanay_2018.networks import check_data
from clearance.experiments.reproductions.tanay_2018.svm_curves import CURVES, curves
from clearance.experiments.reproductions.tanay_2018.svm_models import PER_CLASS, TOLERANCE, solved_pair
from clearance.experiments.reproductions.tanay_2018.svm_tables import against_truth, as_csv, landmarks
from clearance.experiments.reproductions.tanay_2018.svm_verdicts import PAPER, STUDY, svm_judgements
from clearance.experiments.study_request import StudyRequest
from clearance.report.svg import as_svg

MODELS = "models.csv"
ABOUT = {
    "error": "Wrong on test images",
    "angle": "Angle between the boundary and that of the nearest centroid",
    "distance": "Mean signed distance of the training images to the boundary",
}
Found = Mapping[str, Mapping[str, Any]]


def run(request: StudyRequest) -> Path:
    """Solve every pair at every lambda and write the ledger; what is finished is read back.

    Args:
        request: What was asked for. Nothing is drawn, so that seeds change nothing.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    check_data(request.dataset, request.root)
    classes = load_dataset(request.dataset, "train", request.root).classes
    return study(classes, list(itertools.combinations(range(len(classes)), 2)), request)


def study(classes: tuple[str, ...], chosen: list[tuple[int, int]], request: StudyRequest) -> Path:
    """The same for some pairs of classes only; the path of ``ledger.md``."""
    dataset, out = request.dataset, request.out
    tasks: dict[str, dict[str, Any]] = {
        f"{first}-{second}": {"dataset": dataset, "pair": [first, second], "tolerance": TOLERANCE}
        for first, second in chosen
    }
    work = partial(solved_pair, root=request.root)
    pairs = each(work, tasks, out / "pairs", request.jobs, request.listener)
    titles = {f"{a}-{b}": f"{classes[a]} against {classes[b]}" for a, b in chosen}
    write_bytes(out / MODELS, as_csv(pairs))
    for name in CURVES:
        drawn = as_svg(curves(pairs, titles, name), f"svm-{name}", ABOUT[name])
        write_bytes(out / f"{name}.svg", str(drawn).encode())
    settings = {
        "dataset": dataset,
        "lambdas": "10^2 to 10^-6, 81",
        "per_class": PER_CLASS,
        "tolerance": TOLERANCE,
    }
    report = report_with(settings, [], reproduce_command(PAPER, dataset, only=STUDY))
    ledger = Ledger(paper_claims(PAPER), dataset, svm_judgements(pairs, dataset), report)
    path = ledger.save(out)
    write_bytes(path, _text(ledger, pairs, titles).encode())
    return path


def _text(ledger: Ledger, pairs: Found, titles: Mapping[str, str]) -> str:
    seconds = sum(float(pair["cpu_seconds"]) for pair in pairs.values())
    worst = max(max(pair["models"]["relative_gap"]) for pair in pairs.values())
    about = (
        f"{len(pairs)} pairs, 81 machines each, in {seconds:.0f} s of processor time ({seconds / len(pairs):.1f} s a "
        f"pair). The largest relative duality gap of all machines is {worst:.1e}; each one's is in "
        f"[{MODELS}]({MODELS}). "
        "Distances are in units of [0, 1] pixels; lambda is the factor of ||w||². "
        "Errors are at lambda 10² / 10⁻² / 10⁻⁶."
    )
    pictures = [f"![{ABOUT[name]}, over lambda.]({name}.svg)" for name in CURVES]
    parts = [ledger.to_markdown().rstrip(), "## Landmarks of every pair", about, landmarks(pairs, titles)]
    # the article's pairs are of MNIST's digits, whatever another dataset's classes are numbered
    beside = against_truth(pairs) if ledger.dataset == "mnist" else ""
    return "\n\n".join(part for part in (*parts, *pictures, beside) if part) + "\n"
