"""Why jointly trained heads are not worse when they are trained again (claim A6): two suspected causes on MNIST.

The paper finds that a head retrained on all images has more error than the head that was trained with the features.
Where a network shows otherwise, two things differ from the paper that may matter: the short training, which leaves the
model's own head unfinished while the retrained head has features that stand still, and where the network is cut.
Plain training is measured again with one of them changed at a time.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from clearance.research import Comparison, Recipe, Report, RunPlan, Scalar, compare_seeds
from papers.engine.catalogue import paper_recipe
from papers.engine.ledger import COST, OWN_HEAD, TableRow, in_unit, provenance, save, table
from papers.engine.study import StudyRequest, needed_data

AS_RUN = "plain"
LONGER = "plain, three times as long"
TIMES = 3
COMMAND = "python -m papers sato_2019 --only causes --root ROOT"
IMAGES = 60_000
SETTINGS = {"per_class": [1], "repetitions": [20]}


def cause_recipe(longer: bool = False) -> Recipe:
    """Plain training of the MNIST recipe, and the heads of all images behind both cuts.

    >>> cause_recipe(longer=True).epochs / cause_recipe().epochs
    3.0
    """
    start = paper_recipe("sato_2019", "mnist")
    shared = start.audit_settings["co_adaptation"]
    return dataclasses.replace(
        start,
        epochs=start.epochs * (TIMES if longer else 1),
        audits=("accuracy", "co_adaptation", "deeper_cut"),
        audit_settings={name: {**shared, **SETTINGS} for name in ("co_adaptation", "deeper_cut")},
        methods={LONGER if longer else AS_RUN: start.methods["plain"]},
    )


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: What was asked for. Seeds are runs of each variation, those of the recipe, 5, by default.

    Raises:
        NoDataError: If MNIST's files are not there.
    """
    recipes = [dataclasses.replace(cause_recipe(longer), root=request.root) for longer in (True, False)]
    count = request.seeds_or(recipes[0].seeds)
    data = needed_data(recipes[0])
    plans = [RunPlan(recipe, next(iter(recipe.methods)), seed) for recipe in recipes for seed in range(count)]
    found = request.grid(plans, data)
    both = {**recipes[1].methods, **recipes[0].methods}
    shown = dataclasses.replace(recipes[1], methods=both, seeds=count)
    report = request.paged(shown, found, request.command(COMMAND))
    rows = [OWN_HEAD, retrained("co_adaptation"), retrained("deeper_cut"), *COST]
    lines = [
        "# sato_2019: is a retrained head worse than the model's own (A6)?",
        provenance(report),
        "MNIST, plain training; test error, mean over seeds with the 95 % t interval. Each line below changes one "
        "thing and has the retrained head's error less the own head's, paired over seeds, of plain training alone. The "
        "verdict on the claim, which is about every method, is in the paper's ledger of MNIST.",
        table(report, rows, report.methods, AS_RUN),
        "\n".join(
            [
                _line("As the recipe has it", report, AS_RUN, "co_adaptation"),
                _line("Cause 1, the own head is unfinished: training three times as long", report, LONGER,
                      "co_adaptation"),
                _line("Cause 2, the cut: one layer later", report, AS_RUN, "deeper_cut"),
            ]
        ),
    ]  # fmt: skip
    return save(report, "\n\n".join(lines), rows, (AS_RUN,), request.out)


def retrained(audit: str) -> TableRow:
    """The head that is trained again on all images, behind the cut of that audit."""
    context: Mapping[str, Scalar] = {"head": "retrained", "samples": IMAGES}
    where = "one layer later" if audit == "deeper_cut" else "at the recipe's cut"
    return TableRow(f"retrained on all images, {where}", audit, context=context)


def _line(label: str, report: Report, method: str, audit: str) -> str:
    own, again = OWN_HEAD.of(report, method), retrained(audit).of(report, method)
    if not own or not again:
        return f"- {label}: not measured."
    return f"- {label}: {_compared(compare_seeds(again, own, better='higher'))}"


def _compared(one: Comparison) -> str:
    if one.difference is None or one.low is None or one.high is None:
        return "too few seeds to compare."
    word = {"better": "more", "worse": "less"}.get(one.verdict, "not significantly otherwise")
    middle, low, high = (in_unit(v, "fraction") for v in (one.difference, one.low, one.high))
    return f"the retrained head errs **{word}**: {middle} ({low} to {high}; {one.seeds} seeds)."
