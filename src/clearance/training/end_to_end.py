"""Ordinary training: extractor and head move together."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from clearance._checks import check_count, check_fraction, check_non_negative
from clearance._processes import average_gradients, copy_from_first, own_stream
from clearance._rng import generator
from clearance.attacks.foreign import ForeignAttack
from clearance.data.intake import open_images
from clearance.losses._loss import Loss
from clearance.losses.cross_entropy import CrossEntropyLoss
from clearance.models._running import in_evaluation_mode
from clearance.models.classifier import Classifier, check_classifier, check_logits
from clearance.tensors import LossTerms
from clearance.training._way import (
    Generators,
    Training,
    WayOfTraining,
    check_batch,
    check_loss,
    check_moved,
    check_optimizer,
    checked_generators,
)
from clearance.training.trades import TRADES

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
            that the model already misclassifies. With :class:`~clearance.training.TRADES` all images stay, and the
            divergence between the predictions of that part and of its attacked images joins the loss, as the term
            ``"divergence"``. None is plain training.
        adversarial_share: That part, in (0, 1]. The default of a half keeps clean images in every batch, as
            Kurakin et al. (2017, "at scale") do. Elsayed et al. (2018) follow them; their own mixture was not
            found. 1 attacks every image (Madry et al. 2018; Zhang et al. 2019).
        adversarial_rise: Steps in which the attack's radius rises: in step t = 1, 2, ... it is
            epsilon min(1, t / adversarial_rise). At a large radius a new network may learn nothing but the shares of
            the classes; a radius that rises prevents that. 0 is the whole radius from the first step. A length of
            step that was given to the attack is not changed, the default follows the radius.

    Raises:
        TypeError: If `adversarial` cannot be called.
        ValueError: If a number is out of range, or the radius is to rise and the attack has none: a dataclass's field
            `epsilon`.

    Limits: a low loss on attacked images does not measure robustness; the audit `robustness` does. If your own
    attack skips images that the model already misclassifies, it attacks few images in the first steps.

    >>> EndToEnd(CrossEntropyLoss()).head_noise
    0.0
    """

    loss: Loss = field(default_factory=CrossEntropyLoss)
    head_noise: float = 0.0
    adversarial: Attack | None = None
    adversarial_share: float = 0.5
    adversarial_rise: int = 0
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
        check_count("adversarial_rise", self.adversarial_rise, minimum=0)
        if self.adversarial_rise and "epsilon" not in _settings(self.adversarial):
            raise ValueError(
                "`adversarial_rise` must be 0 without an attack that is a dataclass with a field `epsilon`, as those "
                f"of clearance.attacks are; got {self.adversarial_rise} with {type(self.adversarial).__name__}."
            )
        if self.adversarial_rise and isinstance(self.adversarial, ForeignAttack):
            raise ValueError(
                "`adversarial_rise` must be 0 with `as_attack`, whose function keeps its own radius; got "
                f"{self.adversarial_rise}. Give an attack of clearance.attacks."
            )

    def generators(self, seed: int) -> dict[str, torch.Generator]:
        """The head's noise and, with an attack, its random starts (different in each process)."""
        streams = super().generators(seed)
        if self.adversarial is not None:
            streams["adversarial"] = generator(seed, *own_stream("adversarial"))
        return streams

    def trainable(self, model: Classifier) -> Iterable[nn.Parameter]:
        """Everything: extractor, head and loss, each parameter once."""
        check_classifier(model)
        return list(dict.fromkeys([*model.parameters(), *self.loss.parameters()]))

    def start(
        self,
        model: Classifier,
        data: Any,
        optimizer: torch.optim.Optimizer,
        generators: Generators | None = None,
    ) -> Training:
        """Start; batches come from the caller, so only the classes of `data` are read. Seed 0 without `generators`."""
        return _EndToEndTraining(self, model, data, optimizer, checked_generators(self, generators))


class _EndToEndTraining(Training):
    def __init__(
        self,
        way: EndToEnd,
        model: Classifier,
        data: Any,
        optimizer: torch.optim.Optimizer,
        generators: Generators,
    ) -> None:
        self.way, self.model, self.data, self.optimizer = way, model, open_images(data), optimizer
        self.generators = generators
        self._steps = 0
        if model.unfinished is not None and not any(one.requires_grad for one in model.head.parameters()):
            model.head.requires_grad_(requires_grad=True)  # frozen by FOCA, which was left before its end
        self._moved = list(way.trainable(model))
        check_moved(self._moved)
        check_optimizer(optimizer, self._moved)
        way.loss._watch_anew()
        copy_from_first(model, way.loss)
        if model.unfinished is not None:  # FOCA was left before its end
            model.unfinished = None

    def step(self, images: Tensor, labels: Tensor) -> LossTerms:
        loss = self.way.loss
        check_batch(images, labels, self.data)
        attacked = self._attacked(images, labels)
        self.optimizer.zero_grad(set_to_none=True)  # after the attack, which may leave gradients behind
        with self._noisy_head():
            torch.clear_autocast_cache()  # casts from before the noise, or made by the attack without a graph
            outputs = self.model.outputs(self._shown(images, attacked), loss.layers)
            check_logits(outputs.logits, self.data.class_count)
            terms: LossTerms = loss(outputs, labels)
            if isinstance(self.way.adversarial, TRADES):
                if "divergence" in terms.terms:
                    raise ValueError(
                        "a loss under TRADES must have no term `divergence`, because that of TRADES is called so; got "
                        f"{list(terms.terms)}. Rename yours."
                    )
                term = self.way.adversarial.term(outputs.logits[: len(attacked)], self.model(attacked))
                terms = LossTerms({**terms.terms, "divergence": term})
            terms.total.backward()
        average_gradients(self._moved, len(labels))
        self.optimizer.step()
        torch.clear_autocast_cache()  # casts of the weights before this step, if the caller's block spans several
        self._steps += 1
        with torch.no_grad():
            loss.after_step(outputs, labels)
        return terms

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self._steps} if self.way.adversarial_rise else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._steps = state.get("steps", 0)

    def _attacked(self, images: Tensor, labels: Tensor) -> Tensor:
        """The attacked images of the first part of the batch; without an attack there are none."""
        attack = self.way.adversarial
        if attack is None:
            return images[:0]
        count = max(1, round(self.way.adversarial_share * len(images)))
        rise = self.way.adversarial_rise
        attack = _at_step(attack, self.generators["adversarial"], min(1.0, (self._steps + 1) / max(1, rise)))
        return attacked_images(attack, self.model, images[:count].detach(), labels[:count])

    def _shown(self, images: Tensor, attacked: Tensor) -> Tensor:
        """The images of the loss: attacked ones replace clean ones, except with TRADES, which keeps all clean ones."""
        if not len(attacked) or isinstance(self.way.adversarial, TRADES):
            return images
        return torch.cat([attacked, images[len(attacked) :].detach()])

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
                noise = torch.randn(
                    parameter.shape, generator=self.generators["head_noise"], dtype=torch.float32
                )
                parameter.add_(noise.to(parameter), alpha=sigma)
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, value in zip(parameters, clean, strict=True):
                    parameter.copy_(value)


def attacked_images(attack: Attack, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Images after an attack on the model in evaluation mode.

    Attacks with a method `perturbed`, such as Clearance's, also change images that the model already misclassifies.
    Training that is adversarial from its first step needs this, because most images are then misclassified. In
    evaluation mode dropout is off and batch normalisation uses, and keeps, its running statistics.

    Raises:
        TypeError: If the attack returns no images.
        ValueError: If the attack returns images of another shape, or with values outside [0, 1].
    """
    with in_evaluation_mode(model):
        found = _changed(attack, model, images, labels).detach()
        if bool(found.isnan().any()) and not bool(model(images).isfinite().all()):  # training has diverged
            return images
    _check_images(found, images)
    return found.to(images)


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


def _settings(attack: object) -> list[str]:
    """Names of the settings of an attack that is a dataclass."""
    if not dataclasses.is_dataclass(attack) or isinstance(attack, type):
        return []
    return [field.name for field in dataclasses.fields(attack) if field.init]


def _at_step(attack: Any, stream: torch.Generator, radius: float) -> Any:
    """The attack of one step: with `radius` times its epsilon, and a new seed from `stream` if it has a seed.

    The same holds for an attack inside it. So its random starts differ from step to step, and a resumed run draws the
    same ones.
    """
    names = _settings(attack)
    changed: dict[str, Any] = {
        name: _at_step(value, stream, radius)
        for name in names
        if hasattr(value := getattr(attack, name), "perturbed")
    }
    if "seed" in names:
        changed["seed"] = int(torch.randint(_LARGEST_SEED, (), generator=stream))
    if "epsilon" in names and radius < 1:
        changed["epsilon"] = radius * attack.epsilon
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
