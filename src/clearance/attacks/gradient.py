"""Attacks that climb a loss: in one step, in many small ones, in steps that adapt, and from several starts."""

import math
from abc import abstractmethod
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from clearance._checks import check_choice, check_count, check_positive
from clearance._precision import at_least_float32
from clearance.attacks.attack import Attack, Batch, chunk_count, logits_of
from clearance.attacks.balls import (
    chosen,
    finite_slopes,
    linear_optimum,
    one_an_image,
    projected,
    random_starts,
    room_along,
    steepest,
)
from clearance.attacks.losses import LOSSES


@dataclass(frozen=True)
class GradientAttack(Attack):
    """An attack that ascends a loss.

    Args:
        epsilon: Radius in the unit of the pixels.
        norm: inf, 2 or 1.
        loss: A name in :data:`~clearance.attacks.losses.LOSSES`.

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
        chunk: Images that the model sees at once.

    Raises:
        ValueError: If a setting is out of range.

    Misleads with its default loss where logits are large: see :mod:`clearance.attacks.losses`.

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
        return batch.images + linear_optimum(gradient, batch.images, self.epsilon, self.norm)


@dataclass(frozen=True)
class IteratedAttack(GradientAttack):
    """Steps of most gain, each followed by the nearest point of the ball within the bounds.

    x_{t+1} = P(x_t + step * s(grad_x L(x_t))), s the steepest step of the norm and P the exact projection
    (:func:`~clearance.attacks.balls.projected`). A broken image is kept and is not asked about again.

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
        room = room_along(gradient, images + delta) / length
        further = delta + length * steepest(gradient, self.norm, room)
        return projected(further, images, self.epsilon, self.norm)

    def _or_corner(self, batch: Batch, delta: Tensor, gradient: Tensor) -> Tensor:
        corner = linear_optimum(gradient, batch.images, self.epsilon, self.norm)
        reached, there = (
            batch.margin(logits_of(batch.model, batch.images + d, chunk=batch.chunk)) for d in (delta, corner)
        )
        return chosen(there > reached, corner, delta)

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
        chunk: Images that the model sees at once.

    Raises:
        ValueError: If a setting is out of range.

    Misleads with its default loss where logits are large: see :mod:`clearance.attacks.losses`.

    >>> model = torch.nn.Identity().eval()
    >>> hit = IFGSM(epsilon=0.25)(model, torch.tensor([[0.75, 0.5], [1.0, 0.0]]), torch.tensor([0, 0]))
    >>> hit.success
    tensor([ True, False])
    """

    def _search(self, batch: Batch, *, persist: bool) -> Tensor:
        return self._ascended(batch, torch.zeros_like(batch.images), towards=None, persist=persist)[0]


class _FromStarts(GradientAttack):
    """The search of an attack that climbs from several starts, at each of the nearest rivals or away from the label."""

    restarts: int
    targets: int | None
    seed: int

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
            found, value, done = self._climbed(active, self._start(active, start), towards, persist=persist)
            # logits that are no numbers name no class
            value = value.masked_fill(done & value.isnan(), math.inf)
            better = (value > least[rows]) | (done & (not persist))
            best[rows[better]], least[rows[better]] = found[better], value[better].to(least)
            rows = rows if persist else rows[~done]
            if not len(rows):
                break
        return best

    @abstractmethod
    def _climbed(
        self, batch: Batch, delta: Tensor, towards: Tensor | None, *, persist: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The images that one start leads to, their margins, and which of them are broken."""

    def _start(self, batch: Batch, start: int) -> Tensor:
        if start == 0:
            return torch.zeros_like(batch.images)
        return random_starts(batch.images, self.epsilon, self.norm, seed=self.seed, stream=start)

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


@dataclass(frozen=True)
class PGD(_FromStarts, IteratedAttack):
    """Projected gradient ascent from the image itself, and with `restarts` above 1 also from random points of the ball.

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

    def _climbed(
        self, batch: Batch, delta: Tensor, towards: Tensor | None, *, persist: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        found, done = self._ascended(batch, delta, towards=towards, persist=persist)
        logits = logits_of(batch.model, found, chunk=self.chunk)
        return found, batch.margin(logits), done | batch.broken(logits)


FIRST_CHECK, CHECK_LESS, CHECK_LEAST = 0.22, 0.03, 0.06
"""Shares of the steps: before the first checkpoint, by how much each span is shorter than the last, and its least."""
RISING = 0.75
"""Share of the steps since the last checkpoint that must raise the loss for a step's length to stay."""
MOMENTUM = 0.75
"""Share of a new step in a move; the rest repeats the last move."""

SPARSE_SHARE, SPARSER = 0.2, 1.5
"""Norm 1: share of the pixels that a step moves at first; later, those that the best point moved, divided by this."""
SPARSE_CHECK = 0.04
"""Norm 1: share of the steps between two checkpoints."""
SPARSE_DROP, SPARSE_SHORTER, SPARSE_SHORTEST = 0.95, 1.5, 0.1
"""Norm 1: fewer pixels than this share of before make steps long again; else they shorten by this, to this share."""
LARGER_BALLS = ((3, 0.3), (2, 0.3), (1, 0.4))
"""Norm 1: radii in units of epsilon that are climbed in turn, and the share of the steps spent in each."""


@dataclass
class _Climb:
    """One row for each image that is still climbing."""

    rows: Tensor
    delta: Tensor
    before: Tensor
    gradient: Tensor
    value: Tensor
    length: Tensor
    share: Tensor
    risen: Tensor
    halved: Tensor
    best: Tensor
    best_gradient: Tensor
    top: Tensor
    top_before: Tensor
    margin: Tensor

    @classmethod
    def begun(cls, delta: Tensor, length: float) -> "_Climb":
        zero = at_least_float32(delta).new_zeros(len(delta))
        low = torch.full_like(zero, -math.inf)
        rows, no = torch.arange(len(delta), device=delta.device), torch.zeros_like(zero, dtype=torch.bool)
        lengths, shares = zero + length, zero + SPARSE_SHARE
        still = torch.zeros_like(delta)
        return cls(
            rows, delta, delta, still, -low, lengths, shares, zero, no, delta, still, low, low, low
        )  # fmt: skip

    def kept(self, which: Tensor) -> "_Climb":
        return replace(self, **{each.name: getattr(self, each.name)[which] for each in fields(self)})

    def seen(self, value: Tensor, margin: Tensor, gradient: Tensor) -> None:
        """Remember what the model said about `delta`."""
        better = value > self.top
        self.best, self.best_gradient = (
            chosen(better, self.delta, self.best),
            chosen(better, gradient, self.best_gradient),
        )
        self.top, self.margin = torch.where(better, value, self.top), torch.where(better, margin, self.margin)
        self.risen = self.risen + (value > self.value)
        self.value, self.gradient = value, gradient

    def checked(self, since: int) -> None:
        """Halve the steps that stopped to help, and go back to the best point."""
        stuck = (self.risen < RISING * since) | (~self.halved & (self.top <= self.top_before))
        self.length = torch.where(stuck, self.length / 2, self.length)
        self._back(stuck)
        self.halved, self.top_before, self.risen = stuck, self.top, torch.zeros_like(self.risen)

    def checked_sparse(self, longest: float) -> None:
        """Norm 1: let steps move fewer pixels; long steps again where the best point became sparser."""
        pixels = (self.best != 0).flatten(1).to(self.share).mean(dim=1)
        sparser = pixels < SPARSE_DROP * SPARSER * self.share
        shorter = (self.length / SPARSE_SHORTER).clamp(min=SPARSE_SHORTEST * longest)
        self.length = torch.where(sparser, longest, shorter)
        self.share = pixels / SPARSER
        self._back(sparser)

    def _back(self, which: Tensor) -> None:
        self.before = chosen(which, self.best, self.before)
        self.delta = chosen(which, self.best, self.delta)
        self.gradient = chosen(which, self.best_gradient, self.gradient)
        self.value = torch.where(which, self.top, self.value)


@dataclass(frozen=True)
class APGD(_FromStarts):
    r"""Projected gradient ascent with momentum, whose steps are halved where the loss stops rising: Auto-PGD.

        z_{t+1} = P(x_t + step_t s(grad_x L(x_t)))
        x_{t+1} = P(x_t + 0.75 (z_{t+1} - x_t) + 0.25 (x_t - x_{t-1}))                norm inf and 2

    P is the exact projection on the ball within the bounds, s the steepest step of the norm. The first step is
    2 epsilon long. At checkpoints after 22 % of the steps, then after spans that each are 3 % of the steps shorter, 6 %
    at least, the step of an image is halved, and it goes back to its best point, if fewer than 75 % of the steps since
    the last checkpoint raised the loss, or if its step was not halved there and its best point has not changed since.

    Norm 1 has steps that move only the pixels with the largest gradients, at first 20 % of them and later two thirds as
    many as the best point moved; no momentum; and it first climbs in balls of three and two times the radius, with 30 %
    of the steps in each. Its last point is the best one along the gradient of the best point, as in :class:`FGSM`.

    Source: Croce and Hein, *Reliable Evaluation of Adversarial Robustness* (2020), algorithm 1 and section 3; for norm
    1 Croce and Hein, *Mind the Box* (2021), algorithm 1 and section 3.3. Written from the descriptions.

    Args:
        epsilon: Radius in the unit of the pixels, at least 0.
        norm: inf, 2 or 1.
        loss: What is ascended; by default cross-entropy in units of the sample's own logits, which the scale of logits
            cannot mislead.
        steps: From each start; 100 by default, as in the paper.
        restarts: The number of starts: the first is the image itself, all others are random points of
            the ball, uniform in it before they are clipped to the bounds.
        targets: Steer at each of this number of nearest rivals in turn, as in :class:`PGD`.
        seed: Of the random starts; what is drawn for an image follows from it and from the image's own pixels.
        chunk: Images that the model sees at once.

    An image that breaks is dropped from all that follows. One that never does is returned as the best point of
    the start that led to the largest logit margin.

    Raises:
        ValueError: If a setting is out of range.

    Misleads where gradients lead nowhere, as every attack that follows them: see :class:`SquareSearch`.

    >>> model = torch.nn.Identity().eval()
    >>> images, labels = torch.rand(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
    >>> hit = APGD(epsilon=0.2, steps=10)(model, images, labels)
    >>> bool((hit.success == FGSM(epsilon=0.2)(model, images, labels).success).all())
    True
    """

    loss: str = "scaled_cross_entropy"
    steps: int = 100
    restarts: int = 1
    targets: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps)

    def _climbed(
        self, batch: Batch, delta: Tensor, towards: Tensor | None, *, persist: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self.norm != 1:
            return self._in_a_ball(batch, delta, towards, self.epsilon, self.steps, persist=persist)
        for times, share in LARGER_BALLS:
            radius, steps = times * self.epsilon, max(round(share * self.steps), 1)
            delta = projected(delta, batch.images, radius, self.norm)
            last = times == 1
            found = self._in_a_ball(batch, delta, towards, radius, steps, persist=persist or not last)
            delta = found[0] - batch.images
        return found

    def _in_a_ball(
        self, batch: Batch, delta: Tensor, towards: Tensor | None, radius: float, steps: int, *, persist: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        longest = radius if self.norm == 1 else 2 * radius
        climb = _Climb.begun(delta, longest)
        found, done = delta.clone(), torch.zeros_like(batch.labels, dtype=torch.bool)
        value, active, last, checks = climb.top.clone(), batch, 0, _checkpoints(steps, self.norm)
        for number in range(steps + 1):
            logits, gradient = active.ascent(active.images + climb.delta, self.loss, towards)
            climb.seen(active.loss(logits, self.loss, towards), active.margin(logits), gradient)
            broke = active.broken(logits) & ~done[climb.rows]
            if not persist and bool(broke.any()):
                rows = climb.rows[broke]
                found[rows], value[rows], done[rows] = (
                    climb.delta[broke],
                    active.margin(logits)[broke].to(value),
                    True,
                )
                open_ = ~done[climb.rows]
                if not bool(open_.any()):
                    break
                if chunk_count(int(open_.sum()), self.chunk) < chunk_count(len(open_), self.chunk):
                    climb, active = climb.kept(open_), active[open_]
                    towards = None if towards is None else towards[open_]
            if number == 0 and self.norm != 1 and not bool(gradient.any()):
                break  # no image would move
            if number in checks and number < steps:
                if self.norm == 1:
                    climb.checked_sparse(longest)
                else:
                    climb.checked(number - last)
                last = number
            if self.norm == 1 and number == steps - 1:  # on a linear model the strongest there is
                climb.delta = linear_optimum(climb.best_gradient, active.images, radius, 1)
            elif number < steps:
                self._move(active.images, climb, radius, first=number == 0)
        left = ~done[climb.rows]
        rows = climb.rows[left]
        found[rows], value[rows] = climb.best[left], climb.margin[left].to(value)
        return batch.images + found, value, done

    def _move(self, images: Tensor, climb: _Climb, radius: float, *, first: bool) -> None:
        def inside(delta: Tensor) -> Tensor:
            return projected(delta, images, radius, self.norm)

        delta, length = climb.delta, one_an_image(climb.length, images)
        if self.norm == 1:
            room = room_along(climb.gradient, images + delta)
            step = _sparse(torch.where(room > 0, climb.gradient, 0.0), climb.share)
            moved = inside(delta + length * step)
        else:
            moved = inside(delta + length * steepest(climb.gradient, self.norm))
            if not first:
                moved = inside(delta + MOMENTUM * (moved - delta) + (1 - MOMENTUM) * (delta - climb.before))
        climb.before, climb.delta = delta, moved


def _checkpoints(steps: int, norm: float) -> frozenset[int]:
    """After which steps progress is judged.

    >>> sorted(_checkpoints(100, math.inf))
    [22, 41, 57, 70, 80, 87, 93, 99]
    """
    if norm == 1:
        span = math.ceil(SPARSE_CHECK * steps)
        return frozenset(range(span, steps + 1, span))
    share, span_share, found = FIRST_CHECK, FIRST_CHECK, []
    while share < 1:
        found.append(math.ceil(round(share * steps, 9)))
        span_share = max(span_share - CHECK_LESS, CHECK_LEAST)
        share += span_share
    return frozenset(found)


def _sparse(gradient: Tensor, share: Tensor) -> Tensor:
    """The signs of the largest entries, a share of each image's pixels, in units that make the norm 1 of it 1."""
    size = finite_slopes(gradient).flatten(1).abs()
    most = (share * size.shape[1]).long().clamp(min=1, max=size.shape[1])
    floor = size.sort(dim=1, descending=True).values.gather(1, (most - 1).unsqueeze(1))
    large = (size >= floor) & (size > 0)
    step = torch.where(large, gradient.flatten(1).sign(), 0.0) / large.sum(dim=1, keepdim=True).clamp(min=1)
    return step.to(gradient).view_as(gradient)


def _rivals(batch: Batch, rank: int) -> Tensor:
    """The wrong class with the largest logit, or the next ones after it."""
    others = batch.logits.scatter(1, batch.labels.unsqueeze(1), -math.inf)
    return others.argsort(dim=1, descending=True, stable=True)[:, rank]
