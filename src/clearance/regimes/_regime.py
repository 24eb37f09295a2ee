"""The contract of a regime: which parameters a step may move, and which head is in use."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from clearance._rng import generator
from clearance.data.image_set import ImageSet
from clearance.models.classifier import Classifier
from clearance.objectives._objective import Objective
from clearance.regimes._distributed import own_stream
from clearance.tensors import LossTerms

Generators = Mapping[str, torch.Generator]


class Training(ABC):
    """A regime at work on one model: what ``fit``, or anybody's own loop, calls step by step."""

    @abstractmethod
    def step(self, images: Tensor, labels: Tensor) -> LossTerms:
        """Move the parameters once on a batch: gradients are cleared, the loss goes backward, the optimiser steps.

        Args:
            images: (B, C, H, W), in [0, 1].
            labels: (B,), int64.

        Returns:
            The loss that was stepped on, by term.
        """

    def finish(self) -> None:  # noqa: B027 - doing nothing is right for most regimes
        """Leave the model complete; nothing to do where its head was trained all along."""

    def counts(self) -> dict[str, int]:
        """What happened along the way, counted; nothing where there is nothing to count."""
        return {}

    def diagnostics(self) -> dict[str, float]:
        """What showed besides the loss since this was last asked; ``fit`` asks once an epoch."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold besides model, objective, optimiser and generators."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` gave."""
        del state


class Regime(ABC):
    """Settings of a way to train. Frozen; ``start`` puts it to work.

    Attributes:
        objective: The loss.
        streams: Names of the random generators that ``start`` expects.
        own_streams: Those of them that differ from process to process under torch.distributed.
        trains_head: Whether the model's own head is usable before ``finish``.
    """

    objective: Objective
    streams: tuple[str, ...] = ()
    own_streams: tuple[str, ...] = ()
    trains_head: bool = True

    @abstractmethod
    def trainable(self, model: Classifier) -> Iterable[nn.Parameter]:
        """The parameters that the optimiser may move, the objective's included."""

    @abstractmethod
    def start(
        self, model: Classifier, data: ImageSet, optimizer: torch.optim.Optimizer, generators: Generators
    ) -> Training:
        """Begin training a model; every step is then ``training.step(images, labels)``.

        Args:
            model: Trained in place.
            data: The training images; regimes draw from them what they need besides the batch.
            optimizer: Of ``trainable(model)``.
            generators: As ``generators`` makes them.
        """

    def generators(self, seed: int) -> dict[str, torch.Generator]:
        """One independent generator for each of ``streams``."""
        own = self.own_streams
        return {n: generator(seed, *(own_stream(n) if n in own else (n,))) for n in self.streams}
