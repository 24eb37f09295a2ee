"""What all attacks in a ball share: one public call that checks, selects, searches and verifies."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from clearance._checks import check_choice, check_count
from clearance.attacks._arguments import (
    check_bounds,
    check_images,
    check_mode,
    check_other,
    check_radius,
    check_range,
    checked_classes,
)
from clearance.attacks.attacked import Attacked, broken, confined, rescored
from clearance.attacks.losses import LOSSES, TARGETED_LOSSES
from clearance.attacks.norms import as_norm
from clearance.attacks.queries import CHUNK, Model, gradients_of, logits_of
from clearance.vocabulary import Bounds


@dataclass(frozen=True)
class Batch:
    """Images under attack, and the model that is asked about them.

    Args:
        model: Images to logits.
        images: The originals, (B, ...).
        labels: (B,).
        targets: (B,), the classes wanted, or None where any wrong class will do.
        logits: Of the originals, (B, C).
        chunk: Images that the model sees at once.
    """

    model: Model
    images: Tensor
    labels: Tensor
    targets: Tensor | None
    logits: Tensor
    chunk: int = CHUNK

    @classmethod
    def checked(
        cls, model: Model, images: Tensor, labels: Tensor, targets: Tensor | None, bounds: Bounds, chunk: int
    ) -> "Batch":
        """A batch whose arguments have been checked; the model is asked for its logits.

        Raises:
            ValueError: If the model is in training mode, images are outside `bounds`, shapes do not fit, or
                a class is not among the model's.
            TypeError: If images, labels or targets are not tensors of the right kind.
        """
        check_mode(model)
        check_images(images, bounds)
        images = _plain(images)
        labels = _plain(checked_classes("labels", labels, images))
        logits = logits_of(model, images, chunk=chunk) if len(images) else images.new_zeros(0, 2)
        check_range("labels", labels, logits.shape[1])
        if targets is not None:
            targets = _plain(checked_classes("targets", targets, images))
            check_range("targets", targets, logits.shape[1])
        return cls(model, images, labels, targets, logits, chunk)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, chosen: Tensor) -> "Batch":
        """Some of the images, by number or by mask."""
        targets = None if self.targets is None else self.targets[chosen]
        return replace(
            self,
            images=self.images[chosen],
            labels=self.labels[chosen],
            targets=targets,
            logits=self.logits[chosen],
        )

    def broken(self, logits: Tensor) -> Tensor:
        """Whether the attack has what it wants, for logits of these images."""
        return broken(logits, self.labels, self.targets)

    def ascent(self, images: Tensor, loss: str, towards: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Logits of changed `images`, and the gradient of the loss named.

        The loss is steered towards the class `towards` if given, else towards the targets if there are any,
        else away from the labels.
        """
        steered = self.targets if towards is None else towards

        def value(logits: Tensor, rows: slice) -> Tensor:
            if steered is None:
                return LOSSES[loss](logits, self.labels[rows])
            return TARGETED_LOSSES[loss](logits, self.labels[rows], steered[rows])

        return gradients_of(self.model, images, value, chunk=self.chunk)


def _plain(tensor: Tensor) -> Tensor:
    """Without a graph, and not a tensor of inference mode, which no graph may hold."""
    with torch.inference_mode(False):
        return tensor.detach().clone() if tensor.is_inference() else tensor.detach()


@dataclass(frozen=True)
class Attack(ABC):
    """An attack in a ball: settings that are called with a model, images and labels.

    A subclass says in `_search` how candidates are found. What it finds is clipped, range-checked and scored
    by asking the model again (:func:`~clearance.attacks.attacked.rescored`).

    Args:
        epsilon: Radius in the unit of the pixels, at least 0; of the width of `bounds` at most in norm inf.
        norm: inf, 2 or 1.
        bounds: Of pixel values; [0, 1] everywhere in Clearance.
        chunk: Images that the model sees at once. Memory and speed alone are a reason to change it.

    Raises:
        ValueError: If a setting is out of range.
    """

    epsilon: float
    norm: float = math.inf
    bounds: Bounds = field(default=Bounds(), kw_only=True)
    chunk: int = field(default=CHUNK, kw_only=True)

    def __post_init__(self) -> None:
        check_bounds(self.bounds)
        object.__setattr__(self, "norm", as_norm(self.norm))
        check_radius(self.epsilon, self.norm, self.bounds)
        check_count("chunk", self.chunk)

    @final
    @torch.inference_mode(False)  # of a caller: what is made in it cannot be differentiated by
    @torch.no_grad()
    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, targets: Tensor | None = None
    ) -> Attacked:
        """Attack the images that the model gets right.

        Args:
            model: Images to logits; a module must be in evaluation mode. Its parameters' ``.grad`` and the
                images' are left alone.
            images: (B, ...) within the bounds, floating point.
            labels: (B,), the true classes.
            targets: (B,), classes that the images shall be taken for; by default any wrong class will do.

        Returns:
            Verified images; those that the model got wrong before are unchanged, at distance 0.

        Raises:
            ValueError: If the model is in training mode, images are outside the bounds, shapes do not fit, or
                a class is not among the model's.
            TypeError: If images, labels or targets are not tensors of the right kind.
        """
        batch = Batch.checked(model, images, labels, targets, self.bounds, self.chunk)
        check_other(batch.targets, batch.labels)
        before = batch.broken(batch.logits)
        found = batch.images.clone()
        if not bool(before.all()):
            found[~before] = self._search(batch[~before], persist=False).to(found)
        return rescored(
            model,
            batch.images,
            found,
            batch.labels,
            norm=self.norm,
            bounds=self.bounds,
            epsilon=self.epsilon,
            targets=batch.targets,
            chunk=self.chunk,
            before=before,
        )

    @final
    @torch.inference_mode(False)
    @torch.no_grad()
    def perturbed(
        self, model: Model, images: Tensor, labels: Tensor, targets: Tensor | None = None
    ) -> Tensor:
        """The images after every step of the attack, whether or not the model is wrong on them already.

        Transfer wants these: images that are broken early go on to be changed. They are clipped and range-checked,
        but no success is claimed. Arguments and errors are those of a call.
        """
        batch = Batch.checked(model, images, labels, targets, self.bounds, self.chunk)
        check_other(batch.targets, batch.labels)
        if not len(batch):
            return batch.images
        found = self._search(batch, persist=True)
        return confined(found, batch.images, norm=self.norm, bounds=self.bounds, epsilon=self.epsilon)

    @abstractmethod
    def _search(self, batch: Batch, *, persist: bool) -> Tensor:
        """Candidates for every image of the batch, of which there is at least one.

        Args:
            batch: Images to change.
            persist: Whether to go on with an image that is broken.
        """


@dataclass(frozen=True)
class GradientAttack(Attack):
    """An attack that ascends a loss.

    Args:
        epsilon: Radius in the unit of the pixels.
        norm: inf, 2 or 1.
        loss: A name in :data:`~clearance.attacks.losses.LOSSES`.
        bounds: Of pixel values.
        chunk: Images that the model sees at once.

    Raises:
        ValueError: If a setting is out of range.
    """

    loss: str = "cross_entropy"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("loss", self.loss, LOSSES)


AnyAttack = Callable[[Model, Tensor, Tensor], Attacked]
"""What takes attacks takes any of these; a callable that returns images becomes one by :func:`as_attack`."""
