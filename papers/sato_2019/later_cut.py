"""FOCA with the first of the last layers in its extractor: whether its advantage then holds behind that layer too.

One layer behind the usual cut, FOCA's features are read at a layer that was trained last, on frozen features. Here
every method's network is cut behind that layer from the start, so that FOCA's weak heads see it. The network is the
same; for training end to end the cut changes nothing but where new heads begin.

Learning rates are searched at this cut, the same number for every method, on a quarter of the training images. Of
those with an own error of at most half a point above the lowest of all methods, the one with the lowest error from
one image of each class is taken: methods are compared at equal own error.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearance.research import (
    LEVEL,
    THIN,
    Recipe,
    Report,
    Trial,
    compare_seeds,
    holm,
    markdown_table,
    plans_of,
    search_settings,
)
from papers.engine.catalogue import paper_recipe
from papers.engine.ledger import (
    COST,
    ONE_IMAGE,
    OWN_HEAD,
    TableRow,
    command_line,
    in_unit,
    in_words,
    provenance,
    save,
    table,
)
from papers.engine.study import StudyRequest, needed_data

METHODS = ("plain", "noisy", "batchnorm", "foca")
FACTORS = (0.5, 1.0, 2.0)  # of the rates that the recipe has at its own cut
NEAR = 0.005  # own error above the lowest of all methods
HEADS: dict[str, Any] = {"per_class": [1, 10], "repetitions": [50, 20], "all_images": False}
TEN = {"samples": 100}
ROWS = [
    OWN_HEAD,
    ONE_IMAGE,
    TableRow("retrained on ten images of each class", "co_adaptation", context={"head": "retrained", **TEN}),
    TableRow(
        "nearest class mean, ten images of each class", "co_adaptation", context={"head": "class mean", **TEN}
    ),
    *COST,
]


def later_cut_recipe(dataset: str = "digits", root: str | None = None, seeds: int | None = None) -> Recipe:
    """The paper's recipe with the first hidden layer of the head as the extractor's last, and its heads as new heads.

    >>> method = later_cut_recipe().methods["foca"]
    >>> method.features, method.hidden
    (128, (128,))
    """
    start = paper_recipe("sato_2019", dataset, root, seeds)
    moved = {name: start.methods[name] for name in METHODS}
    return dataclasses.replace(
        start,
        audits=("accuracy", "co_adaptation"),
        audit_settings={"co_adaptation": {**start.audit_settings["co_adaptation"], **HEADS}},
        methods={
            name: dataclasses.replace(method, features=method.hidden[0], hidden=method.hidden[1:])
            for name, method in moved.items()
        },
    )


def run(request: StudyRequest) -> Path:
    """Search learning rates, run the study and write its ledger.

    Args:
        request: The request; seeds are those of the recipe, 5, by default.

    Raises:
        NoDataError: If the dataset's files are not there.
    """
    recipe = later_cut_recipe(request.dataset, request.root, request.seeds)
    data = needed_data(recipe)
    one_seed = dataclasses.replace(recipe, seeds=1)
    trials = search_settings(
        one_seed, request.runs, request.engine, request.listener,
        per_class=(recipe.methods["foca"].per_class,), factors=FACTORS,
    )  # fmt: skip
    chosen = {
        name: dataclasses.replace(method, lr=chosen_trial(trials, name).lr)
        for name, method in recipe.methods.items()
    }
    recipe = dataclasses.replace(recipe, methods=chosen)
    found = request.grid(plans_of(recipe), data)
    report = request.paged(
        recipe, found, command_line("sato_2019", request.dataset, request.seeds, "later-cut")
    )
    rivals = [name for name in report.methods if name != "foca"]
    lines = [
        f"# sato_2019: FOCA with one more layer in its extractor, on {request.dataset}",
        provenance(report),
        "All methods are cut behind the first of the last layers. Test error, mean over seeds with the 95 % t "
        "interval. In brackets the verdict against plain training, paired over seeds; cost as a factor of plain "
        "training's.",
        table(report, ROWS, report.methods, "plain"),
        *foca_against(report, rivals),
        "## The search\n\nOn a quarter of the training images, held out from training, one seed. The chosen rate is "
        f"the one with the lowest error from one image, of those with an own error of at most {100 * NEAR:g} points "
        "above the lowest of all methods.",
        _search_table(trials),
    ]
    return save(
        report,
        "\n\n".join(lines),
        ROWS,
        ("plain",),
        request.out,
        trials=[dataclasses.asdict(t) for t in trials],
    )


def passages_in(tree: Mapping[str, Any], _folder: Path) -> list[str]:
    """The table of the search in a committed ledger, from its trials."""
    return [_search_table([Trial(**trial) for trial in tree["trials"]]).replace(THIN, " ")]


def chosen_trial(trials: list[Trial], name: str) -> Trial:
    """Of a method's trials near the lowest own error of all methods, the one with the lowest one-image error.

    Where none is near, the one with the lowest own error.

    >>> tried = [Trial("a", 0.1, 1, 1, 0.1, None, 0.02, ()), Trial("a", 0.2, 1, 1, 0.05, None, 0.04, ())]
    >>> chosen_trial(tried, "a").lr
    0.1
    """
    measured = [trial for trial in trials if not trial.failed]
    own = [trial for trial in measured if trial.method == name]
    most = min(trial.own_error for trial in measured) + NEAR
    near = [trial for trial in own if trial.own_error <= most]
    if near:
        return min(near, key=lambda trial: trial.one_image_error or 0.0)
    return min(own, key=lambda trial: trial.own_error)


def foca_against(report: Report, rivals: list[str]) -> list[str]:
    """FOCA against each other method from one image, adjusted for their number, and with its own head."""
    own = ONE_IMAGE.of(report, "foca")
    compared = {name: compare_seeds(own, ONE_IMAGE.of(report, name)) for name in rivals}
    adjusted = holm({name: one.p for name, one in compared.items() if one.p is not None})
    lines = []
    for name, one in compared.items():
        if one.difference is None or one.low is None or one.high is None:
            continue
        said = "not significantly otherwise"
        if adjusted[name] < LEVEL:
            said = "less" if one.difference < 0 else "more"
        middle, low, high = (in_unit(value, "fraction") for value in (one.difference, one.low, one.high))
        lines.append(
            f"- From one image of each class FOCA errs **{said}** than {name}: {middle} ({low} to {high}; p = "
            f"{adjusted[name]:.2g} after Holm's adjustment for {len(adjusted)} methods). With the own heads: "
            f"{in_words(report, OWN_HEAD, 'foca', name)}."
        )
    return ["\n".join(lines)] if lines else []


def _search_table(trials: list[Trial]) -> str:
    cells = [["method", "learning rate", "own error", "one-image error", "chosen"]]
    for trial in trials:
        chosen = chosen_trial(trials, trial.method) == trial
        errors = [
            in_unit(error, "fraction") if error is not None else "–"
            for error in (trial.own_error, trial.one_image_error)
        ]
        cells.append([trial.method, f"{trial.lr:g}", *errors, "yes" if chosen else ""])
    return markdown_table(cells)
