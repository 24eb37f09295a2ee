"""Several losses at once."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from clearance._checks import check_choice, check_non_negative
from clearance.losses._loss import Loss
from clearance.tensors import LossTerms, Outputs


class SumLoss(Loss):
    """The weighted sum of several losses, in one backward pass.

    L = sum_p w_p L_p

    Args:
        parts: Losses by name, at least one. A part's term ``"t"`` is called ``"part/t"``; the layers of all are
            read once.
        weights: w_p by name, at least 0; parts that are not named have 1.

    Raises:
        TypeError: If `parts` is no mapping, or holds something else than losses.
        ValueError: If there is no part, or a weight names no part or is out of range.

    Two parts with cross-entropy count it twice: set `cross_entropy_weight` of one to 0. FOCA's heads, which are
    trained on fixed features, use plain cross-entropy unless there is only one part.

    >>> from clearance.losses.cross_entropy import CrossEntropyLoss
    >>> from clearance.losses.hinge import HingeLoss
    >>> both = SumLoss({"softmax": CrossEntropyLoss(), "hinge": HingeLoss()}, {"hinge": 0.5})
    >>> outputs = Outputs(torch.zeros(4, 2), torch.zeros(4, 10), torch.nn.Identity())
    >>> {name: round(float(term), 3) for name, term in both(outputs, torch.arange(4)).terms.items()}
    {'softmax/cross_entropy': 2.303, 'hinge/hinge': 0.5}
    """

    def __init__(self, parts: Mapping[str, Loss], weights: Mapping[str, float] | None = None) -> None:
        super().__init__()
        if not isinstance(parts, Mapping):
            raise TypeError(
                f"`parts` must be losses by name, {{'margin': loss, ...}}; got {type(parts).__name__}."
            )
        if not parts:
            raise ValueError("`parts` must hold at least one loss; got none. Name those to add up.")
        for name, part in parts.items():
            if not isinstance(part, Loss):
                raise TypeError(f"`parts` must hold losses; got {type(part).__name__} under {name!r}.")
            if not isinstance(name, str) or not name.isidentifier() or hasattr(nn.ModuleDict, name):
                raise ValueError(f"`parts` must have names such as 'softmax' or 'margin'; got {name!r}.")
        self._still = max(part._still for part in parts.values())
        self._takes_probabilities = all(part._takes_probabilities for part in parts.values())
        self.weights = dict.fromkeys(parts, 1.0) | dict(weights or {})
        for name, weight in self.weights.items():
            check_choice("weights", name, parts)
            check_non_negative("weights", weight)
        self.parts = nn.ModuleDict(parts)
        self.layers = tuple(dict.fromkeys(layer for part in parts.values() for layer in part.layers))
        self.reads_logits_only = all(part.reads_logits_only for part in parts.values())

    @property
    def sample_loss(self) -> Callable[[Tensor, Tensor], Tensor] | None:  # type: ignore[override]
        """That of a single part; several have none."""
        return next(iter(self.parts.values())).sample_loss if len(self.parts) == 1 else None  # type: ignore[return-value]

    @property
    def _trains_head(self) -> bool:  # type: ignore[override]
        return any(part._trains_head and self.weights[name] > 0 for name, part in self.parts.items())

    def forward(self, outputs: Outputs, labels: Tensor) -> LossTerms:
        """The terms of all parts, each with its weight."""
        terms: dict[str, Tensor] = {}
        for name, part in self.parts.items():
            assert isinstance(part, Loss)
            part._watched = False  # the sum is
            try:
                found = part(outputs, labels).terms
            finally:
                part._watched = True
            terms |= {f"{name}/{term}": self.weights[name] * value for term, value in found.items()}
        return LossTerms(terms)

    @torch.no_grad()
    def after_step(self, outputs: Outputs, labels: Tensor) -> None:
        """Call ``after_step`` of every part."""
        super().after_step(outputs, labels)
        for part in self.parts.values():
            assert isinstance(part, Loss)
            part.after_step(outputs, labels)
