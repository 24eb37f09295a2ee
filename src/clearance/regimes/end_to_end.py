"""Ordinary training: extractor and head move together."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from clearance._checks import check_fraction, check_non_negative
from clearance._rng import generator
from clearance.data.image_set import ImageSet
from clearance.data.intake import as_image_set
from clearance.models.classifier import Classifier, check_classifier
from clearance.objectives._objective import Objective
from clearance.objectives.cross_entropy import CrossEntropyLoss
from clearance.regimes._adversarial import Attack, attacked_part
from clearance.regimes._backward import backward_to
from clearance.regimes._distributed import average_gradients, copy_from_first, own_stream
from clearance.regimes._inputs import check_batch, check_logits, check_objective
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
        adversarial: An attack, called in every step as ``attack(model, images, labels)`` with the model in
            evaluation mode; its ``.images`` take the place of a part of the batch. Clearance's attacks change images
            that the model gets wrong already, too. None is plain training.
        adversarial_share: That part, in (0, 1]. A half, the default, keeps clean images in every batch, as
            Kurakin et al. (2017, "at scale") do, whom Elsayed et al. (2018) follow; how these mix them themselves
            no source at hand says. 1 attacks every image (Madry et al. 2018).

    Raises:
        TypeError: If `adversarial` cannot be called.
        ValueError: If a number is out of range.

    Misleads: low loss on attacked images is no measure of robustness; the audit `robustness` is. An attack of
    your own that leaves images alone which the model gets wrong already attacks few in the first steps.

    >>> EndToEnd(CrossEntropyLoss()).head_noise
    0.0
    """

    objective: Objective = field(default_factory=CrossEntropyLoss)
    head_noise: float = 0.0
    adversarial: Attack | None = None
    adversarial_share: float = 0.5
    streams = ("head_noise",)
    trains_head = True

    def __post_init__(self) -> None:
        check_objective(self.objective)
        check_non_negative("head_noise", self.head_noise)
        check_fraction("adversarial_share", self.adversarial_share, open_below=True)
        if self.adversarial is not None and not callable(self.adversarial):
            raise TypeError(
                "`adversarial` must be an attack, called as attack(model, images, labels); got "
                f"{type(self.adversarial).__name__}."
            )

    def generators(self, seed: int) -> dict[str, torch.Generator]:
        """The head's noise and, where there is an attack, its random starts (each process its own)."""
        streams = super().generators(seed)
        if self.adversarial is not None:  # runs without one keep the checkpoints that they always had
            streams["adversarial"] = generator(seed, *own_stream("adversarial"))
        return streams

    def trainable(self, model: Classifier) -> Iterable[nn.Parameter]:
        """Everything: extractor, head and objective."""
        check_classifier(model)
        return [*model.parameters(), *self.objective.parameters()]

    def start(
        self, model: Classifier, data: ImageSet, optimizer: torch.optim.Optimizer, generators: Generators
    ) -> Training:
        """Begin; the batches come from the caller, so of `data` only the classes are read."""
        return _EndToEndTraining(self, model, data, optimizer, generators)


class _EndToEndTraining(Training):
    def __init__(
        self,
        regime: EndToEnd,
        model: Classifier,
        data: ImageSet,
        optimizer: torch.optim.Optimizer,
        generators: Generators,
    ) -> None:
        self.regime, self.model, self.data, self.optimizer = regime, model, as_image_set(data), optimizer
        self.generators = generators
        self._moved = list(regime.trainable(model))
        copy_from_first(model, regime.objective)

    def step(self, images: Tensor, labels: Tensor) -> LossTerms:
        objective = self.regime.objective
        check_batch(images, labels, self.data)
        images = self._attacked(images, labels)
        self.optimizer.zero_grad(set_to_none=True)  # after the attack, which may leave gradients behind
        with self._noisy_head():
            outputs = self.model.outputs(images, objective.layers)
            check_logits(outputs.logits, self.data)
            loss = objective(outputs, labels)
            backward_to(self._moved, loss.total, objective)
        average_gradients(self._moved, len(labels))
        self.optimizer.step()
        with torch.no_grad():
            objective.after_step(outputs, labels)
        return loss

    def _attacked(self, images: Tensor, labels: Tensor) -> Tensor:
        attack, share = self.regime.adversarial, self.regime.adversarial_share
        if attack is None:
            return images
        return attacked_part(attack, self.model, images, labels, share, self.generators["adversarial"])

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
