"""Shares of classes, as an argument and as a parameter of a head."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from clearance._checks import check_choice

Priors = Literal["uniform", "learned"] | Sequence[float] | Tensor


def log_prior_parameter(priors: Priors, classes: int) -> nn.Parameter:
    """Log-priors of a new head, (K,), with a gradient where they are learned.

    A parameter and not a buffer where they stay fixed, too: K of these heads can then be stacked.

    Raises:
        ValueError: Unless it is one of the two words, or K probabilities above 0 that sum to one.
    """
    if isinstance(priors, str):
        if str(priors) == "empirical":  # a method's word: it has labels to count
            raise ValueError(
                "`priors` must be 'uniform', 'learned' or probabilities, because a head has no labels to count; got "
                f"{priors!r}. Pass the shares themselves, labels.bincount() / len(labels)."
            )
        check_choice("priors", priors, ("uniform", "learned"))
        return nn.Parameter(torch.zeros(classes), requires_grad=priors == "learned")
    fixed = checked_priors(priors, classes).log().to(torch.get_default_dtype())
    return nn.Parameter(fixed, requires_grad=False)


def checked_priors(priors: Sequence[float] | Tensor, classes: int) -> Tensor:
    """The priors as float64.

    Raises:
        ValueError: Unless they are so many probabilities above 0 that sum to one.
    """
    try:
        given = torch.as_tensor(priors, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"`priors` must be {classes} probabilities above 0 that sum to one; got {priors!r}."
        ) from None
    if given.shape != (classes,) or not bool((given > 0).all()) or abs(float(given.sum()) - 1) > 1e-6:
        raise ValueError(
            f"`priors` must be {classes} probabilities above 0 that sum to one; got {given.tolist()}. "
            "Divide counts by their sum; a class that never occurs needs a small share."
        )
    return given
