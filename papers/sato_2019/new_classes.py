"""Whether FOCA's features help with classes that were left out of training: measured, claimed by nobody.

Several draws of three classes; per draw every method is trained on the other classes alone, and fresh heads
learn the three from 1, 5 and 20 images of each. A draw takes the place of a seed: methods are paired by it.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearance.research import (
    THIN,
    Recipe,
    Report,
    RunPlan,
    build_data,
    draw_classes,
    printed,
    summarise,
)
from papers.engine.catalogue import paper_recipe
from papers.engine.ledger import COST, TableRow, cost_in_words, provenance, report_in, save, table
from papers.engine.study import StudyRequest

LEFT_OUT = 3
DRAWS = 5
METHODS = ("plain", "dropout", "batchnorm", "foca")
COMMAND = "python -m papers sato_2019 --only new-classes"
HEADS = ("retrained", "linear", "class mean", "class mean, unit length")
PIXELS = "nearest pixel"


def new_classes_recipe(draw: int) -> Recipe:
    """The digits recipe without the classes of a draw.

    >>> new_classes_recipe(0).left_out != new_classes_recipe(1).left_out
    True
    """
    start = paper_recipe("sato_2019", "digits")
    settings: dict[str, Any] = {"new_classes": {"per_class": [1, 5, 20], "repetitions": [50, 20, 10]}}
    return dataclasses.replace(
        start,
        left_out=draw_classes(10, LEFT_OUT, draw),
        audits=("accuracy", "new_classes"),
        audit_settings=settings,
        methods={name: start.methods[name] for name in METHODS},
    )


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: What was asked for. Seeds are draws of classes, each with a seed of its own, 5 by default.
    """
    recipes = [new_classes_recipe(draw) for draw in range(request.seeds_or(DRAWS))]
    plans = [RunPlan(recipe, name, draw) for draw, recipe in enumerate(recipes) for name in recipe.methods]
    images = [data for data in map(build_data, recipes) for _ in METHODS]
    found = request.grid(plans, images)
    start = dataclasses.replace(recipes[0], seeds=len(recipes))
    draws = [list(recipe.left_out) for recipe in recipes]
    report = request.paged(start, found, request.command(COMMAND), left_out=draws)
    own = TableRow("own head, the other classes", "accuracy", context={"split": "test"})
    rows = [own, *_quantities(report), *COST]
    lines = [
        "# sato_2019: classes that the network has never seen",
        provenance(report),
        f"Digits; left out of training in {len(draws)} draws: "
        f"{'; '.join(', '.join(map(str, draw)) for draw in draws)}. Test error, mean over draws with the 95 % t "
        "interval; new heads are trained and tested on the left-out classes alone. In brackets the verdict against "
        "plain training, paired over draws and not adjusted for the number of cells; cost is below, as a "
        "factor of plain training's.",
        table(report, rows, report.methods, "plain"),
        *_pixel_line(report),
        *_all_verdicts(report),
    ]
    return save(report, "\n\n".join(lines), rows, ("plain",), request.out, left_out=draws)


def passages_in(tree: Mapping[str, Any], _folder: Path) -> list[str]:
    """How often methods differ in a committed ledger, from its values."""
    report = report_in(tree, "digits")
    return [part.replace(THIN, " ") for part in (*_pixel_line(report), *_all_verdicts(report))]


def _all_verdicts(report: Report) -> list[str]:
    errors = _quantities(report)
    return [_verdicts(report, method, errors) for method in report.methods if method != "plain"]


def _quantities(report: Report) -> list[TableRow]:
    """Every head on every number of images that was measured."""
    sizes = sorted(
        {r.measurement.context["per_class"] for r in report.records if r.measurement.audit == "new_classes"}
    )
    return [_quantity(head, size) for head in HEADS for size in sizes]


def _quantity(head: str, size: Any) -> TableRow:
    context = {"head": head, "per_class": size}
    return TableRow(f"new classes, {head}, {_images(size)} of each", "new_classes", context=context)


def _pixel_line(report: Report) -> list[str]:
    """The nearest training image on raw pixels, which no network has a part in: shown once."""
    found = []
    for size in sorted({quantity.context["per_class"] for quantity in _quantities(report)}):
        values = _quantity(PIXELS, size).of(report, "plain")
        if values:
            found.append(f"{printed(summarise(values).mean, 'fraction')} with {_images(size)} of each")
    return [f"The nearest image on raw pixels, no network: {', '.join(found)}."] if found else []


def _verdicts(report: Report, method: str, errors: list[TableRow]) -> str:
    """How often a method differed significantly from plain training on new classes, and what it cost."""
    found = [quantity.compared(report, method, "plain") for quantity in errors]
    verdicts = Counter(one.verdict for one in found if one is not None and one.low is not None)
    cost = cost_in_words(report, method, "plain")
    if not verdicts:
        return f"- {method} against plain on new classes: no verdict" + (f"; {cost}." if cost else ".")
    counts = ", ".join(f"{verdict} {verdicts[verdict]}" for verdict in ("better", "worse", "inconclusive"))
    return f"- {method} against plain on new classes, of {sum(verdicts.values())} cells: {counts}; {cost}."


def _images(count: Any) -> str:
    return f"{count} image{'' if count == 1 else 's'}"
