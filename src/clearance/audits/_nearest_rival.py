"""The rival whose boundary is nearest to first order, and the way to it: what everything local stands on."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from clearance.geometry.first_order import dual_norm, first_order_distance
from clearance.models._placement import dtype_of
from clearance.models.classifier import Classifier
from clearance.objectives.margins import margin_distances

CHUNK = 64  # activations of so many 28 x 28 images stay in a processor's cache: two thirds of the time of 256 at once


@dataclass(frozen=True)
class NearestRival:
    """Of a batch of images, in one norm.

    Args:
        images: In the model's precision, (B, C, H, W).
        labels: y, (B,).
        rival: k, the class with the smallest first-order distance, (B,).
        gap: m = z_y - z_k, positive where y is ahead, (B,).
        gradient: Of the gap in the image, (B, C, H, W).
        slope: Its dual norm, the local scale: gap = slope x distance, (B,).
        distance: Signed first-order distance, gap / slope, (B,).
    """

    images: Tensor
    labels: Tensor
    rival: Tensor
    gap: Tensor
    gradient: Tensor
    slope: Tensor
    distance: Tensor

    def rows(self, rows: Tensor) -> "NearestRival":
        """Of some of the images."""
        return NearestRival(*(getattr(self, one.name)[rows] for one in fields(self)))

    @property
    def usable(self) -> Tensor:
        """Where there is a direction to go in: the gradient is a number and not zero, (B,)."""
        return self.slope.isfinite() & (self.slope > 0) & self.gap.isfinite()

    def direction(self, norm: float) -> Tensor:
        """The step of p-norm 1 along which the gap falls fastest, by the slope; zero where none is usable.

        For p = 1 it is one pixel, the first of those with the largest gradient.
        """
        flat = torch.where(self.usable.unsqueeze(1), self.gradient.flatten(1), 0.0)
        if norm == 1:
            step = torch.zeros_like(flat)
            largest = flat.abs().argmax(dim=1, keepdim=True)
            step.scatter_(1, largest, flat.gather(1, largest).sign())
        elif math.isinf(norm):
            step = flat.sign()
        else:
            step = flat / torch.where(self.usable, self.slope, 1.0).unsqueeze(1)
        return -step.view_as(self.gradient)


def nearest_rivals(
    model: Classifier, images: Tensor, labels: Tensor, norm: float, rivals: int | None = None
) -> NearestRival:
    """Look at every rival (or those with the highest logits) once, and at the nearest again for its gradient.

    Args:
        model: In evaluation mode; images are taken in its precision.
        images: In [0, 1], (B, C, H, W).
        labels: (B,).
        norm: 1, 2 or inf.
        rivals: How many to look at, those with the highest logits; None is all.
    """
    exact = images.to(dtype_of(model))
    chosen = []
    for some, own in zip(exact.split(CHUNK), labels.split(CHUNK), strict=True):
        found = margin_distances(model, some, own, ("input",), norm=norm, top_k=rivals)
        # what is not a number is no distance: never the nearest while another is one
        distances = found.distances["input"].nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf)
        chosen.append(found.rivals.gather(1, distances.argmin(dim=1, keepdim=True)).squeeze(1))
    return towards(model, exact, labels, torch.cat(chosen), norm)


def towards(model: Classifier, images: Tensor, labels: Tensor, rival: Tensor, norm: float) -> NearestRival:
    """Gap, gradient and distance of each image towards one rival of it."""
    parts = [
        gap_and_gradient(model, *some)
        for some in zip(images.split(CHUNK), labels.split(CHUNK), rival.split(CHUNK), strict=True)
    ]
    gap, gradient = (torch.cat(one) for one in zip(*parts, strict=True))
    slope = dual_norm(gradient, norm)
    return NearestRival(images, labels, rival, gap, gradient, slope, first_order_distance(gap, slope))


def gap_and_gradient(
    model: Classifier, images: Tensor, labels: Tensor, rival: Tensor
) -> tuple[Tensor, Tensor]:
    """z_y - z_k and its gradient in the image."""
    with torch.enable_grad():
        moving = images.detach().clone().requires_grad_()
        gap = _gap(model(moving), labels, rival)
        (gradient,) = torch.autograd.grad(gap.sum(), moving)
    return gap.detach(), gradient


def gap_to(model: Classifier, rivals: NearestRival) -> Callable[[Tensor], Tensor]:
    """The gap to the nearest rival as a function of moved images."""

    def gap(images: Tensor) -> Tensor:
        return _gap(_logits(model, images), rivals.labels, rivals.rival)

    return gap


def lead_of(model: Classifier, rivals: NearestRival) -> Callable[[Tensor], Tensor]:
    """The gap to whichever rival is ahead of all others, as a function of moved images: negative where it wins."""

    def lead(images: Tensor) -> Tensor:
        logits = _logits(model, images)
        own = rivals.labels.unsqueeze(1)
        others = logits.scatter(1, own, -math.inf)
        return logits.gather(1, own).squeeze(1) - others.amax(dim=1)

    return lead


def _gap(logits: Tensor, labels: Tensor, rival: Tensor) -> Tensor:
    return (logits.gather(1, labels.unsqueeze(1)) - logits.gather(1, rival.unsqueeze(1))).squeeze(1)


@torch.no_grad()
def _logits(model: Classifier, images: Tensor) -> Tensor:
    return torch.cat([model(part) for part in images.split(8 * CHUNK)])
