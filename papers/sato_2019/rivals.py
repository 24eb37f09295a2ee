"""New heads from few labels after all 60,000 images of MNIST, with rivals that the paper does not have.

Methods, settings, learning rates and heads are those of every method under every question (``all_against_all``) for
new heads. There the same search was made for every method on a quarter of 12,000 images; it was not made again for
60,000. `plain-longer` takes three times the steps, about FOCA's time.
"""

import dataclasses
from pathlib import Path
from typing import Any

from clearance.research import RunPlan
from papers.all_against_all.matrix import HERE, Work, read_matrix
from papers.engine.ledger import command_line, provenance, save, table
from papers.engine.study import StudyRequest, needed_data
from papers.sato_2019.later_cut import ROWS, foca_against

METHODS = ("plain", "plain-longer", "center", "contrastive", "triplet", "lgm", "lgm, same cut", "foca")


def rival_plans(dataset: str = "mnist", root: str | None = None, seeds: int = 5) -> list[RunPlan]:
    """The runs, seed by seed: those of all against all for new heads, with every training image.

    >>> [plan.recipe.epochs for plan in rival_plans()[:2]], rival_plans()[0].recipe.samples
    ([4, 12], None)
    """
    work = Work(read_matrix(dataset, root), HERE / "results" / dataset)
    changed: dict[str, Any] = {"samples": None, "seeds": seeds, "audits": ("accuracy", "co_adaptation")}
    return [
        dataclasses.replace(plan, recipe=dataclasses.replace(plan.recipe, **changed))
        for seed in range(seeds)
        for name in METHODS
        if (plan := work.plan("new heads", name, seed)) is not None
    ]


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: The request; five seeds by default.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    plans = rival_plans(request.dataset, request.root, request.seeds_or(5))
    found = request.grid(plans, needed_data(plans[0].recipe))
    methods = {plan.method: plan.recipe.methods[plan.method] for plan in plans}
    shown = dataclasses.replace(plans[0].recipe, methods=methods)
    report = request.paged(shown, found, command_line("sato_2019", request.dataset, request.seeds, "rivals"))
    lines = [
        f"# sato_2019: rivals from few labels, on {request.dataset}",
        provenance(report),
        "Test error, mean over seeds with the 95 % t interval. In brackets the verdict against plain training, paired "
        "over seeds; cost as a factor of plain training's. Learning rates are those of "
        f"[every method under every question](../../../all_against_all/results/{request.dataset}/ledger.md).",
        table(report, ROWS, report.methods, "plain"),
        *foca_against(report, [name for name in report.methods if name != "foca"]),
    ]
    return save(report, "\n\n".join(lines), ROWS, ("plain",), request.out)
