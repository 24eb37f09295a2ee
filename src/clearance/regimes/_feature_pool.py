"""Recent training features, kept so that weak heads can be trained without another forward pass."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearance.regimes._class_balanced import ClassBalancedDraws


class FeaturePool:
    """The last `size` detached features that the extractor gave on its own batches, with their labels.

    Features of older steps are those of an older extractor: at most size / batch size steps behind.

    >>> pool = FeaturePool(size=3, classes=2)
    >>> pool.add(torch.arange(4.0)[:, None], torch.tensor([0, 1, 0, 0]))
    >>> pool.features.flatten().tolist(), pool.holds_every_class
    ([1.0, 2.0, 3.0], True)
    """

    def __init__(self, size: int, classes: int) -> None:
        if 0 < size < classes:
            raise ValueError(
                f"`pool` must be 0 or at least the number of classes, {classes}, because heads are trained on "
                f"all of them; got {size}. Take several batches' worth."
            )
        self.size, self.classes = size, classes
        self.features: Tensor | None = None
        self.labels: Tensor | None = None

    @property
    def holds_every_class(self) -> bool:
        """Whether heads can be trained on it."""
        if self.labels is None:
            return False
        return bool((torch.bincount(self.labels, minlength=self.classes) > 0).all())

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Put a batch's features (B, D) and labels (B,) in; the oldest go."""
        if self.size == 0:
            return
        features = features.detach()
        if self.features is not None and self.labels is not None:
            features = torch.cat([self.features, features])
            labels = torch.cat([self.labels, labels])
        # Copies, so that neither a caller's tensor nor what has gone is kept alive.
        self.features, self.labels = features[-self.size :].clone(), labels[-self.size :].clone()

    def draw(self, heads: int, per_class: int, stream: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features (K, n, D) and labels (K, n), class-balanced, drawn with replacement."""
        assert self.features is not None
        assert self.labels is not None
        rows = ClassBalancedDraws(self.labels, self.classes).draw(heads, per_class, stream)
        return self.features[rows], self.labels[rows]

    def state_dict(self) -> dict[str, Any]:
        """What is in it."""
        return {"features": self.features, "labels": self.labels}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Continue with what was in it."""
        features, labels = state["features"], state["labels"]
        self.features = None if features is None else features.to(device)
        self.labels = None if labels is None else labels.to(device)
