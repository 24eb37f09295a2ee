"""The demonstration of an audit: a small network trained on the embedded digits, and its page, in seconds."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from clearance.experiments.audit_plan import MODEL_AUDITS, AuditPlan, looked_at
from clearance.experiments.build import build_data
from clearance.experiments.compare import Comparison
from clearance.experiments.engines import one_thread
from clearance.experiments.grid import Piece
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.report import Card

NAME = "demo"
COMMAND = "clearance audit demo"
SETTINGS: dict[str, dict[str, Any]] = {  # small settings, for speed; and the out-of-distribution images
    "co_adaptation": {"per_class": [1, 10, 50], "repetitions": [30, 10, 5], "pixel_limit": 100},
    "minimal_perturbation": {"images": 100, "steps": 40, "queries": 100},
    "out_of_distribution": {"other": "photographs"},
}


def demo_recipe() -> Recipe:
    """A convolutional network with one linear layer, trained plainly for eight epochs.

    >>> list(demo_recipe().methods)
    ['demo']
    """
    return Recipe(
        dataset="digits",
        model="tiny-cnn",
        epochs=8,
        batch_size=64,
        seeds=1,
        audits=MODEL_AUDITS,
        audit_settings=SETTINGS,
        methods={NAME: Method(hidden=(), lr=0.05)},
    )


def demo(on_audit: Callable[[str], object] | None = None) -> Card:
    """Train and audit; only the card is kept.

    Args:
        on_audit: Called with the name of each audit before it starts.
    """
    recipe = demo_recipe()
    data = build_data(recipe)

    def heard(_: Piece, event: Mapping[str, Any]) -> None:
        if on_audit is not None and event["event"] == "audit":
            on_audit(event["name"])

    with one_thread():
        card = Comparison(recipe, data=data, command=COMMAND).run(listener=heard)
    fewer = looked_at(AuditPlan.of_recipe(recipe).audits, data.test)
    return Card(dataclasses.replace(card.report, recipe={**card.report.recipe, **fewer}))
