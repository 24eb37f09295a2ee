"""Ordinary training: extractor and head move together."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from clearance._checks import check_fraction, check_non_negative
from clearance._rng import generator
from clearance.data.image_set import ImageSet
from clearance.data.intake import as_image_set
from clearance.losses._loss import Loss
from clearance.losses.cross_entropy import CrossEntropyLoss
from clearance.models._running import in_evaluation_mode
from clearance.models.classifier import Classifier, check_classifier, check_logits
from clearance.tensors import LossTerms
from clearance.training._distributed import average_gradients, copy_from_first, own_stream
from clearance.training._way import (
    Generators,
    Training,
    WayOfTraining,
    backward_to,
    check_batch,
    check_loss,
)

_LARGEST_SEED = 2**31 - 1


class Attack(Protocol):
    """Anything that is called with a model, images in [0, 1] and labels, and returns images."""

    def __call__(self, model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor, /) -> Any:
        """The attacked images, or an object with an attribute `images`."""


@dataclass(frozen=True, eq=False)
class EndToEnd(WayOfTraining):
    """Minibatch descent on all parameters at once: the joint training that FOCA is compared with.

    min_{phi, theta}  mean_i L(C_theta(F_phi(x_i)), t_i)          (Sato et al. 2019, Eq. 1)

    Args:
        loss: The loss.
        head_noise: Standard deviation, at least 0, of fresh Gaussian noise on every parameter of the head
            in every step (the paper's Noisy baseline, after Graves 2011); the update is applied to the
            parameters without noise. 0 is plain training.
        adversarial: An attack, called in every step as ``attack(model, images, labels)`` with the model in
            evaluation mode; its ``.images`` replace a part of the batch. Clearance's attacks also change images
            that the model already misclassifies. None is plain training.
        adversarial_share: That part, in (0, 1]. The default of a half keeps clean images in every batch, as
            Kurakin et al. (2017, "at scale") do. Elsayed et al. (2018) follow them; their own mixture is not in
            the sources available to us. 1 attacks every image (Madry et al. 2018).

    Raises:
        TypeError: If `adversarial` cannot be called.
        ValueError: If a number is out of range.

    Limits: a low loss on attacked images does not measure robustness; the audit `robustness` does. If your own
    attack skips images that the model already misclassifies, it attacks few images in the first steps.

    >>> EndToEnd(CrossEntropyLoss()).head_noise
    0.0
    """

    loss: Loss = field(default_factory=CrossEntropyLoss)
    head_noise: float = 0.0
    adversarial: Attack | None = None
    adversarial_share: float = 0.5
    streams = ("head_noise",)
    trains_head = True

    def __post_init__(self) -> None:
        check_loss(self.loss)
        check_non_negative("head_noise", self.head_noise)
        check_fraction("adversarial_share", self.adversarial_share, open_below=True)
        if self.adversarial is not None and not callable(self.adversarial):
            raise TypeError(
                "`adversarial` must be an attack, called as attack(model, images, labels); got "
                f"{type(self.adversarial).__name__}."
            )

    def generators(self, seed: int) -> dict[str, torch.Generator]:
        """The head's noise and, with an attack, its random starts (different in each process)."""
        streams = super().generators(seed)
        if self.adversarial is not None:
            streams["adversarial"] = generator(seed, *own_stream("adversarial"))
        return streams

    def trainable(self, model: Classifier) -> Iterable[nn.Parameter]:
        """Everything: extractor, head and loss."""
        check_classifier(model)
        return [*model.parameters(), *self.loss.parameters()]

    def start(
        self, model: Classifier, data: ImageSet, optimizer: torch.optim.Optimizer, generators: Generators
    ) -> Training:
        """Start; batches come from the caller, so only the classes of `data` are read."""
        return _EndToEndTraining(self, model, data, optimizer, generators)


class _EndToEndTraining(Training):
    def __init__(
        self,
        way: EndToEnd,
        model: Classifier,
        data: ImageSet,
        optimizer: torch.optim.Optimizer,
        generators: Generators,
    ) -> None:
        self.way, self.model, self.data, self.optimizer = way, model, as_image_set(data), optimizer
        self.generators = generators
        self._moved = list(way.trainable(model))
        copy_from_first(model, way.loss)

    def step(self, images: Tensor, labels: Tensor) -> LossTerms:
        loss = self.way.loss
        check_batch(images, labels, self.data)
        images = self._attacked(images, labels)
        self.optimizer.zero_grad(set_to_none=True)  # after the attack, which may leave gradients behind
        with self._noisy_head():
            outputs = self.model.outputs(images, loss.layers)
            check_logits(outputs.logits, self.data.class_count)
            terms: LossTerms = loss(outputs, labels)
            backward_to(self._moved, terms.total, loss)
        average_gradients(self._moved, len(labels))
        self.optimizer.step()
        with torch.no_grad():
            loss.after_step(outputs, labels)
        return terms

    def _attacked(self, images: Tensor, labels: Tensor) -> Tensor:
        attack, share = self.way.adversarial, self.way.adversarial_share
        if attack is None:
            return images
        return attacked_part(attack, self.model, images, labels, share, self.generators["adversarial"])

    @contextmanager
    def _noisy_head(self) -> Iterator[None]:
        sigma = self.way.head_noise
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


def attacked_part(
    attack: Attack, model: nn.Module, images: Tensor, labels: Tensor, share: float, stream: torch.Generator
) -> Tensor:
    """The batch with its first round(share * B) images attacked, at least one.

    Attacks with a method `perturbed`, such as Clearance's, also change images that the model already misclassifies.
    Training that is adversarial from its first step needs this, because most images are then misclassified.

    The model is in evaluation mode while it is attacked: dropout is off and batch normalisation uses, and keeps,
    its running statistics. If an attack, or an attack inside it, has a setting `seed`, it gets a new seed from `stream`
    in every step: its random starts differ from step to step, and a resumed run draws the same ones.

    Raises:
        TypeError: If the attack returns no images.
        ValueError: If the attack returns images of another shape, or with values outside [0, 1].
    """
    count = max(1, round(share * len(images)))
    chosen = images[:count].detach()
    with in_evaluation_mode(model):
        found = _changed(_seeded(attack, stream), model, chosen, labels[:count]).detach()
    _check_images(found, chosen)
    return torch.cat([found.to(images), images[count:].detach()])


def _changed(attack: Attack, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    perturbed: Callable[..., Tensor] | None = getattr(attack, "perturbed", None)
    if perturbed is not None:
        return perturbed(model, images, labels)
    made = attack(model, images, labels)
    found = made if isinstance(made, Tensor) else getattr(made, "images", None)
    if not isinstance(found, Tensor):
        raise TypeError(
            f"the attack must return images, as a tensor or as the attribute `images` of what it returns; got "
            f"{type(made).__name__}. clearance.attacks.as_attack makes an attack of any callable."
        )
    return found


def _seeded(attack: Attack, stream: torch.Generator) -> Attack:
    if not dataclasses.is_dataclass(attack) or isinstance(attack, type):
        return attack
    names = [field.name for field in dataclasses.fields(attack) if field.init]
    changed: dict[str, Any] = {
        name: _seeded(value, stream) for name in names if hasattr(value := getattr(attack, name), "perturbed")
    }
    if "seed" in names:
        changed["seed"] = int(torch.randint(_LARGEST_SEED, (), generator=stream))
    return dataclasses.replace(attack, **changed) if changed else attack


def _check_images(found: Tensor, given: Tensor) -> None:
    if found.shape != given.shape:
        raise ValueError(
            f"the attack must return images of shape {tuple(given.shape)}; got {tuple(found.shape)}."
        )
    if not bool(((found >= 0) & (found <= 1)).all()):  # nan is outside, too
        low, high = found.aminmax()
        raise ValueError(
            f"the attack must return images in [0, 1]; got values from {float(low):.3g} to {float(high):.3g}. "
            "Clip them."
        )
