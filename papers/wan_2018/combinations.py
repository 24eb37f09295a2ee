"""Combinations that no source has: FOCA with Gaussian-mixture heads, and L-GM with a large margin added, on digits.

Each is compared with its parts. FOCA's heads are then not trained but fitted: the class means and a shrunken
variance of one image or a few of each class. L-GM and the large margin of Elsayed et al. (2018) are added up under
ordinary training, one backward pass for both.

Both FOCA methods, and `gm` once more for comparison, have batch normalisation: without it features under mixture heads
grow without end and nothing is learned, at every learning rate tried (docs/foca.md, "Heads in closed form").
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearance import Method
from clearance.research import Recipe, Report, build_data, plans_of
from papers.engine.catalogue import paper_recipe, with_rates
from papers.engine.ledger import COST, ONE_IMAGE, OWN_HEAD, TableRow, in_words, provenance, save, table
from papers.engine.study import StudyRequest
from papers.wan_2018.protocol import BASELINE, PAPER

COMMAND = "python -m papers wan_2018 --only combinations"
FOCA, FOCA_GM, MARGIN, BOTH = "foca", "foca, mixture heads", "large-margin", "lgm + large-margin"
GM_NORMALISED = "gm, batch norm"
UNDER_ATTACK = TableRow(
    "right under the worst attack at epsilon 0.1", "robustness", "robust_accuracy",
    context={"norm": "inf", "epsilon": 0.1}, better="higher",
)  # fmt: skip
PAIRS = ((FOCA_GM, FOCA), (FOCA_GM, GM_NORMALISED), (BOTH, "lgm"), (BOTH, MARGIN))
# Of the tuned recipe for digits: nothing was searched for this network.
MARGINS: dict[str, Any] = {
    "layers": ["input", "features"],
    "gamma": {"input": 1.0, "features": {"quantile": 0.9}},
    "max_slope": None,  # the published formula
}
PER_CLASS = 1  # images of every class that a weak head sees
HEADS: dict[str, Any] = {"way": "foca", "norm": "batch", "per_class": PER_CLASS, "final_head_steps": 1000}


def combinations_recipe(seeds: int | None = None) -> Recipe:
    """Softmax, every part alone and both combinations, on digits, in the network of the other studies.

    >>> list(combinations_recipe().methods)
    ['softmax', 'gm', 'lgm', 'gm, batch norm', 'foca', 'foca, mixture heads', 'large-margin', 'lgm + large-margin']
    """
    start = paper_recipe(PAPER, "digits", None, seeds)
    known = {name: start.methods[name] for name in (BASELINE, "gm", "lgm")}
    softmax, lgm = known[BASELINE], known["lgm"]
    parts = {
        "lgm": {"loss": "gaussian-mixture", **lgm.loss_settings},
        "margin": {"loss": "large-margin", **MARGINS, "cross_entropy_weight": 0.0},
    }
    methods: dict[str, Method] = {
        **known,
        GM_NORMALISED: dataclasses.replace(known["gm"], norm="batch"),
        FOCA: dataclasses.replace(softmax, **HEADS),
        FOCA_GM: dataclasses.replace(softmax, **HEADS, weak_heads="mixture", mixture="scalar"),
        MARGIN: dataclasses.replace(softmax, loss="large-margin", loss_settings=MARGINS),
        BOTH: dataclasses.replace(lgm, loss="sum", loss_settings={"parts": parts}),
    }
    recipe = dataclasses.replace(
        start,
        audits=("accuracy", "co_adaptation", "robustness"),
        audit_settings={
            "co_adaptation": {"per_class": [1], "repetitions": [50], "all_images": False},
            "robustness": {"epsilons": {"inf": [0.1]}, "images": 300},
        },
        methods=methods,
    )
    return with_rates(recipe, PAPER, "combinations")


def run(request: StudyRequest) -> Path:
    """Run the study and write its ledger.

    Args:
        request: What was asked for. Seeds are runs of each method, those of the recipe, 5, by default.
    """
    recipe = combinations_recipe(request.seeds)
    found = request.grid(plans_of(recipe), build_data(recipe))
    report = request.paged(recipe, found, request.command(COMMAND))
    rows = [OWN_HEAD, ONE_IMAGE, UNDER_ATTACK, *COST]
    lines = [
        "# wan_2018: combinations, on digits",
        provenance(report),
        "Mean over seeds with the 95 % t interval, in brackets the verdict against softmax. No source combines these.",
        f"With batch normalisation: `{GM_NORMALISED}`, `{FOCA}`, `{FOCA_GM}`. Without: all others.",
        table(report, rows, report.methods, BASELINE),
        "\n".join(_sentences(report, [OWN_HEAD, ONE_IMAGE, UNDER_ATTACK])),
    ]
    return save(
        report, "\n\n".join(lines), rows, (BASELINE, FOCA, "gm", GM_NORMALISED, "lgm", MARGIN), request.out
    )


def _sentences(report: Report, rows: Sequence[TableRow]) -> list[str]:
    """Every combination against each of its parts."""
    return [
        f"- {combined} against {part}, {row.label}: {in_words(report, row, combined, part)}"
        for combined, part in PAIRS
        for row in rows
    ]
