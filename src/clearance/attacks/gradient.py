"""Attacks that climb a loss: in one step, in many small ones, and from several starts."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from clearance._checks import check_choice, check_count, check_positive
from clearance.attacks.attack import (
    LOSSES,
    Attack,
    Batch,
    linear_optimum,
    logits_of,
    projected,
    random_starts,
    room_along,
    steepest,
)


@dataclass(frozen=True)
class GradientAttack(Attack):
    """An attack that ascends a loss.

    Args:
        epsilon: Radius in the unit of the pixels.
        norm: inf, 2 or 1.
        loss: A name in :data:`~clearance.attacks.attack.LOSSES`.
        bounds: Of pixel values.
        chunk: Images that the model sees at once.

    Raises:
        ValueError: If a setting is out of range.
    """

    loss: str = "cross_entropy"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("loss", self.loss, LOSSES)


@dataclass(frozen=True)
class FGSM(GradientAttack):
    r"""One step to the point of the ball, within the bounds, that is best to first order.

        x' = clip(x + epsilon sign(grad_x L))                                         norm inf

    Source: Goodfellow, Shlens and Szegedy, *Explaining and Harnessing Adversarial Examples* (2015), section 4.
    In norm 2 the step is x' = clip(x + t grad_x L) with the t that uses up all of epsilon, in norm 1 it fills
    the pixels with the largest gradients up to their bounds: where pixels are at their bound, these go
    farther than a clipped unit step. On a linear model of two classes they are the strongest attack.

    Args:
        epsilon: Radius in the unit of the pixels, at least 0.
        norm: inf (as published), 2 or 1.
        loss: What is ascended; cross-entropy as published.
        bounds: Of pixel values.
        chunk: Images that the model sees at once.

    Raises:
        ValueError: If a setting is out of range.

    Misleads with its default loss where logits are large: see :mod:`clearance.attacks.attack`.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2, bias=False).eval()
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> hit = FGSM(epsilon=0.25)(model, torch.tensor([[0.75, 0.5]]), torch.tensor([0]))
    >>> hit.images, hit.success
    (tensor([[0.5000, 0.7500]]), tensor([True]))
    """

    def _search(self, batch: Batch, *, persist: bool) -> Tensor:
        del persist  # it has only one step
        _, gradient = batch.ascent(batch.images, self.loss)
        return batch.images + linear_optimum(gradient, batch.images, self.epsilon, self.norm, self.bounds)


@dataclass(frozen=True)
class IteratedAttack(GradientAttack):
    """Steps of most gain, each followed by the nearest point of the ball within the bounds.

    x_{t+1} = P(x_t + step * s(grad_x L(x_t))), s the steepest step of the norm and P the exact projection
    (:func:`~clearance.attacks.attack.projected`). A broken image is kept and is not asked about again.

    In norm 1 steps shrink evenly to zero: a step there moves few pixels, and at a constant length they would
    move back and forth for ever. The result is the better of what they reached and of the point of the ball that
    gains most along the last gradient, which on a linear model is the strongest attack.
    """

    steps: int = 10
    step: float | None = None

    relative_step = 2.0
    """The default step is this times epsilon / steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps)
        if self.step is not None:
            check_positive("step", self.step)

    def _ascended(
        self, batch: Batch, delta: Tensor, *, towards: Tensor | None, persist: bool
    ) -> tuple[Tensor, Tensor]:
        """The images after all steps from `delta`, or when they broke; and whether they did so on the way."""
        found, done = batch.images + delta, torch.zeros_like(batch.labels, dtype=torch.bool)
        rows = torch.arange(len(batch), device=batch.images.device)
        for number in range(self.steps):
            logits, gradient = batch.ascent(batch.images + delta, self.loss, towards)
            broke = batch.broken(logits)
            if not persist and bool(broke.any()):
                found[rows[broke]], done[rows[broke]] = (batch.images + delta)[broke], True
                batch = batch[~broke]
                rows, delta, gradient = rows[~broke], delta[~broke], gradient[~broke]
                towards = None if towards is None else towards[~broke]
            if not len(rows):
                break
            delta = self._moved(batch.images, delta, gradient, number)
        if self.norm == 1 and len(rows):
            delta = self._or_corner(batch, delta, gradient)
        found[rows] = batch.images + delta
        return found, done

    def _moved(self, images: Tensor, delta: Tensor, gradient: Tensor, number: int) -> Tensor:
        length = self._length(number)
        if length == 0:
            return delta
        room = room_along(gradient, images + delta, self.bounds) / length
        further = delta + length * steepest(gradient, self.norm, room)
        return projected(further, images, self.epsilon, self.norm, self.bounds)

    def _or_corner(self, batch: Batch, delta: Tensor, gradient: Tensor) -> Tensor:
        corner = linear_optimum(gradient, batch.images, self.epsilon, self.norm, self.bounds)
        reached, there = (
            batch.margin(logits_of(batch.model, batch.images + d, chunk=batch.chunk)) for d in (delta, corner)
        )
        better = (there > reached).view(-1, *[1] * (delta.ndim - 1))
        return torch.where(better, corner, delta)

    def _length(self, number: int) -> float:
        length = self.relative_step * self.epsilon / self.steps if self.step is None else self.step
        # twice the length at first and the same path in all
        return length * 2 * (1 - number / self.steps) if self.norm == 1 else length


@dataclass(frozen=True)
class IFGSM(IteratedAttack):
    r"""The fast gradient sign method in small steps, from the image itself: I-FGSM, or basic iterative method.

        x_{t+1} = clip(x_t + step sign(grad_x L(x_t))), clipped to the ball and the bounds

    Source: Kurakin, Goodfellow and Bengio, *Adversarial Examples in the Physical World* (2017), section 2.2.

    Args:
        epsilon: Radius in the unit of the pixels, at least 0.
        norm: inf (as published), 2 or 1.
        loss: What is ascended; cross-entropy as published.
        steps: How many; 10 by default. The paper's rule, for epsilon in grey levels of 255, is the smaller of
            epsilon + 4 and 1.25 epsilon, with `step` 1 / 255.
        step: Length of one in pixel units; by default 2 epsilon / steps, so that half of them reach the edge.
        bounds: Of pixel values.
        chunk: Images that the model sees at once.

    Raises:
        ValueError: If a setting is out of range.

    Misleads with its default loss where logits are large: see :mod:`clearance.attacks.attack`.

    >>> model = torch.nn.Identity().eval()
    >>> hit = IFGSM(epsilon=0.25)(model, torch.tensor([[0.75, 0.5], [1.0, 0.0]]), torch.tensor([0, 0]))
    >>> hit.success
    tensor([ True, False])
    """

    def _search(self, batch: Batch, *, persist: bool) -> Tensor:
        return self._ascended(batch, torch.zeros_like(batch.images), towards=None, persist=persist)[0]


@dataclass(frozen=True)
class PGD(IteratedAttack):
    """Projected gradient ascent from the image itself and from random points of the ball.

    Source: Madry et al., *Towards Deep Learning Models Resistant to Adversarial Attacks* (2018), section 2.1;
    for several targets Gowal et al. (2019), *An Alternative Surrogate Loss for PGD-based Adversarial Testing*.

    Args:
        epsilon: Radius in the unit of the pixels, at least 0.
        norm: inf (as published), 2 or 1.
        loss: What is ascended; by default the logit margin, which the scale of logits cannot mislead.
        steps: From each start; 40 by default, as in the paper for MNIST.
        step: Length of one in pixel units; by default 2.5 epsilon / steps, the paper's for CIFAR-10.
        restarts: The number of starts: the first is the image itself, all others are random points of
            the ball, uniform in it before they are clipped to the bounds.
        targets: Steer at each of this number of nearest rivals in turn, by the largest wrong logits of the image,
            rather than away from the label; all of them where there are fewer. Any wrong class counts. A call
            with its own targets has one rival, and excludes this setting.
        seed: Of the random starts. What is drawn for an image follows from it and from the image's own
            pixels, so that neither its place nor the other images in a batch matter.
        bounds: Of pixel values.
        chunk: Images that the model sees at once.

    An image that breaks is dropped from all that follows. One that never does is returned as the start left it
    that ended with the largest logit margin, for every loss.

    Raises:
        ValueError: If a setting is out of range.

    >>> model = torch.nn.Identity().eval()
    >>> images, labels = torch.rand(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
    >>> hit = PGD(epsilon=0.2, restarts=2)(model, images, labels)
    >>> single = PGD(epsilon=0.2, restarts=2)(model, images[3:4], labels[3:4])
    >>> torch.equal(hit.images[3:4], single.images)
    True
    """

    loss: str = "logit_margin"
    steps: int = 40
    restarts: int = 1
    targets: int | None = None
    seed: int = 0

    relative_step = 2.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("restarts", self.restarts)
        check_count("seed", self.seed, minimum=0)
        if self.targets is not None:
            check_count("targets", self.targets)

    def _search(self, batch: Batch, *, persist: bool) -> Tensor:
        best, least = batch.images.clone(), torch.full_like(batch.margin(batch.logits), -math.inf)
        rows = torch.arange(len(batch), device=batch.images.device)
        for start, rank in self._runs(batch):
            active = batch[rows]
            towards = None if rank is None else _rivals(active, rank)
            found, done = self._ascended(active, self._start(active, start), towards=towards, persist=persist)
            logits = logits_of(active.model, found, chunk=self.chunk)
            done |= active.broken(logits)
            value = active.margin(logits)
            value = value.masked_fill(
                done & value.isnan(), math.inf
            )  # logits that are no numbers name no class
            better = (value > least[rows]) | (done & (not persist))
            best[rows[better]], least[rows[better]] = found[better], value[better]
            rows = rows if persist else rows[~done]
            if not len(rows):
                break
        return best

    def _start(self, batch: Batch, start: int) -> Tensor:
        if start == 0:
            return torch.zeros_like(batch.images)
        return random_starts(batch.images, self.epsilon, self.norm, self.bounds, seed=self.seed, stream=start)

    def _runs(self, batch: Batch) -> list[tuple[int, int | None]]:
        """All pairs of start and rival, in the order in which they are tried."""
        if self.targets is None:
            return [(start, None) for start in range(self.restarts)]
        if batch.targets is not None:
            raise ValueError(
                f"`targets` must be given to the attack or to its call, not to both; got {self.targets} rivals and "
                "one target an image; leave one out."
            )
        rivals = min(self.targets, batch.logits.shape[1] - 1)
        return [(start, rank) for start in range(self.restarts) for rank in range(rivals)]


def _rivals(batch: Batch, rank: int) -> Tensor:
    """The wrong class with the largest logit, or the next ones after it."""
    others = batch.logits.scatter(1, batch.labels.unsqueeze(1), -math.inf)
    return others.argsort(dim=1, descending=True, stable=True)[:, rank]
