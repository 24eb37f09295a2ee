"""The demonstration of an audit: a small network trained on the embedded digits, and its page, in seconds."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from clearance._rng import generator
from clearance.data import ImageSet
from clearance.experiments.audit import AuditRequest, Target
from clearance.experiments.audit_plan import MODEL_AUDITS, AuditPlan
from clearance.experiments.build import build_data
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.experiments.saved import build_model

NAME = "demo"
SETTINGS: dict[str, dict[str, Any]] = {  # small settings, for speed; and the out-of-distribution images
    "minimal_perturbation": {"images": 50, "steps": 40, "queries": 100},
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

    def target(self, request: AuditRequest) -> Target:
        """Train, and resolve the recipe's audits; the request has none of its own."""
        request.say("training")
        recipe = demo_recipe()
        method = recipe.methods[NAME]
        data = build_data(recipe)
        model = build_model(recipe.model, method, data.train, seed=0)
        _train(model, data.train, recipe, method)
        return Target(model, data, AuditPlan.of_recipe(recipe).resolved(test=data.test), 0, NAME)


def _train(model: nn.Module, data: ImageSet, recipe: Recipe, method: Method) -> None:
    """SGD with momentum and a cosine schedule, by hand.

    The first optimizer of torch.optim imports torch's compiler, which takes longer than this training.
    """
    weights = list(model.parameters())
    velocities = [torch.zeros_like(weight) for weight in weights]
    order = generator(0, "demo", "order")
    for epoch in range(recipe.epochs):
        rate = method.lr * (1 + math.cos(math.pi * epoch / recipe.epochs)) / 2
        for rows in torch.randperm(len(data), generator=order).split(recipe.batch_size):
            loss = nn.functional.cross_entropy(model(data.images[rows]), data.labels[rows])
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                for weight, velocity, gradient in zip(weights, velocities, gradients, strict=True):
                    velocity.mul_(method.momentum).add_(gradient)
                    weight.sub_(velocity, alpha=rate)
