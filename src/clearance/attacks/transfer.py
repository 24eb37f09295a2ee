"""Black box attacks: images made on one model, shown to another."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from clearance.attacks.attack import Attack, Batch, broken
from clearance.attacks.queries import Model, logits_of


@dataclass(frozen=True)
class Transfer(Attack):
    """Images made on a source, scored on the model that is attacked: no gradient of that model is used.

    Every image takes every step of the attack on the source, whether or not the source is wrong on it.
    Made by :func:`transferred`.
    """

    source: Model = field(kw_only=True)
    attack: Attack = field(kw_only=True)

    def _search(self, batch: Batch, *, persist: bool) -> Tensor:
        del persist
        return self.attack.perturbed(self.source, batch.images, batch.labels, batch.targets)


def transferred(source: Model, attack: Attack) -> Transfer:
    """The attack that makes its images on `source`; the ball is that of `attack`.

    Args:
        source: A model of the same classes, in evaluation mode, whose gradients are used.
        attack: How images are made on it.

    Raises:
        TypeError: If that is no attack in a ball.

    >>> from clearance.attacks.gradient import FGSM
    >>> source, rounded = torch.nn.Identity().eval(), lambda images: images.round()
    >>> images, labels = torch.tensor([[0.625, 0.375]]), torch.tensor([0])
    >>> FGSM(0.25)(rounded, images, labels).success           # rounding has no gradient
    tensor([False])
    >>> transferred(source, FGSM(0.25))(rounded, images, labels).success
    tensor([True])
    """
    _check_in_a_ball(attack)
    return Transfer(
        attack.epsilon, attack.norm, bounds=attack.bounds, chunk=attack.chunk, source=source, attack=attack
    )


def _check_in_a_ball(attack: Any) -> None:
    if not isinstance(attack, Attack):
        raise TypeError(
            f"`attack` must be an attack in a ball (FGSM, PGD ..., or what as_attack makes of a callable), because its "
            f"images are shown to other models; got {type(attack).__name__}."
        )


@dataclass(frozen=True)
class TransferMatrix:
    """What is left of accuracy where images made on one model are shown to others.

    Args:
        sources: Names of the models on which images were made: the rows.
        targets: Names of the models to which they were shown: the columns.
        accuracy: (S, T) float64, share of all images that the target still gets right. Where source and target
            are one model this is the white box.
        clean: (T,) float64, the same without an attack.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    accuracy: Tensor
    clean: Tensor


def transfer_matrix(
    attack: Attack,
    sources: Mapping[str, Model],
    targets: Mapping[str, Model],
    images: Tensor,
    labels: Tensor,
) -> TransferMatrix:
    """Accuracy of every target on images made on every source.

    Every image is attacked on the source, also where the source is wrong about it; otherwise a bad source
    would hand clean images to the target, and black box accuracy would be too high.

    Args:
        attack: How images are made.
        sources: Models by name, in evaluation mode.
        targets: Likewise; a model may be in both.
        images: (B, ...) within the attack's bounds, B at least 1.
        labels: (B,).

    Raises:
        ValueError: If there is no source, no target or no image, or for what the attack refuses.
        TypeError: If that is no attack in a ball.

    >>> from clearance.attacks.gradient import FGSM
    >>> models = {"plain": torch.nn.Identity().eval(), "rounded": lambda images: images.round()}
    >>> images, labels = torch.tensor([[0.625, 0.375], [0.1, 0.9]]), torch.tensor([0, 1])
    >>> transfer_matrix(FGSM(0.25), models, models, images, labels).accuracy         # rounding has no gradient
    tensor([[0.5000, 0.5000],
            [1.0000, 1.0000]], dtype=torch.float64)
    """
    _check_in_a_ball(attack)
    for name, given in (("sources", sources), ("targets", targets), ("images", images)):
        if not len(given):
            raise ValueError(f"`{name}` must hold at least one; got none.")

    def accuracies(shown: Tensor) -> list[float]:
        wrong = [broken(logits_of(model, shown, chunk=attack.chunk), labels) for model in targets.values()]
        return [float((~row).double().mean()) for row in wrong]

    for model in targets.values():
        Batch.checked(model, images, labels, None, attack.bounds, attack.chunk)
    made = [attack.perturbed(model, images, labels) for model in sources.values()]
    rows = torch.tensor([accuracies(shown) for shown in made], dtype=torch.float64)
    clean = torch.tensor(accuracies(images.detach()), dtype=torch.float64)
    return TransferMatrix(tuple(sources), tuple(targets), rows, clean)
