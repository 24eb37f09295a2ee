"""Adversarial images for training: a part of a batch, attacked with the model as it stands."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from clearance.models._running import in_evaluation_mode

LARGEST_SEED = 2**31 - 1


class Attack(Protocol):
    """Anything that is called with a model, images in [0, 1] and labels, and returns them, or what has them."""

    def __call__(self, model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor, /) -> Any:
        """The attacked images, or what has them as its attribute `images`."""


def attacked_part(
    attack: Attack, model: nn.Module, images: Tensor, labels: Tensor, share: float, stream: torch.Generator
) -> Tensor:
    """The batch with its first round(share * B) images attacked, at least one.

    Images that the model gets wrong already are attacked too, by attacks that can do that (those of Clearance have
    a method `perturbed`): training that is adversarial from its first step needs them, when most images are wrong.

    The model is in evaluation mode while it is attacked: dropout is off and batch normalisation uses, and keeps,
    its running statistics. An attack that has a setting `seed`, or holds an attack that has one, gets a fresh one from
    `stream` in every step, so that its random starts differ from step to step and a resumed run draws the same ones.

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
        changed["seed"] = int(torch.randint(LARGEST_SEED, (), generator=stream))
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
