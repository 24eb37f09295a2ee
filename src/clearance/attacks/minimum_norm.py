"""The distance of an image to the nearest one that the model gets wrong, as near as a search comes to it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from clearance._checks import check_count
from clearance.attacks.attack import Batch, DistanceAttack, blended, chosen, shortened
from clearance.attacks.balls import norm_of, projected, shortest_step
from clearance.attacks.deep_fool import DeepFool, margin_slope
from clearance.attacks.queries import logits_of

HALVINGS = 12  # a bisection is precise to 1 / 4096 of the distance
STRIDE = (2.0, 0.01)  # first and last step along the gradient, as shares of the distance known so far
LOSSES = ("scaled_cross_entropy", "logit_margin")  # each finds images that the other is stuck on
TURNS = 12  # towards the tangent of the boundary; what later ones gain is below the bisection's precision
RADIUS_CHANGE = (0.05, 0.001)  # first and last relative change of the radius: FMN's gamma


@dataclass(frozen=True)
class MinimumNorm(DistanceAttack):
    r"""The smallest perturbation that changes the answer: DeepFool, then a search on shrinking balls, then bisection.

    1. DeepFool crosses a boundary; bisection on the way there gives a first distance.
    2. Twice `steps` / 2 rounds from x itself, with x' = x + d: a step along the normalised gradient of a loss,
       then the exact projection onto a ball around x. Its radius shrinks while x' is wrong, to (1 - a) of itself
       and at most the best distance yet, and grows by (1 + a) while it is right. Length of step and a follow
       half a cosine from their first to their last value. The loss is cross-entropy in units of the sample's
       own logits the first time, which looks at all classes, and the logit margin the second time.
    3. Bisection from the best x' towards x; then 12 turns towards the point nearest to x on the tangent of the
       boundary there, inside the bounds, each followed by bisection and kept if it is shorter.

    Source: Rony et al., *Decoupling Direction and Norm* (2019), for the direction and norm that go separate
    ways; Pintor et al., *Fast Minimum-Norm Adversarial Attacks* (2021), algorithm 1, for other norms and the
    annealing; the turns follow the projections of Croce and Hein's FAB (2020). Here steps are measured in the
    distance known so far, not in pixel units, so that small images need no other setting, and no step depends
    on the scale of logits.

    Where no gradient leads anywhere the start is a blend with black, white, grey or the negative.

    Args:
        norm: inf, 2 or 1.
        steps: Rounds of the search, one forward and one backward pass each; 200 by default.
        bounds: Of pixel values.
        chunk: Images that the model sees at once.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps)

    def _search(self, batch: Batch) -> Tensor:
        start = DeepFool(self.norm, bounds=self.bounds, chunk=self.chunk).crossed(batch)
        wrong = batch.broken(logits_of(batch.model, start, chunk=self.chunk))
        if not bool(wrong.all()):
            start[~wrong] = self._blends(batch[~wrong])
            wrong = batch.broken(logits_of(batch.model, start, chunk=self.chunk))
        found = start.clone()
        if bool(wrong.any()):
            found[wrong] = self._nearer(batch[wrong], start[wrong])
        return found

    def _nearer(self, batch: Batch, start: Tensor) -> Tensor:
        near = shortened(batch, start, self.bounds, HALVINGS)
        best = near - batch.images
        for loss in LOSSES:
            best = self._annealed(batch, best, loss)
        near = shortened(batch, batch.images + best, self.bounds, HALVINGS)
        return self._straightened(batch, near)

    def _annealed(self, batch: Batch, best: Tensor, loss: str) -> Tensor:
        """Displacements of wrong images that are no longer than `best`, which are such themselves."""
        delta = torch.zeros_like(best)
        least = norm_of(best, self.norm)
        radius = least.clone()
        rounds = max(self.steps // len(LOSSES), 1)
        for number in range(rounds):
            logits, gradient = batch.ascent(batch.images + delta, loss)
            wrong, length = batch.broken(logits), norm_of(delta, self.norm)
            shorter = wrong & (length < least)
            best, least = chosen(shorter, delta, best), torch.where(shorter, length, least)
            change = _annealing(RADIUS_CHANGE, number / rounds)
            smaller = torch.minimum(radius * (1 - change), least)
            radius = torch.where(wrong, smaller, radius * (1 + change))
            stride = _annealing(STRIDE, number / rounds) * norm_of(best, 2)
            moved = delta + _along(gradient.nan_to_num(0.0, 0.0, 0.0), stride)
            delta = projected(moved, batch.images, radius, self.norm, self.bounds)
        return best

    def _straightened(self, batch: Batch, near: Tensor) -> Tensor:
        """Wrong images turned towards the nearest point of the boundary's tangent, as long as that is shorter."""
        images = batch.images
        least = norm_of(near - images, self.norm)
        share = torch.ones_like(least)
        for _ in range(TURNS):
            slopes = margin_slope(batch, near)
            gradient, delta = slopes.gradients[0], near - images
            rise = (gradient * delta).flatten(1).sum(1) - slopes.gaps[0]
            tangent = shortest_step(images, gradient, rise, self.norm, self.bounds)
            turned = blended(near, images + tangent, share, self.bounds)
            # as far out as the best image yet, and from there back to the boundary
            length = norm_of(turned - images, self.norm)
            out = torch.where(length > 0, least / length, 0.0)
            turned = shortened(batch, blended(images, turned, out, self.bounds), self.bounds, HALVINGS)
            length = norm_of(turned - images, self.norm)
            better = (length < least) & batch.broken(logits_of(batch.model, turned, chunk=self.chunk))
            near, least = chosen(better, turned, near), torch.where(better, length, least)
            share = torch.where(better, (1.5 * share).clamp(max=1.0), share / 2)
        return near

    def _blends(self, batch: Batch) -> Tensor:
        """Where there is no gradient to follow: the nearest wrong blend with an image that shows nothing."""
        images, (low, high) = batch.images, (self.bounds.lower, self.bounds.upper)
        blank = [torch.full_like(images, level) for level in (low, high, (low + high) / 2)]
        found, least = images.clone(), torch.full_like(norm_of(images, self.norm), torch.inf)
        whole = torch.ones_like(images.flatten(1)[:, 0])
        for far in (*blank, low + high - images):
            near = shortened(batch, blended(images, far, whole, self.bounds), self.bounds, HALVINGS)
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
