"""What travels from a classifier to an objective, and what comes back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

Head = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Outputs:
    """One batch as a classifier saw it; every tensor keeps its graph.

    Args:
        features: What entered the head, shape (B, D).
        logits: What left it, shape (B, C), or (K, B, C) when K heads read the same features.
        head: The head that made `logits` from `features`.
        activations: Outputs of the layers asked for, by name; ``"input"`` is the images themselves.

    >>> head = torch.nn.Linear(3, 2)
    >>> features = torch.ones(4, 3)
    >>> outputs = Outputs(features, head(features), head)
    >>> other = torch.nn.Linear(3, 2)
    >>> outputs.with_head(other).features is features
    True
    """

    features: Tensor
    logits: Tensor
    head: Head
    activations: Mapping[str, Tensor] = field(default_factory=dict)

    def with_head(self, head: Head) -> "Outputs":
        """The same features and graph, read by another head."""
        return replace(self, logits=head(self.features), head=head)


@dataclass(frozen=True)
class LossTerms:
    """The named terms of a loss, each a 0-dim tensor of at least float32 that already carries its weight.

    Args:
        terms: By name, in the order in which they are shown.

    >>> LossTerms({"cross_entropy": torch.tensor(1.0), "centre": torch.tensor(0.5)}).total
    tensor(1.5000)
    """

    terms: Mapping[str, Tensor]

    @cached_property
    def total(self) -> Tensor:
        """Sum of all terms: the number to differentiate."""
        return torch.stack(list(self.terms.values())).sum()
