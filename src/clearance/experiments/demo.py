"""The demonstration of an audit: a small network trained on the embedded digits, and its page, in seconds."""

import dataclasses
from collections.abc import Callable
from typing import Any

from clearance.experiments.audit_plan import MODEL_AUDITS, looked_at
from clearance.experiments.build import build_data
from clearance.experiments.engines import one_thread
from clearance.experiments.method import Method
from clearance.experiments.provenance import report_of
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import RunPlan, run_method
from clearance.report import Card

NAME = "demo"
COMMAND = "clearance audit demo"
SETTINGS: dict[str, dict[str, Any]] = {  # what keeps it within seconds, and what the network has never seen
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
    """Train and audit; nothing is kept but the card.

    Args:
        on_audit: Told the name of each audit before it starts.
    """
    recipe = demo_recipe()
    plan, data = RunPlan(recipe, NAME, seed=0), build_data(recipe)
    with one_thread():
        report = report_of(recipe, [run_method(plan, data, on_audit=on_audit)], COMMAND)
    fewer = looked_at(plan.audit_plan.audits, data.test)
    return Card(dataclasses.replace(report, recipe={**report.recipe, **fewer}))
