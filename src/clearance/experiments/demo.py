"""The demonstration of an audit: a small network trained on the embedded digits, and its page, in seconds."""

import dataclasses
from collections.abc import Callable
from typing import Any

from clearance.experiments.auditing import MODEL_AUDITS, ready_audits
from clearance.experiments.build import build_data
from clearance.experiments.compare import report_of
from clearance.experiments.limits import told_of_images
from clearance.experiments.method import Method
from clearance.experiments.plan import RunPlan
from clearance.experiments.recipe import Recipe
from clearance.experiments.run import run_method
from clearance.experiments.threads import one_thread
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
    fewer = told_of_images(ready_audits(plan, None), data.test)
    return Card(dataclasses.replace(report, recipe={**report.recipe, **fewer}))
