"""The nearest image that the model gets wrong: DeepFool, and a search that starts from its result."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self, final

import torch
from torch import Tensor

from clearance._checks import check_count, check_non_negative
from clearance._first_order import dual_norm, first_order_distance
from clearance._precision import at_least_float32
from clearance.attacks.attack import CHUNK, Attacked, Batch, Model, gradients_of, logits_of, rescored
from clearance.attacks.balls import as_norm, chosen, finite_slopes, norm_of, projected

FARTHER = (1.0005, 1.002, 1.01, 1.02)
"""By how much a candidate on the very boundary is moved out, as factors of its distance, one after the other."""


@dataclass(frozen=True)
class DistanceAttack(ABC):
    """An attack without a radius: it searches for the nearest image that the model gets wrong.

    Args:
        norm: inf, 2 or 1; of the distance.
        chunk: Images that the model sees at once. Change it only for memory or speed.

    Raises:
        ValueError: If a setting is out of range.
    """

    norm: float = 2.0
    chunk: int = field(default=CHUNK, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", as_norm(self.norm))
        check_count("chunk", self.chunk)

    @final
    @torch.inference_mode(False)  # a caller's inference mode would make tensors without gradients
    @torch.no_grad()
    def __call__(self, model: Model, images: Tensor, labels: Tensor) -> Attacked:
        """The nearest wrong images found for those that the model gets right.

        Args:
            model: Images to logits; a module must be in evaluation mode. No ``.grad`` is touched.
            images: (B, ...) in [0, 1], floating point.
            labels: (B,), the true classes.

        Returns:
            Verified images with their distances in pixel units: 0 for an image that the model got wrong
            before, infinity (and the original) for one where no wrong image was found.

        Raises:
            ValueError: If the model is in training mode, images are outside [0, 1], shapes do not fit, or
                a class is not among the model's.
            TypeError: If images or labels are not tensors of the right kind.
        """
        batch = Batch.checked(model, images, labels, None, self.chunk)
        before = batch.broken(batch.logits)
        found = batch.images.clone()
        chunks = torch.arange(len(before), device=before.device).split(self.chunk)
        for number, rows in enumerate(chunks):  # what is found for an image depends on its chunk alone
            right = rows[~before[rows]]
            if len(right):
                found[right] = self._at(number, len(chunks))._search(batch[right])
        if not bool(before.all()):
            found = self._settled(batch, found, before)
        hit = rescored(
            model,
            batch.images,
            found,
            batch.labels,
            norm=self.norm,
            before=before,
            chunk=self.chunk,
        )
        failed = hit.success.logical_not()
        images = chosen(failed, batch.images, hit.images)
        return replace(hit, images=images, distance=torch.where(failed, torch.inf, hit.distance))

    def _settled(self, batch: Batch, found: Tensor, before: Tensor) -> Tensor:
        """Candidates that lie so near the boundary that rounding decides, moved a little farther out.

        Logits of an image can differ in the last bit between a search and the whole batch.
        """
        for farther in FARTHER:
            wrong = before | batch.broken(logits_of(batch.model, found, chunk=batch.chunk))
            if bool(wrong.all()):
                break
            share = torch.full_like(found.flatten(1)[:, 0], farther)
            found = chosen(wrong, found, blended(batch.images, found, share))
        return found

    def _at(self, number: int, of: int) -> Self:  # noqa: ARG002
        """The search of one of several chunks."""
        return self

    @abstractmethod
    def _search(self, batch: Batch) -> Tensor:
        """Candidates in [0, 1] for every image of the batch, of which there is at least one."""


def blended(images: Tensor, far: Tensor, share: Tensor) -> Tensor:
    """Images moved towards others by a share of the way each, (B,)."""
    moved = images + share.to(images).view(-1, *[1] * (images.ndim - 1)) * (far - images)
    return moved.clamp(0, 1)


def shortened(batch: Batch, far: Tensor, halvings: int) -> Tensor:
    """Wrong images nearer to the originals, on the straight way to `far`, found by bisection.

    Precise to 2^-halvings of the way; exact where the way crosses the boundary once. Rows of `far` that are
    not wrong themselves are returned unchanged, or nearly.

    >>> model = torch.nn.Identity().eval()                                  # the larger pixel names the class
    >>> batch = Batch.checked(model, torch.tensor([[1.0, 0.5]]), torch.tensor([0]), None, 64)
    >>> near = shortened(batch, torch.tensor([[0.0, 0.5]]), halvings=12)
    >>> round(float(near[0, 0]), 3)
    0.5
    """
    low, high = torch.zeros_like(far.flatten(1)[:, 0]), torch.ones_like(far.flatten(1)[:, 0])
    for _ in range(halvings):
        middle = (low + high) / 2
        logits = logits_of(batch.model, blended(batch.images, far, middle), chunk=batch.chunk)
        wrong = batch.broken(logits)
        low, high = torch.where(wrong, low, middle), torch.where(wrong, middle, high)
    return blended(batch.images, far, high)


def shortest_step(points: Tensor, gradient: Tensor, rise: Tensor, norm: float) -> Tensor:
    r"""The shortest step that raises a linear function by `rise` and stays in [0, 1].

        minimise ||d||_p   subject to   gradient . d >= rise,   0 <= points + d <= 1

    With r_i the room of pixel i in the direction of its gradient: for p = inf ``d = sign(g) min(t, r)``, for
    1 < p < inf ``|d| = min(t |g|^(1 / (p - 1)), r)`` with the one t that reaches the rise (found by sorting the
    pixels by the t at which they reach their bound), and for p = 1 the pixels with the largest gradient go
    to their bounds one after the other. Away from the bounds ||d||_p = rise / ||gradient||_q.

    Source: Elsayed et al. (2018), the distance of a linear classifier, for the unbounded case; the bounds are
    the Karush-Kuhn-Tucker conditions of the problem above.

    Args:
        points: Where the step begins, in [0, 1].
        gradient: Of the linear function; 0 for a row gives no step.
        rise: Wanted for each row; 0 and below give no step. Where no image in [0, 1] reaches it, the
            step goes as far as the bounds allow, and the rise falls short.
        norm: p, at least 1; ``math.inf`` for the largest change of a pixel.

    Shapes:
        points and gradient (B, ...); rise (B,); returns (B, ...).

    >>> step = shortest_step(torch.tensor([[0.5, 0.9]]), torch.tensor([[1.0, 1.0]]), torch.tensor([0.5]), math.inf)
    >>> [round(change, 4) for change in step[0].tolist()]           # the second pixel has room for 0.1 only
    [0.4, 0.1]
    """
    # sums over pixels would lose what half precision has
    slopes, at, rise = (
        at_least_float32(gradient).flatten(1),
        at_least_float32(points).flatten(1),
        at_least_float32(rise),
    )
    room = torch.where(slopes > 0, 1 - at, at).clamp(min=0.0)
    steep = slopes.abs()
    length = _filled(steep, room, rise) if norm == 1 else _raised_together(steep, room, rise, norm)
    return (slopes.sign() * length).to(points.dtype).view_as(points)


def _raised_together(steep: Tensor, room: Tensor, rise: Tensor, norm: float) -> Tensor:
    """Lengths min(t speed, room) of all pixels, with the least t that gives the rise."""
    speed = (steep > 0).to(steep) if math.isinf(norm) else _unit(steep) ** (1 / (norm - 1))
    full_at = torch.where(speed > 0, room / speed, torch.inf)  # the t at which a pixel reaches its bound
    order = full_at.argsort(dim=1)
    times, gains = full_at.gather(1, order), (steep * room).gather(1, order)
    pace = (steep * speed).gather(1, order)
    banked = gains.cumsum(1) - gains  # by the pixels that are at their bounds before this one
    left = pace.flip(1).cumsum(1).flip(1)  # what all others gain as t grows by one
    reached = torch.where(left > 0, banked + times * left, banked)
    enough = reached >= rise[:, None]
    first = enough.to(torch.int8).argmax(dim=1, keepdim=True)
    t = (rise[:, None] - banked.gather(1, first)) / left.gather(1, first)
    t = torch.where(enough.any(dim=1, keepdim=True) & t.isfinite(), t, torch.inf).clamp(min=0.0)
    return torch.minimum(torch.where(speed > 0, t * speed, 0.0), room)


def _unit(steep: Tensor) -> Tensor:
    """The gradient in units of its largest entry, so that no power of it overflows."""
    return steep / steep.amax(dim=1, keepdim=True).clamp(min=torch.finfo(steep.dtype).tiny)


def _filled(steep: Tensor, room: Tensor, rise: Tensor) -> Tensor:
    """Lengths for p = 1: pixels to their bounds, steepest first, the last one part of the way."""
    order = steep.argsort(dim=1, descending=True, stable=True)
    slopes, space = steep.gather(1, order), room.gather(1, order)
    gains = slopes * space
    missing = (rise[:, None] - (gains.cumsum(1) - gains)).clamp(min=0.0)
    part = torch.where(slopes > 0, torch.minimum(missing / slopes, space), 0.0)
    return torch.zeros_like(steep).scatter(1, order, part)


@dataclass(frozen=True)
class Slopes:
    """The classifier around some points, to first order.

    Args:
        broken: Where the answer at a point is wrong, (B,).
        gaps: Logit of a rival minus that of the label, the best rival first, (K, B).
        gradients: Of those gaps, (K, B, ...); 0 where one is not a number.
    """

    broken: Tensor
    gaps: Tensor
    gradients: Tensor


def rival_slopes(batch: Batch, points: Tensor, rivals: int) -> Slopes:
    """Gaps to the `rivals` wrong classes with the largest logits, and their gradients at `points`.

    Gradients of a logit gap know no saturation, and the scale of logits cancels in every step made of them.
    """
    logits = logits_of(batch.model, points, chunk=batch.chunk)
    others = logits.scatter(1, batch.labels[:, None], -torch.inf)
    best = others.topk(min(rivals, logits.shape[1] - 1), dim=1).indices
    pairs = [_rival_slope(batch, points, rival) for rival in best.T]
    gaps, gradients = (torch.stack(part) for part in zip(*pairs, strict=True))
    return Slopes(batch.broken(logits), gaps, gradients)


def _rival_slope(batch: Batch, points: Tensor, rival: Tensor) -> tuple[Tensor, Tensor]:
    pair = torch.stack([rival, batch.labels], dim=1)

    def gap(logits: Tensor, rows: slice) -> Tensor:
        high, low = logits.gather(1, pair[rows]).unbind(dim=1)
        return high - low

    logits, gradients = gradients_of(batch.model, points, gap, chunk=batch.chunk)
    return gap(logits, slice(None)).to(points.dtype).nan_to_num(0.0, 0.0, 0.0), finite_slopes(gradients)


GRAIN = 1e-6  # in pixel units: the step away from a tie
ROUNDING = 1e-3  # share of a rise by which a step to the boundary may fall short of it; steps go 2 % beyond


@dataclass(frozen=True)
class DeepFool(DistanceAttack):
    r"""Steps to the nearest boundary as it would be if the classifier were linear.

        x_{t+1} = x_t + argmin_d min_i ||d||_p   such that   (z_i - z_y)(x_t) + grad(z_i - z_y)(x_t) . d >= 0

    Source: Moosavi-Dezfooli, Fawzi, Frossard, *DeepFool* (2016), algorithm 2 (p = 2) and section 3.3 (other
    norms). There pixels are not bounded; here a step is the shortest one inside the bounds
    (:func:`shortest_step`).

    Args:
        norm: inf, 2 or 1.
        steps: At most; 50 as in the authors' code.
        rivals: Wrong classes whose boundaries are examined in a step, by largest logit; 9 is all of ten
            classes, as in the paper.
        overshoot: How much farther than the boundary a step goes, as a share of the gap; 0.02 as in the
            paper, section 4.1, but for each step rather than for their sum.
        chunk: Images that the model sees at once.

    Raises:
        ValueError: If a setting is out of range.

    Misleads as a distance: it stops at a boundary, not at its nearest point; on digits 2 % to 40 % too far, the
    more the less linear the network. :class:`MinimumNorm` begins where it ends.

    >>> model = torch.nn.Identity().eval()                                  # the larger pixel names the class
    >>> hit = DeepFool(norm=2)(model, torch.tensor([[0.8, 0.4]]), torch.tensor([0]))
    >>> hit.success, round(float(hit.distance), 2)                   # 0.4 / sqrt(2), and 2 % more
    (tensor([True]), 0.29)
    """

    steps: int = 50
    rivals: int = 9
    overshoot: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps)
        check_count("rivals", self.rivals)
        check_non_negative("overshoot", self.overshoot)

    def _search(self, batch: Batch) -> Tensor:
        """Points behind a boundary, or as near to one as the steps led, for every image of the batch."""
        points = batch.images.clone()
        rows = torch.arange(len(batch), device=points.device)
        for _ in range(self.steps):
            slopes = rival_slopes(batch, points[rows], self.rivals)
            step = _nearest(slopes, points[rows], self.norm, 1 + self.overshoot)
            going = ~slopes.broken & (step.flatten(1) != 0).any(dim=1)
            rows, batch = rows[going], batch[going]
            if not len(rows):
                break
            points[rows] = (points[rows] + step[going]).clamp(0, 1)
        return points


def _nearest(slopes: Slopes, points: Tensor, norm: float, factor: float) -> Tensor:
    """The shortest of the steps to the rivals' linear boundaries; 0 without a usable gradient.

    A step that reaches its boundary inside the bounds is never shorter than the first-order distance, which costs
    no sorting of pixels: a rival is only examined where that is less than the steps to the rivals before it. Where no
    boundary can be reached inside the bounds, the shortest of the steps as far as those.
    """
    best, short = torch.zeros_like(points), torch.zeros_like(points)
    least, least_short = (torch.full_like(slopes.gaps[0], torch.inf) for _ in range(2))
    for gap, gradient in zip(slopes.gaps, slopes.gradients, strict=True):
        slope = dual_norm(gradient, norm).to(gap)
        # a tie names the label by chance: beyond it is the shortest of all steps, and not none
        rise = torch.where(gap == 0, GRAIN * slope, -gap * factor)
        nearer = first_order_distance(rise, slope) < least
        rows = nearer.nonzero().flatten()
        if not len(rows):
            continue
        step = shortest_step(points[rows], gradient[rows], rise[rows], norm)
        length = norm_of(step, norm).to(least)
        gained = (gradient[rows] * step).flatten(1).sum(dim=1)
        arrives = (length > 0) & (gained >= rise[rows] * (1 - ROUNDING))
        shorter = arrives & (length < least[rows])
        best[rows[shorter]], least[rows[shorter]] = step[shorter], length[shorter]
        nearly = ~arrives & (length > 0) & (length < least_short[rows])
        short[rows[nearly]], least_short[rows[nearly]] = step[nearly], length[nearly]
    return torch.where(least.isinf().view(-1, *[1] * (points.ndim - 1)), short, best)


HALVINGS = 12  # a bisection is precise to 1 / 4096 of the distance
STRIDE = (2.0, 0.01)  # first and last step along the gradient, as shares of the distance known so far
SEARCH_LOSSES = ("scaled_cross_entropy", "logit_margin")  # each finds images that the other is stuck on
TURNS = 12  # towards the tangent of the boundary; what later ones gain is below the bisection's precision
FIRST, LAST = (
    0.2,
    0.7,
)  # shares of the time after which the rounds begin and end, on a small convolutional network
RADIUS_CHANGE = (0.05, 0.001)  # first and last relative change of the radius: FMN's gamma


@dataclass(frozen=True)
class MinimumNorm(DistanceAttack):
    r"""The smallest perturbation that changes the answer: DeepFool, then a search on shrinking balls, then bisection.

    1. DeepFool crosses a boundary; bisection on the way there gives a first distance.
    2. Twice `steps` / 2 rounds from x itself, with x' = x + d: a step along the normalised gradient of a loss,
       then the exact projection onto a ball around x. Its radius shrinks while x' is wrong, to (1 - a) of itself
       and at most the best distance yet, and grows by (1 + a) while it is right. Length of step and a follow
       half a cosine from their first to their last value. The loss is cross-entropy in units of the sample's
       own logits the first time, which uses all classes, and the logit margin the second time.
    3. Bisection from the best x' towards x; then 12 turns towards the point nearest to x on the tangent of the
       boundary there, inside the bounds, each followed by bisection and kept if it is shorter.

    Source: Rony et al., *Decoupling Direction and Norm* (2019), for the direction and norm that go separate
    ways; Pintor et al., *Fast Minimum-Norm Adversarial Attacks* (2021), algorithm 1, for other norms and the
    annealing; the turns follow the projections of Croce and Hein's FAB (2020). Here steps are measured in the
    distance known so far, not in pixel units, so that small images need no other setting, and no step depends
    on the scale of logits.

    Without a usable gradient the start is a blend with black, white, grey or the negative.

    Args:
        norm: inf, 2 or 1.
        steps: Rounds of the search, one forward and one backward pass each; 200 by default.
        chunk: Images that the model sees at once.
        on_progress: Told the share of the search that is done, from 0 to 1, after each round.

    Raises:
        ValueError: If a setting is out of range.

    On a linear classifier the distance is exact up to the bisection, bounds included. Misleads elsewhere: it
    is an upper bound, and a model that hides its gradients (rounding, saturation before the logits) gets one
    that is far too long.

    >>> model = torch.nn.Identity().eval()                                  # the larger pixel names the class
    >>> hit = MinimumNorm(norm=2)(model, torch.tensor([[0.8, 0.4]]), torch.tensor([0]))
    >>> round(float(hit.distance), 3)                                # 0.4 / sqrt(2)
    0.283
    """

    steps: int = 200
    on_progress: Callable[[float], object] | None = field(
        default=None, kw_only=True, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps)

    def _at(self, number: int, of: int) -> Self:
        say = self.on_progress
        return self if say is None else replace(self, on_progress=lambda done: say((number + done) / of))

    def _search(self, batch: Batch) -> Tensor:
        start = DeepFool(self.norm, chunk=self.chunk)._search(batch)
        wrong = batch.broken(logits_of(batch.model, start, chunk=self.chunk))
        if not bool(wrong.all()):
            start[~wrong] = self._blends(batch[~wrong])
            wrong = batch.broken(logits_of(batch.model, start, chunk=self.chunk))
        found = start.clone()
        if bool(wrong.any()):
            found[wrong] = self._nearer(batch[wrong], start[wrong])
        return found

    def _nearer(self, batch: Batch, start: Tensor) -> Tensor:
        near = shortened(batch, start, HALVINGS)
        best = near - batch.images
        for place, loss in enumerate(SEARCH_LOSSES):
            best = self._annealed(batch, best, loss, place / len(SEARCH_LOSSES))
        near = shortened(batch, batch.images + best, HALVINGS)
        return self._straightened(batch, near)

    def _says(self, done: float, start: float, end: float) -> None:
        if self.on_progress is not None:
            self.on_progress(start + done * (end - start))

    def _annealed(self, batch: Batch, best: Tensor, loss: str, before: float) -> Tensor:
        """Displacements of wrong images that are no longer than `best`, which are such themselves."""
        delta = torch.zeros_like(best)
        least = norm_of(best, self.norm)
        radius = least.clone()
        rounds = max(self.steps // len(SEARCH_LOSSES), 1)
        for number in range(rounds):
            self._says(before + number / rounds / len(SEARCH_LOSSES), FIRST, LAST)
            logits, gradient = batch.ascent(batch.images + delta, loss)
            wrong, length = batch.broken(logits), norm_of(delta, self.norm)
            shorter = wrong & (length < least)
            best, least = chosen(shorter, delta, best), torch.where(shorter, length, least)
            change = _annealing(RADIUS_CHANGE, number / rounds)
            smaller = torch.minimum(radius * (1 - change), least)
            radius = torch.where(wrong, smaller, radius * (1 + change))
            stride = _annealing(STRIDE, number / rounds) * norm_of(best, 2)
            moved = delta + _along(finite_slopes(gradient), stride)
            delta = projected(moved, batch.images, radius, self.norm)
        return best

    def _straightened(self, batch: Batch, near: Tensor) -> Tensor:
        """Wrong images turned towards the nearest point of the boundary's tangent, as long as that is shorter."""
        images = batch.images
        least = norm_of(near - images, self.norm)
        share = torch.ones_like(least)
        for number in range(TURNS):
            self._says(number / TURNS, LAST, 1.0)
            slopes = rival_slopes(batch, near, 1)
            gradient, delta = slopes.gradients[0], near - images
            rise = (gradient * delta).flatten(1).sum(1) - slopes.gaps[0]
            tangent = shortest_step(images, gradient, rise, self.norm)
            turned = blended(near, images + tangent, share)
            # as far out as the best image yet, and from there back to the boundary
            length = norm_of(turned - images, self.norm)
            out = torch.where(length > 0, least / length, 0.0)
            turned = shortened(batch, blended(images, turned, out), HALVINGS)
            length = norm_of(turned - images, self.norm)
            better = (length < least) & batch.broken(logits_of(batch.model, turned, chunk=self.chunk))
            near, least = chosen(better, turned, near), torch.where(better, length, least)
            share = torch.where(better, (1.5 * share).clamp(max=1.0), share / 2)
        return near

    def _blends(self, batch: Batch) -> Tensor:
        """Without a gradient to follow: the nearest wrong blend with a blank image or the negative."""
        images = batch.images
        blank = [torch.full_like(images, level) for level in (0.0, 1.0, 0.5)]
        found, least = images.clone(), torch.full_like(norm_of(images, self.norm), torch.inf)
        for far in (*blank, 1 - images):
            near = shortened(batch, far, HALVINGS)
            wrong = batch.broken(logits_of(batch.model, near, chunk=self.chunk))
            length = norm_of(near - images, self.norm)
            shorter = wrong & (length < least)
            found, least = chosen(shorter, near, found), torch.where(shorter, length, least)
        return found


def _annealing(ends: tuple[float, float], progress: float) -> float:
    """From the first to the last value along half a cosine."""
    first, last = ends
    return last + (first - last) * (1 + math.cos(math.pi * progress)) / 2


def _along(gradient: Tensor, length: Tensor) -> Tensor:
    """Steps of these Euclidean lengths; none where the gradient is zero."""
    size = norm_of(gradient, 2)
    factor = torch.where(size > 0, length / size, 0.0).to(gradient)
    return factor.view(-1, *[1] * (gradient.ndim - 1)) * gradient
