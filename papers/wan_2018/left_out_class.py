"""Whether likelihoods detect images of a class left out of training: closer to the training set than another dataset.

Several draws of one class, never the same one twice. In each every method is trained on the other classes alone, and
every score must separate test images of the class left out from those of the others. A draw takes the place of a
seed: methods are paired by it.
"""

import dataclasses
from pathlib import Path
from typing import Any

import torch

from clearance.research import Recipe, RunData, RunPlan, Scalar, generator
from papers.engine.ledger import JudgedStudy, TableRow, provenance, save
from papers.engine.study import StudyRequest, needed_data
from papers.wan_2018.protocol import BASELINE, PAPER, PROTOCOLS, base_recipe
from papers.wan_2018.study import Column, method_table, seeds_note
from papers.wan_2018.verification import (
    AUDIT,
    CLASS_MEAN,
    CURVE,
    SCORES,
    AtLearned,
    every_score,
    with_learned_centres,
)

STUDY = "left-out-class"
DRAWS = {"mnist": 3}  # of others 5
CLASSES = {"cifar100": 100}  # others have ten
UNSEEN: dict[str, Scalar] = {"unseen": "classes left out"}
AT_MEANS: dict[str, Scalar] = {**UNSEEN, "score": CLASS_MEAN}
OWN_ERROR = TableRow("error on the other classes", "accuracy", context={"split": "test"})
ROWS = [
    OWN_ERROR,
    AtLearned("detected by the own likelihood (AUROC)", AUDIT, CURVE, context=UNSEEN, better="higher"),
    TableRow(
        "detected by the distance to the class mean (AUROC)", AUDIT, CURVE, context=AT_MEANS, better="higher"
    ),
    AtLearned("passes where 95 % of ordinary images pass", AUDIT, "fpr95", context=UNSEEN),
    AtLearned("rejected at the 5 % threshold", AUDIT, "caught", context=UNSEEN, better="higher"),
]


def left_out_recipe(draw: int, dataset: str = "digits", root: str | None = None) -> Recipe:
    """The paper's recipe without the class of a draw, audited for likelihoods and no attack that knows them.

    Draws go through one permutation of the classes: the same class twice would be no new draw, and intervals over
    draws would not know it.

    Args:
        draw: From 0 to one less than the number of classes.
        dataset: What is run on.
        root: The folder that holds its files.

    Raises:
        ValueError: If there are no classes left to draw.

    >>> [len(left_out_recipe(draw).left_out) for draw in (0, 1)]
    [1, 1]
    """
    classes = CLASSES.get(dataset, 10)
    if draw >= classes:
        raise ValueError(
            f"`seeds` must be at most {classes} draws, one for each class of {dataset}; got draw number {draw + 1}. "
            "Ask for fewer seeds."
        )
    order = torch.randperm(classes, generator=generator(0, "data", "left_out"))
    start = base_recipe(dataset, root)
    settings: dict[str, Any] = {"epsilons": [PROTOCOLS[dataset].epsilons[0]], "adaptive": []}
    return dataclasses.replace(
        start,
        left_out=(int(order[draw]),),
        audits=("accuracy", AUDIT),
        audit_settings={AUDIT: settings},
    )


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: The request. Seeds are draws of a class, each with its own seed, 5 (on MNIST 3) by
            default and at most the number of classes.

    Raises:
        ValueError: If more draws are asked for than there are classes.
        NoDataError: If the dataset's files are not there.
    """
    recipes = [
        left_out_recipe(draw, request.dataset, request.root)
        for draw in range(request.seeds_or(DRAWS.get(request.dataset, 5)))
    ]
    plans: list[RunPlan] = []
    images: list[RunData] = []
    for draw, recipe in enumerate(recipes):
        data = needed_data(recipe)
        plans += [RunPlan(recipe, name, draw) for name in recipe.methods]
        images += [data] * len(recipe.methods)
    trained = request.grid(plans, images)  # one grid: no draw waits for the slowest network of the one before
    found = with_learned_centres(trained, plans, images[0].train.name, request)
    start = dataclasses.replace(recipes[0], seeds=len(recipes))
    draws = [list(recipe.left_out) for recipe in recipes]
    command = JudgedStudy(PAPER, (STUDY,), request.dataset).command(request.seeds)
    report = request.paged(start, found, command, left_out=draws)
    lines = [
        f"# wan_2018: a class that the network has never seen, on {request.dataset}",
        provenance(report),
        f"Left out of training in {len(draws)} draws, which stand for seeds below: "
        f"{'; '.join(', '.join(map(str, draw)) for draw in draws)}. The paper has no such experiment. "
        f"{seeds_note(report)}",
        method_table(report, [Column(row.label, row) for row in ROWS], request.dataset),
        "## Every score (AUROC)",
        every_score(report, UNSEEN, request.dataset),
        "Two scores see pixels and no network. None of this is a defence: nobody made these images to pass.",
    ]
    scores = [
        TableRow(f"AUROC, {score}", AUDIT, CURVE, context={**UNSEEN, "score": score}, better="higher")
        for score in SCORES
    ]
    return save(report, "\n\n".join(lines), [*ROWS, *scores], (BASELINE,), request.out, left_out=draws)
