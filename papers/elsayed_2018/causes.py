"""Suspected causes of what margins do here, each changed alone in the recipe that was tried.

With few images (claim 4) the recipes count one rival of a sample, as the published code does, where the paper counts
all nine; and they use the margin by itself, which teaches nothing about a sample beyond it, where the paper may have
mixed it with cross-entropy. With wrong labels (claim 1) the margin's gradients are clipped in nearly every step, those
of cross-entropy hardly ever, and clipping alone guards against wrong labels. And the gradient's norm in the
denominator of a distance is a constant in the backward pass (claim 17), as in the published code.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from clearance import Method
from clearance.research import Recipe
from papers.elsayed_2018 import noise, protocol, small_data
from papers.elsayed_2018.protocol import BASELINE, PAPER, PROTOCOLS
from papers.engine.ledger import COST, TableRow, command_line, provenance, save, table
from papers.engine.study import StudyRequest, needed_data, run_conditions

AS_RUN = "margin-l2"
RIVALS: Mapping[str, Mapping[str, Any]] = {
    "all rivals": {"top_k": None},
    "with cross-entropy": {"cross_entropy_weight": 1.0},
}
SHORT = 0.25  # below every gradient of cross-entropy that was seen with labels of which 80 % are wrong, 0.7 and more


@dataclass(frozen=True)
class Question:
    """What a claim's verdict may rest on, and what is changed to see it.

    Args:
        study: Its name.
        claim: Its id.
        asked: The question.
        reading: How to read its table.
        setting: What conditions differ in, and what the table's rows say of each.
        recipes: One for each condition.
    """

    study: str
    claim: str
    asked: str
    reading: str
    setting: tuple[str, str]
    recipes: Mapping[Any, Recipe]


def few_images(request: StudyRequest) -> Question:
    """The study of few images with cross-entropy, the l2 margin, and the margin changed in one respect.

    >>> found = few_images(StudyRequest(Path("out"), dataset="mnist")).recipes
    >>> list(found), list(found[68].methods)[2:]
    ([68, 550, 5500], ['margin-l2, all rivals', 'margin-l2, with cross-entropy'])
    """
    recipes = protocol.small_data_recipes(request.dataset, request.root, request.seeds)
    changed = {
        count: _chosen(
            recipe,
            **{
                f"{AS_RUN}, {name}": _changed(recipe.methods[AS_RUN], change)
                for name, change in RIVALS.items()
            },
        )
        for count, recipe in recipes.items()
    }
    return Question(
        "small-data-causes",
        "4",
        "why margins on few images err no less than cross-entropy",
        "mean over draws with the 95 % t interval, and the verdict against cross-entropy on the same draws. Each "
        "column after the second changes one thing, at the learning rate that was chosen without it.",
        (small_data.SETTING, "images"),
        changed,
    )


def clipped_steps(request: StudyRequest) -> Question:
    """The study of wrong labels at the largest rate, with cross-entropy whose steps are as long as the l2 margin's.

    >>> found = clipped_steps(StudyRequest(Path("out"), dataset="mnist")).recipes
    >>> list(found), list(found[0.8].methods)
    ([0.8], ['cross-entropy', 'margin-l2', 'cross-entropy, steps of margin-l2'])
    """
    rate = PROTOCOLS[request.dataset].noise[-1]
    recipe = protocol.noise_recipe(request.dataset, rate, request.root, request.seeds)
    margin = recipe.methods[AS_RUN]
    control = _with_steps_of(margin, recipe.methods[BASELINE])
    return Question(
        "noise-clipping",
        "1",
        "whether the margin errs less under label noise because its gradients are clipped",
        "mean over seeds with the 95 % t interval, and the verdict against cross-entropy. "
        f"The last column is a control: cross-entropy whose gradients are cut to a norm of {SHORT:g}, with so large a "
        f"learning rate that its steps are as long as the margin's, whose gradients are cut to {margin.clip_norm:g}.",
        (noise.SETTING, "of the training labels wrong"),
        {rate: _chosen(recipe, **{f"{BASELINE}, steps of {AS_RUN}": control})},
    )


def denominators(request: StudyRequest) -> Question:
    """The study of wrong labels at its smallest and largest rate, with the l2 margin differentiated in full, too.

    >>> found = denominators(StudyRequest(Path("out"))).recipes
    >>> list(found), list(found[0.8].methods)
    ([0.0, 0.8], ['cross-entropy', 'margin-l2', 'margin-l2, denominator in full'])
    """
    rates, recipes = PROTOCOLS[request.dataset].noise, {}
    for rate in (rates[0], rates[-1]):
        recipe = protocol.noise_recipe(request.dataset, rate, request.root, request.seeds)
        full = _changed(recipe.methods[AS_RUN], {"denominator": "full"})
        recipes[rate] = _chosen(recipe, **{f"{AS_RUN}, denominator in full": full})
    return Question(
        "denominator",
        "17",
        "whether it costs accuracy to treat the denominator of the distance as a constant",
        "mean over seeds with the 95 % t interval, and the verdict against cross-entropy. In the last column the norm "
        "of the gradient in the denominator is differentiated, too, at the learning rate that was chosen without it.",
        (noise.SETTING, "of the training labels wrong"),
        recipes,
    )


def _with_steps_of(margin: Method, plain: Method) -> Method:
    """Cross-entropy whose gradients are always cut, and whose steps are as long as the margin's where those are.

    What decay takes off a weight in a step is the margin's, too: it is added after gradients are cut.
    """
    if margin.clip_norm is None:
        raise ValueError("the margin's gradients are not clipped, so that its steps have no one length")
    lr = margin.lr * margin.clip_norm / SHORT
    decay = margin.weight_decay * margin.lr / lr
    return dataclasses.replace(plain, clip_norm=SHORT, lr=lr, weight_decay=decay)


def _chosen(recipe: Recipe, **more: Method) -> Recipe:
    kept = {name: recipe.methods[name] for name in (BASELINE, AS_RUN)}
    return dataclasses.replace(recipe, methods={**kept, **more})


def _changed(method: Method, settings: Mapping[str, Any]) -> Method:
    return dataclasses.replace(method, loss_settings={**method.loss_settings, **settings})


def answered(asked: Callable[[StudyRequest], Question], request: StudyRequest) -> Path:
    """Run every condition and write the ledger.

    Args:
        asked: The question.
        request: What was asked for. Seeds are those of the study that the claim was tried in, by default.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    question = asked(request)
    start = next(iter(question.recipes.values()))
    data = needed_data(start)
    found = run_conditions(question.recipes, question.setting[0], data, request)
    command = command_line(PAPER, request.dataset, request.seeds, only=question.study)
    report = request.paged(start, found, command, question.recipes)
    setting, counted = question.setting
    rows = [
        TableRow(f"{value} {counted}", "accuracy", context={"split": "test", setting: value})
        for value in question.recipes
    ]
    rows += [
        dataclasses.replace(COST[0], label=f"{COST[0].label}, {value} {counted}", context={setting: value})
        for value in question.recipes
    ]
    again = [dataclasses.replace(row, label=f"{row.label}, against {AS_RUN}") for row in rows]
    lines = [
        f"# elsayed_2018: {question.asked} ({question.claim})",
        provenance(report),
        f"{request.dataset}, test error; {question.reading}",
        table(report, rows, report.methods, BASELINE),
        table(report, again, report.methods, AS_RUN),
    ]
    return save(report, "\n\n".join(lines), rows, (BASELINE, AS_RUN), request.out)


run_small_data = partial(answered, few_images)
run_clipping = partial(answered, clipped_steps)
run_denominator = partial(answered, denominators)
