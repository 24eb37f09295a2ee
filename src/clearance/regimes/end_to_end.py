"""Ordinary training: extractor and head move together."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from clearance._checks import check_non_negative
from clearance.data.image_set import ImageSet
from clearance.models.classifier import Classifier
from clearance.objectives._objective import Objective
from clearance.objectives.cross_entropy import CrossEntropyLoss
from clearance.regimes._distributed import average_gradients, copy_from_first
from clearance.regimes._regime import Generators, Regime, Training
from clearance.tensors import LossTerms


@dataclass(frozen=True, eq=False)
class EndToEnd(Regime):
    """Minibatch descent on all parameters at once: the joint training that FOCA is compared with.

    min_{phi, theta}  mean_i L(C_theta(F_phi(x_i)), t_i)          (Sato et al. 2019, Eq. 1)

    Args:
        objective: The loss.
        head_noise: Standard deviation, at least 0, of fresh Gaussian noise on every parameter of the head
            in every step (the paper's Noisy baseline, after Graves 2011); the update is applied to the
            parameters without noise. 0 is plain training.

    >>> EndToEnd(CrossEntropyLoss()).head_noise
    0.0
    """

    objective: Objective = field(default_factory=CrossEntropyLoss)
    head_noise: float = 0.0
    streams = ("head_noise",)
    trains_head = True

    def __post_init__(self) -> None:
        check_non_negative("head_noise", self.head_noise)

    def trainable(self, model: Classifier) -> Iterable[nn.Parameter]:
        """Everything: extractor, head and objective."""
        return [*model.parameters(), *self.objective.parameters()]

    def start(
        self, model: Classifier, data: ImageSet, optimizer: torch.optim.Optimizer, generators: Generators
    ) -> Training:
        """Begin; the batches come from the caller, so `data` is not read."""
        del data
        return _EndToEndTraining(self, model, optimizer, generators)


class _EndToEndTraining(Training):
    def __init__(
        self, regime: EndToEnd, model: Classifier, optimizer: torch.optim.Optimizer, generators: Generators
    ) -> None:
        self.regime, self.model, self.optimizer = regime, model, optimizer
        self.generators = generators
        self._moved = list(regime.trainable(model))
        copy_from_first(model, regime.objective)

    def step(self, images: Tensor, labels: Tensor) -> LossTerms:
        objective = self.regime.objective
        self.optimizer.zero_grad(set_to_none=True)
        with self._noisy_head():
            outputs = self.model.outputs(images, objective.layers)
            loss = objective(outputs, labels)
            loss.total.backward()
        average_gradients(self._moved, len(labels))
        self.optimizer.step()
        with torch.no_grad():
            objective.after_step(outputs, labels)
        return loss

    @contextmanager
    def _noisy_head(self) -> Iterator[None]:
        sigma = self.regime.head_noise
        if sigma == 0:
            yield
            return
        parameters = list(self.model.head.parameters())
        clean = [parameter.detach().clone() for parameter in parameters]
        with torch.no_grad():
            for parameter in parameters:
                noise = torch.randn(parameter.shape, generator=self.generators["head_noise"])
                parameter.add_(noise.to(parameter), alpha=sigma)
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, value in zip(parameters, clean, strict=True):
                    parameter.copy_(value)
