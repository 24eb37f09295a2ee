"""The demonstration of an audit: a small network trained on the embedded digits, and its page, in seconds."""

from dataclasses import dataclass
from typing import Any

from clearance.experiments.audit import AuditRequest, Target
from clearance.experiments.audit_plan import MODEL_AUDITS, AuditPlan
from clearance.experiments.build import build_data, build_optimizer, build_schedule, build_way
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.experiments.saved import build_model
from clearance.training import fit

NAME = "demo"
SETTINGS: dict[str, dict[str, Any]] = {  # small settings, for speed; and the out-of-distribution images
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


@dataclass(frozen=True)
class Demo:
    """The source of the demonstration: trains the network, and keeps nothing."""

    name: str = NAME

    def target(self, request: AuditRequest) -> Target:
        """Train, and resolve the recipe's audits; the request has none of its own."""
        request.say("training")
        recipe = demo_recipe()
        method = recipe.methods[NAME]
        data = build_data(recipe)
        model = build_model(recipe.model, method, data.train, seed=0)
        fit(
            model,
            build_way(method, model=model),
            data.train,
            epochs=recipe.epochs,
            batch_size=recipe.batch_size,
            optimizer=build_optimizer(method, model),
            schedule=build_schedule(recipe),
            seed=0,
        )
        return Target(model, data, AuditPlan.of_recipe(recipe).resolved(test=data.test), 0, NAME)
