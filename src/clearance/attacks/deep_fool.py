"""DeepFool: from one linearisation of the classifier to the next, until the answer changes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearance._checks import check_count, check_non_negative
from clearance.attacks.attack import Batch, DistanceAttack
from clearance.attacks.balls import norm_of, shortest_step
from clearance.attacks.losses import logit_margin
from clearance.attacks.queries import gradients_of, logits_of
from clearance.geometry.first_order import dual_norm, first_order_distance
from clearance.vocabulary import Bounds


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


def margin_slope(batch: Batch, points: Tensor) -> Slopes:
    """The same for the best rival alone (K = 1), in one forward and one backward pass."""
    logits, gradients = batch.ascent(points, "logit_margin")
    gaps = logit_margin(logits, batch.labels).to(points.dtype)
    return Slopes(batch.broken(logits), _finite(gaps)[None], _finite(gradients)[None])


def _rival_slope(batch: Batch, points: Tensor, rival: Tensor) -> tuple[Tensor, Tensor]:
    pair = torch.stack([rival, batch.labels], dim=1)

    def gap(logits: Tensor, rows: slice) -> Tensor:
        high, low = logits.gather(1, pair[rows]).unbind(dim=1)
        return high - low

    logits, gradients = gradients_of(batch.model, points, gap, chunk=batch.chunk)
    return _finite(gap(logits, slice(None)).to(points.dtype)), _finite(gradients)


def _finite(numbers: Tensor) -> Tensor:
    return numbers.nan_to_num(0.0, 0.0, 0.0)


GRAIN = 1e-6  # in pixel units: the step away from a tie
ROUNDING = 1e-3  # share of a rise by which a step to the boundary may fall short of it; steps go 2 % beyond


@dataclass(frozen=True)
class DeepFool(DistanceAttack):
    r"""Steps to the nearest boundary as it would be if the classifier were linear.

        x_{t+1} = x_t + argmin_d min_i ||d||_p   such that   (z_i - z_y)(x_t) + grad(z_i - z_y)(x_t) . d >= 0

    Source: Moosavi-Dezfooli, Fawzi, Frossard, *DeepFool* (2016), algorithm 2 (p = 2) and section 3.3 (other
    norms). There pixels are not bounded; here a step is the shortest one inside the bounds
    (:func:`~clearance.attacks.balls.shortest_step`).

    Args:
        norm: inf, 2 or 1.
        steps: At most; 50 as in the authors' code.
        rivals: Wrong classes whose boundaries are looked at in a step, by largest logit; 9 is all of ten
            classes, as in the paper.
        overshoot: How much farther than the boundary a step goes, as a share of the gap; 0.02 as in the
            paper, section 4.1, but for each step rather than for their sum.
        bounds: Of pixel values.
        chunk: Images that the model sees at once.

    Raises:
        ValueError: If a setting is out of range.

    Misleads as a distance: it stops at a boundary, not at its nearest point; on digits 2 % to 40 % too far, the
    more the less linear the network. :class:`~clearance.attacks.minimum_norm.MinimumNorm` begins where it ends.

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
        return self.crossed(batch)

    def crossed(self, batch: Batch) -> Tensor:
        """Points behind a boundary, or as near to one as the steps led, for every image of the batch."""
        points = batch.images.clone()
        rows = torch.arange(len(batch), device=points.device)
        for _ in range(self.steps):
            slopes = rival_slopes(batch, points[rows], self.rivals)
            step = _nearest(slopes, points[rows], self.norm, self.bounds, 1 + self.overshoot)
            going = ~slopes.broken & (step.flatten(1) != 0).any(dim=1)
            rows, batch = rows[going], batch[going]
            if not len(rows):
                break
            points[rows] = (points[rows] + step[going]).clamp(self.bounds.lower, self.bounds.upper)
        return points


def _nearest(slopes: Slopes, points: Tensor, norm: float, bounds: Bounds, factor: float) -> Tensor:
    """The shortest of the steps to the rivals' linear boundaries; 0 where no gradient leads anywhere.

    A step that reaches its boundary inside the bounds is never shorter than the first-order distance, which costs
    no sorting of pixels: a rival is only looked at where that is less than the steps to the rivals before it. Where no
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
        step = shortest_step(points[rows], gradient[rows], rise[rows], norm, bounds)
        length = norm_of(step, norm).to(least)
        gained = (gradient[rows] * step).flatten(1).sum(dim=1)
        arrives = (length > 0) & (gained >= rise[rows] * (1 - ROUNDING))
        shorter = arrives & (length < least[rows])
        best[rows[shorter]], least[rows[shorter]] = step[shorter], length[shorter]
        nearly = ~arrives & (length > 0) & (length < least_short[rows])
        short[rows[nearly]], least_short[rows[nearly]] = step[nearly], length[nearly]
    return torch.where(least.isinf().view(-1, *[1] * (points.ndim - 1)), short, best)
