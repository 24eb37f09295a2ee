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
    """SGD with momentum; means, variances and priors of a mixture have step sizes and decay of their own."""
    head = None if model is None else model.head
    if not isinstance(head, GaussianMixture) or _needs_no_groups(head, method):
        return partial(
            torch.optim.SGD, lr=method.lr, momentum=method.momentum, weight_decay=method.weight_decay
        )
    return partial(
        mixture_sgd, head=head, lr=method.lr, momentum=method.momentum, weight_decay=method.weight_decay,
        means=method.means_lr, variances=method.variances_lr, means_decay=method.means_decay,
    )  # fmt: skip


def _needs_no_groups(head: GaussianMixture, method: Method) -> bool:
    """Whether the means alone are learned, as every other weight is."""
    only_means = head.covariance == "identity" and not head.log_priors.requires_grad
    return only_means and method.means_lr == method.variances_lr == method.means_decay == 1


def mixture_sgd(
    parameters: Iterable[nn.Parameter],
    *,
    head: GaussianMixture,
    lr: float,
    momentum: float,
    weight_decay: float,
    means: float,
    variances: float,
    means_decay: float,
) -> torch.optim.SGD:
    """SGD over the groups of :func:`clearance.heads.mixture_groups`, which says what the numbers are.

    >>> head = GaussianMixture(4, 3, "diagonal")
    >>> factors = {"means": 1.0, "variances": 0.1, "means_decay": 1.0}
    >>> stepper = mixture_sgd(head.parameters(), head=head, lr=0.05, momentum=0.9, weight_decay=0.0, **factors)
    >>> [round(group["lr"], 4) for group in stepper.param_groups]
    [0.05, 0.005]
    """
    groups = mixture_groups(
        parameters,
        head,
        lr,
        means=means,
        variances=variances,
        weight_decay=weight_decay,
        means_decay=means_decay,
    )
    return torch.optim.SGD(groups, lr=lr, momentum=momentum)


def build_schedule(recipe: Recipe) -> Callable[[Optimizer], LRScheduler] | None:
    """Cosine decay to 0 over the run, a tenth after half and again after three quarters of it, or none.

    In epochs, or in updates where the recipe counts those: the course is then the same whatever the number of images.
    """
    length = recipe.epochs if recipe.steps is None else recipe.steps
    if recipe.schedule == "constant":
        return None
    if recipe.schedule == "tenths":
        milestones = [
            max(1, length // 2),
            max(1, 3 * length // 4),
        ]  # at 0 it would turn before the first update
        return partial(MultiStepLR, milestones=milestones, gamma=0.1)
    return partial(CosineAnnealingLR, T_max=length)
