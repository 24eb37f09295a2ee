"""Parameter groups for a model that ends in a Gaussian mixture: means and variances at step sizes of their own."""

from collections.abc import Iterable
from typing import Any

from torch import nn

from clearance._checks import check_non_negative, check_positive
from clearance.heads.gaussian_mixture import GaussianMixture


def mixture_groups(
    parameters: Iterable[nn.Parameter],
    head: GaussianMixture,
    lr: float,
    *,
    means: float = 2.0,
    variances: float = 0.1,
    weight_decay: float = 0.0,
    means_decay: float = 1.0,
) -> list[dict[str, Any]]:
    """Groups for an optimiser: the rest, the mixture's means, and its variances and priors.

    Args:
        parameters: All that the optimiser may move, as ``fit`` hands them over.
        head: The mixture among them.
        lr: Step size of the rest, above 0.
        means: Times `lr` is that of the means, above 0; 2 as in the authors' CIFAR-100 file.
        variances: Times `lr` is that of variances and learned priors, above 0; 0.1 as in their LeNet file. They
            are never decayed.
        weight_decay: Of the rest, at least 0.
        means_decay: Times `weight_decay` is that of the means, at least 0; 1 as theirs. It draws means to 0, so it
            does depend on where 0 lies.

    Raises:
        ValueError: If a number is out of range.

    With ``fit``, for its `optimizer`: ``lambda moved: torch.optim.SGD(mixture_groups(moved, model.head, 0.05),
    momentum=0.9)``. A schedule scales all groups alike.

    >>> head = GaussianMixture(4, 3, "diagonal")
    >>> network = nn.Sequential(nn.Linear(6, 4), head)
    >>> [(len(group["params"]), round(group["lr"], 4)) for group in mixture_groups(network.parameters(), head, 0.1)]
    [(2, 0.1), (1, 0.2), (1, 0.01)]
    """
    for name, value in (("lr", lr), ("means", means), ("variances", variances)):
        check_positive(name, value)
    for name, value in (("weight_decay", weight_decay), ("means_decay", means_decay)):
        check_non_negative(name, value)
    given = [parameter for parameter in parameters if parameter.requires_grad]
    apart = {id(value): name for name, value in head.named_parameters()}
    rest = [p for p in given if id(p) not in apart]
    middle = [p for p in given if apart.get(id(p)) == "means"]
    spread = [p for p in given if apart.get(id(p), "means") != "means"]
    groups: list[dict[str, Any]] = [
        {"params": rest, "lr": lr, "weight_decay": weight_decay},
        {"params": middle, "lr": means * lr, "weight_decay": means_decay * weight_decay},
        {"params": spread, "lr": variances * lr, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
