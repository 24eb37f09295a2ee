"""How weak the weak heads are: their accuracy on the extractor's batches, from logits that are there anyway."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class Weakness:
    """Accuracy of heads on batches that they were not trained on, gathered since it was last told.

    Near 1, heads are strong: they agree with one another, and there is little left to learn from them. At
    chance (1 / classes) or below they are mostly noise.

    >>> weakness = Weakness()
    >>> logits = torch.eye(2).expand(3, 2, 2)
    >>> weakness.note(logits, torch.tensor([0, 1]))
    >>> weakness.tell()
    {'weak_head_accuracy': 1.0, 'weak_heads_at_chance': 0.0}
    """

    def __init__(self) -> None:
        self._sums: Tensor | None = None  # accuracy, heads at chance, heads; on the device: no wait for it

    @torch.no_grad()
    def note(self, logits: Tensor, labels: Tensor) -> None:
        """Count K heads by their logits (K, B, C) for labels (B,)."""
        accuracy = (logits.argmax(dim=-1) == labels).double().mean(dim=-1)
        at_chance = (accuracy <= 1 / logits.shape[-1]).double()
        sums = torch.stack([accuracy.sum(), at_chance.sum(), accuracy.new_tensor(float(len(accuracy)))])
        self._sums = sums if self._sums is None else self._sums + sums

    def tell(self) -> dict[str, float]:
        """Mean accuracy, and the share of heads at chance or below, over all noted; then begin anew."""
        if self._sums is None:
            return {}
        accuracy, at_chance, heads = self._sums.tolist()
        self._sums = None
        return {"weak_head_accuracy": accuracy / heads, "weak_heads_at_chance": at_chance / heads}

    def state_dict(self) -> dict[str, Any]:
        """What was noted since it was last told."""
        return {"sums": self._sums}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Continue in the middle of an epoch."""
        self._sums = None if state["sums"] is None else state["sums"].to(device)
