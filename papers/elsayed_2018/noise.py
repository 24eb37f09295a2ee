"""Noisy labels: training labels switched at random to another class, the test set clean.

Labels are switched once for each seed; what is wrong at a low rate is wrong at a higher one too. Errors are recorded
after every epoch, the verdict is about the last one, and the ledger also has the epoch that noisy validation
would choose.
"""

import dataclasses
from pathlib import Path

from clearance import Measurement
from clearance.research import Record, RunFindings
from papers.elsayed_2018.conditions import Scale, Table, compared_conditions
from papers.elsayed_2018.protocol import PROTOCOLS, noise_recipes
from papers.engine.ledger import measured
from papers.engine.study import StudyRequest

SETTING = "noise"
LABEL = "share of training labels that are wrong"


def tables(dataset: str) -> tuple[Table, ...]:
    """Accuracy at the end, where noisy validation would have stopped, and after every epoch.

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
        *(
            Table(
                f"Test accuracy after every epoch, noise {rate:g}",
                "accuracy", "error_after", "epoch", {SETTING: rate},
            )
            for rate in varied.noise
        ),
    )  # fmt: skip


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: What was asked for. Seeds are runs of each method at each rate; those of the recipe by default.
    """
    recipes = noise_recipes(request.dataset, request.root, request.seeds)
    return compared_conditions("noise", SETTING, tables(request.dataset), recipes, request, with_every_epoch)


def with_every_epoch(run: RunFindings) -> RunFindings:
    """What a run left behind, with its test error after every epoch as measurements. Nothing is chosen by it."""
    curve = next(
        (e.exhibit for e in run.exhibits if (e.exhibit.audit, e.exhibit.name) == ("training", "epochs")), None
    )
    last = next(measured(run.records, "accuracy", "error"), None)
    if curve is None or last is None:
        return run
    errors = [
        Measurement("accuracy", "error_after", error, "fraction", last.measurement.n, better="lower",
                    context={**curve.context, "epoch": epoch})
        for epoch, error in zip(curve.columns["epoch"], curve.columns["test error"], strict=True)
    ]  # fmt: skip
    added = tuple(Record(last.dataset, last.method, last.seed, one) for one in errors)
    return dataclasses.replace(run, records=(*run.records, *added))
