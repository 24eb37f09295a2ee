"""Noisy labels: training labels switched at random to another class, the test set clean.

Labels are switched once for each seed; what is wrong at a low rate is wrong at a higher one too. Errors are recorded
after every epoch, the verdict is about the last one, and the ledger also has the epoch that noisy validation
would choose.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from clearance.research import RunFindings, markdown_table
from papers.elsayed_2018.conditions import Scale, Table, compared_conditions
from papers.elsayed_2018.protocol import PROTOCOLS, noise_recipes
from papers.engine.ledger import mean_and_spread
from papers.engine.study import StudyRequest

SETTING = "noise"
LABEL = "share of training labels that are wrong"


def tables(dataset: str) -> tuple[Table, ...]:
    """Accuracy at the end, and where noisy validation would have stopped.

    Where margins are trained otherwise without noise, no line leads from there to noise.
    """
    varied = PROTOCOLS[dataset]
    scale: Scale = "linear" if varied.rivals_without_noise and len(varied.noise) > 1 else "apart"
    return (
        Table(
            "Test accuracy after the last epoch", "accuracy", "error", SETTING, {"split": "test"},
            panel="after the last epoch", label=LABEL, scale=scale,
        ),
        Table(
            "Test accuracy at the epoch with the lowest error on noisy validation labels",
            "training", "early_stopped_error", SETTING,
            panel="at the epoch that noisy validation chooses", label=LABEL, scale=scale,
        ),
    )  # fmt: skip


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: What was asked for. Seeds are runs of each method at each rate; those of the recipe by default.
    """
    recipes = noise_recipes(request.dataset, request.root, request.seeds)
    return compared_conditions("noise", SETTING, tables(request.dataset), recipes, request, by_epoch)


def by_epoch(found: Sequence[RunFindings]) -> list[str]:
    """Test accuracy after every epoch, a table for each rate of noise: means over seeds. Nothing is chosen by it."""
    curves = [
        (exhibit.exhibit.context[SETTING], exhibit.method, exhibit.exhibit.columns["test error"])
        for run in found
        for exhibit in run.exhibits
        if (exhibit.exhibit.audit, exhibit.exhibit.name) == ("training", "epochs")
    ]
    sections = []
    for rate in sorted({rate for rate, _, _ in curves}):
        own = [(method, errors) for where, method, errors in curves if where == rate]
        epochs = max(len(errors) for _, errors in own)
        lines = [["", *(str(epoch) for epoch in range(1, epochs + 1))]]
        for method in dict.fromkeys(method for method, _ in own):
            seeds = [errors for name, errors in own if name == method]
            lines.append([method, *(_right(seeds, epoch) for epoch in range(epochs))])
        sections.append(f"## Test accuracy after every epoch, noise {rate:g}\n\n{markdown_table(lines)}")
    return sections


def _right(seeds: Sequence[Sequence[float]], epoch: int) -> str:
    """Mean over the seeds that came so far."""
    return mean_and_spread(
        1 - fmean(errors[epoch] for errors in seeds if epoch < len(errors)), None, "fraction"
    )
