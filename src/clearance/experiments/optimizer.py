"""How a run's parameters are moved: the optimiser of a method, and the course of its step size."""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, MultiStepLR

from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.heads import GaussianMixture, mixture_groups
from clearance.models import Classifier


def build_optimizer(method: Method, model: Classifier | None = None) -> Callable[..., Optimizer]:
    """SGD with momentum; means and variances of a mixture have step sizes and decay of their own."""
    head = None if model is None else model.head
    factors = (method.means_lr, method.variances_lr, method.means_decay)
    if not isinstance(head, GaussianMixture) or (head.covariance == "identity" and set(factors) == {1.0}):
        return partial(
            torch.optim.SGD, lr=method.lr, momentum=method.momentum, weight_decay=method.weight_decay
        )
    return partial(mixture_sgd, head=head, method=method)


def mixture_sgd(
    parameters: Iterable[nn.Parameter], *, head: GaussianMixture, method: Method
) -> torch.optim.SGD:
    """SGD over the groups of :func:`clearance.heads.mixture_groups`.

    >>> head = GaussianMixture(4, 3, "diagonal")
    >>> stepper = mixture_sgd(head.parameters(), head=head, method=Method(mixture="diagonal", variances_lr=0.1))
    >>> [round(group["lr"], 4) for group in stepper.param_groups]
    [0.05, 0.005]
    """
    groups = mixture_groups(
        parameters, head, method.lr, means=method.means_lr, variances=method.variances_lr,
        weight_decay=method.weight_decay, means_decay=method.means_decay,
    )  # fmt: skip
    return torch.optim.SGD(groups, lr=method.lr, momentum=method.momentum)


def build_schedule(recipe: Recipe, epochs: int) -> Callable[[Optimizer], LRScheduler] | None:
    """Cosine decay to 0 over so many epochs, a tenth after half and again after three quarters of them, or none."""
    if recipe.schedule == "constant":
        return None
    if recipe.schedule == "tenths":
        return partial(MultiStepLR, milestones=[epochs // 2, 3 * epochs // 4], gamma=0.1)
    return partial(CosineAnnealingLR, T_max=epochs)
