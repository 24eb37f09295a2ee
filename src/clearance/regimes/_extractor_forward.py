"""How the extractor runs while a step is made: as it is, in mixed precision, compiled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from clearance.objectives._objective import Objective


class ExtractorForward:
    """Stands in for an extractor's forward pass during training steps; outside them nothing differs.

    Args:
        extractor: Features come back in float32 where mixed precision made them shorter, so that heads, their
            training and the loss are computed in full precision.
        autocast: torch.bfloat16, or None for full precision.
        compiled: Whether torch.compile translates the extractor, once for every shape of batch it meets.
        objective: Read for `layers`, which a compiled extractor does not show.

    Raises:
        ValueError: If `autocast` is another dtype, or the objective reads activations of a compiled extractor.
    """

    def __init__(
        self, extractor: nn.Module, autocast: torch.dtype | None, *, compiled: bool, objective: Objective
    ) -> None:
        _check_precision(autocast)
        if compiled and objective.layers:
            raise ValueError(
                f"`compile_extractor` must be False with {type(objective).__name__}, because it reads the "
                f"activations of {list(objective.layers)} and compiled code keeps none; switch it off."
            )
        self.extractor, self.autocast = extractor, autocast
        self.changes = compiled or autocast is not None
        self.inner = _compiled(extractor.forward) if compiled else extractor.forward

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The extractor runs this way while the block does."""
        if not self.changes:
            yield
            return
        own = vars(self.extractor).get("forward")
        self.extractor.forward = self._forward
        try:
            yield
        finally:
            del self.extractor.forward
            if own is not None:
                self.extractor.forward = own

    def _forward(self, images: Tensor) -> Any:
        if self.autocast is None:
            return self.inner(images)
        with torch.autocast(images.device.type, dtype=self.autocast):
            features = self.inner(images)
        return features.float() if features.dtype == self.autocast else features


def _compiled(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(images: Tensor) -> Any:  # torch.compile passes over torch's own containers, but not over this
        return forward(images)

    return torch.compile(run)


def _check_precision(autocast: torch.dtype | None) -> None:
    if autocast not in (None, torch.bfloat16):
        raise ValueError(
            f"`autocast` must be torch.bfloat16 or None; got {autocast}. In float16 small gradients become 0 "
            "without a loss scaler, which this loop has not."
        )
