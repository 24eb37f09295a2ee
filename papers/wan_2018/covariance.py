"""Variances that L-GM learns (claim K1): one for each class, or one for each dimension of a class, on digits.

The other studies fix them at 1, as the likelihoods of the slides have them. Here they are learned, under the prior
that the loss has by default, at the learning rate that was chosen without them; nothing is judged.
"""

import dataclasses
from pathlib import Path
from typing import Literal

from clearance.research import Recipe, build_data, plans_of
from papers.engine.ledger import COST, ONE_IMAGE, OWN_HEAD, TableRow, provenance, save, table
from papers.engine.study import StudyRequest
from papers.wan_2018.protocol import base_recipe

COMMAND = "python -m papers wan_2018 --only covariance"
FIXED = "lgm"
LEARNED: tuple[Literal["class_scalar", "class_diagonal"], ...] = ("class_scalar", "class_diagonal")
ROWS = (
    OWN_HEAD,
    TableRow(
        "negative log-likelihood of the class", "calibration", "nll", "nats", {"temperature": "as trained"}
    ),
    ONE_IMAGE,
    *COST,
)


def covariance_recipe(seeds: int | None = None) -> Recipe:
    """L-GM with variances fixed at 1 and learned in two forms.

    >>> list(covariance_recipe().methods)
    ['lgm', 'lgm, class_scalar', 'lgm, class_diagonal']
    """
    start = base_recipe("digits", None, seeds)
    fixed = start.methods[FIXED]
    learned = {f"{FIXED}, {form}": dataclasses.replace(fixed, mixture=form) for form in LEARNED}
    return dataclasses.replace(
        start,
        audits=("accuracy", "calibration", "co_adaptation"),
        audit_settings={
            "co_adaptation": {"per_class": [1], "repetitions": [50], "all_images": False},
        },
        methods={FIXED: fixed, **learned},
    )


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: What was asked for. Seeds are runs of each method, those of the recipe, 5, by default.
    """
    recipe = covariance_recipe(request.seeds)
    found = request.grid(plans_of(recipe), build_data(recipe))
    report = request.paged(recipe, found, request.command(COMMAND))
    lines = [
        "# wan_2018: variances that L-GM learns, on digits (K1)",
        provenance(report),
        "Mean over seeds with the 95 % t interval, in brackets the verdict against fixed variances.",
        table(report, ROWS, report.methods, FIXED),
    ]
    return save(report, "\n\n".join(lines), ROWS, (FIXED,), request.out)
