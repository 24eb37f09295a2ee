"""The contract of a way of training: which parameters a step may move, and which head is in use."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from clearance._processes import own_stream
from clearance._rng import generator
from clearance.data.image_set import ImageSet, check_labels, check_pixels
from clearance.losses._loss import Loss
from clearance.models.classifier import Classifier
from clearance.tensors import LossTerms

Generators = Mapping[str, torch.Generator]


class Training(ABC):
    """A way of training applied to one model; ``fit``, or your own loop, calls it step by step.

    >>> from clearance.data import gaussian_images
    >>> from clearance.losses import CrossEntropyLoss
    >>> from clearance.training import EndToEnd
    >>> data, model = gaussian_images(per_class=10), Classifier(nn.Flatten(), nn.Linear(64, 3))
    >>> way = EndToEnd(CrossEntropyLoss())
    >>> optimizer = torch.optim.SGD(way.trainable(model), lr=0.05)
    >>> training = way.start(model, data, optimizer, way.generators(seed=0))
    >>> losses = [training.step(data.images, data.labels).total.item() for _ in range(20)]
    >>> losses[-1] < losses[0]
    True
    """

    @abstractmethod
    def step(self, images: Tensor, labels: Tensor) -> LossTerms:
        """Move the parameters once on a batch: gradients are cleared, the loss goes backward, the optimiser steps.

        Args:
            images: (B, C, H, W), in [0, 1].
            labels: (B,), int64.

        Returns:
            The loss that was stepped on, by term.
        """

    def finish(self) -> None:  # noqa: B027 - doing nothing is right for most ways of training
        """Complete the model; does nothing if its head was trained in every step."""

    def counts(self) -> dict[str, int]:
        """Counts of events during training; empty if there are none."""
        return {}

    def diagnostics(self) -> dict[str, float]:
        """Numbers other than the loss since the last call; ``fit`` calls it once per epoch."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold in addition to model, loss, optimiser and generators."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict``."""
        del state


class WayOfTraining(ABC):
    """The settings of a way of training. Frozen; ``start`` applies them to a model (the example of :class:`Training`).

    Attributes:
        loss: The loss.
        streams: Names of the random generators that ``start`` expects.
        own_streams: Those that differ between processes under torch.distributed.
        trains_head: Whether the model's own head is usable before ``finish``.
    """

    loss: Loss
    streams: tuple[str, ...] = ()
    own_streams: tuple[str, ...] = ()
    trains_head: bool = True

    @abstractmethod
    def trainable(self, model: Classifier) -> Iterable[nn.Parameter]:
        """The parameters that the optimiser may move, including the loss's."""

    @abstractmethod
    def start(
        self, model: Classifier, data: Any, optimizer: torch.optim.Optimizer, generators: Generators
    ) -> Training:
        """Begin training a model; every step is then ``training.step(images, labels)``.

        Args:
            model: Trained in place.
            data: The training images, as :func:`clearance.data.open_images` takes them; FOCA draws the weak
                heads' batches from them.
            optimizer: Of ``trainable(model)``.
            generators: As ``generators`` makes them.
        """

    def generators(self, seed: int) -> dict[str, torch.Generator]:
        """One independent generator for each of ``streams``."""
        own = self.own_streams
        return {n: generator(seed, *(own_stream(n) if n in own else (n,))) for n in self.streams}


def check_loss(loss: object) -> None:
    """Raise TypeError unless `loss` is a Loss."""
    if not isinstance(loss, Loss):
        got = f"the class {loss.__name__}" if isinstance(loss, type) else type(loss).__name__
        raise TypeError(
            f"`loss` must be a Loss, such as clearance.losses.CrossEntropyLoss(); got {got}. Wrap your own loss in a "
            "subclass of clearance.losses.Loss."
        )


def check_moved(moved: Iterable[nn.Parameter]) -> None:
    """Raise ValueError if none of these parameters can be trained."""
    if not any(parameter.requires_grad for parameter in moved):
        raise ValueError(
            "there is nothing to train: this way of training has no parameters to move, or all of them are frozen "
            "(`requires_grad`)."
        )


def check_optimizer(optimizer: object, moved: Iterable[nn.Parameter]) -> None:
    """Raise for what is no optimiser of one backward pass, or has none of the parameters that a step should move."""
    if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError(
            "`optimizer` must be, or make, an optimiser of torch that steps after one backward pass; got "
            f"{type(optimizer).__name__}. Use another, such as torch.optim.SGD(way.trainable(model), lr=0.05)."
        )
    held = {id(one) for group in optimizer.param_groups for one in group["params"]}
    if not held & {id(one) for one in moved if one.requires_grad}:
        raise ValueError(
            "`optimizer` must hold the parameters that a step moves; got one with none of them. Make it of "
            "way.trainable(model)."
        )


def check_batch(images: Tensor, labels: Tensor, data: ImageSet) -> None:
    """Raise ValueError unless the batch holds images in [0, 1] and a class of `data` for each.

    On an accelerator values are not checked: every step would have to wait for them.
    """
    if not isinstance(images, Tensor) or not isinstance(labels, Tensor):
        raise TypeError(
            f"a batch must be tensors of images and labels; got {type(images).__name__} and {type(labels).__name__}. "
            "Write torch.as_tensor(...)."
        )
    if len(images) == 0 or len(labels) != len(images):
        raise ValueError(
            f"a batch must hold at least one image and one label for each; got {len(images)} images and "
            f"{len(labels)} labels. Make batches with data.batch(rows)."
        )
    if images.device.type == "cpu":
        check_labels(labels, images, data.classes)
        check_pixels(images.detach())


def checked_generators(way: WayOfTraining, given: Generators | None) -> Generators:
    """The generators, those of seed 0 if none are given.

    Raises:
        TypeError: If they are something else, such as a seed.
    """
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(
            f"`generators` must be those of `way.generators(seed)`; got {type(given).__name__}. Write "
            "generators=way.generators(seed)."
        )
    return way.generators(0) if given is None else given


def largest_share(labels: Tensor) -> float:
    """The share of the largest class."""
    return float(torch.bincount(labels).max()) / len(labels)


def chance_accuracy(labels: Tensor, label_noise: float = 0.0) -> float:
    """The accuracy up to which a network may be no better than always naming the largest class.

    >>> round(chance_accuracy(torch.arange(1000) % 10), 3)
    0.128
    """
    largest = largest_share(labels)
    chance = 3 * (largest * (1 - largest) / len(labels)) ** 0.5
    gain = 1 - label_noise - largest
    # In a small or imbalanced set the chance interval may cover the whole possible gain; half of it is not chance.
    return largest + min(chance, gain / 2) if gain > 0 else 0.0
