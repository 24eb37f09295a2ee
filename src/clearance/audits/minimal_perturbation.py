"""What is the smallest change of an image that changes the prediction?"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import bdtr
from torch import Tensor

from clearance._checks import check_choice, check_count
from clearance.attacks.attack import CHUNK, Model
from clearance.attacks.balls import of_all_pixels
from clearance.attacks.minimum_norm import MinimumNorm
from clearance.attacks.square import SquareSearch
from clearance.attacks.transfer import straight_through
from clearance.audits._audit import Audit, Findings, Subject, share_of
from clearance.audits._samples import fixed_images
from clearance.audits.robustness import Target, norm_name, usual_radii
from clearance.data import ImageSet
from clearance.models._running import evaluating
from clearance.models.classifier import Classifier
from clearance.vocabulary import Exhibit, Measurement, Scalar

FEWEST_FOR_INTERVAL = 6  # with fewer, order statistics have no interval of 95 % for a median

SEARCH = 70  # percent of the time that the search with gradients takes, more for a large network
NOTHING_RIGHT = {"noise_flipped": 1, "missed_flips": 0, "no_gradient": 0}


@dataclass(frozen=True)
class MinimalPerturbation(Audit):
    """The size of change that flips half of the images the classifier is right on, and what noise of that size does.

    ``median_flip`` is the median over right images of the distance to the nearest wrong image that
    :class:`clearance.attacks.MinimumNorm` finds, with the 95 % interval of order statistics, from six right images
    on. At that radius,
    ``noise_flipped`` is the share of right images that one draw of uniform noise flips: where it is far below a
    half, the change has to be aimed. Nothing depends on the scale of logits.

    ``accuracy_under_attack``, one number for each usual radius (:data:`clearance.audits.robustness.RADII`), is the
    share of images that are right and that no change found within the radius makes wrong. It is an upper bound: the
    audit ``robustness`` attacks harder and may find fewer.

    The alarm: ``missed_flips`` is the share of right images farther than the median that a search without
    gradients flips within it, and ``no_gradient`` the share whose logit margin has no gradient. Either far
    above 0 says that the median may be too long: the classifier hides its gradients. The search goes past rounding
    (:func:`clearance.attacks.straight_through`), but not past everything that hides them.

    Without a right image ``median_flip`` and ``accuracy_under_attack`` are 0 and ``noise_flipped`` 1. ``median_flip``
    is infinite where for half of the images none was found.

    Exhibit ``median_flip``, of kind ``per_image``: the distance of each image, none where the answer is wrong already,
    so that two models can be compared over the images that both are right on.

    Args:
        norm: inf (the largest change of a pixel) or 2, as a word or a number.
        images: At most, but one of every class at least; a class-balanced choice by the seed where there are more.
        steps: Of the search for the nearest wrong image.
        queries: Of the search without gradients, an image.

    Raises:
        ValueError: If a setting is out of range or unknown.

    Misleads: an upper bound, and a change that an attacker chooses, not one that happens by chance.

    >>> from torch import nn
    >>> from clearance.data import gaussian_images
    >>> from clearance.models import Classifier
    >>> train, test = gaussian_images(per_class=20, seed=0), gaussian_images(per_class=20, seed=1)
    >>> found = MinimalPerturbation(steps=5, queries=5)(Classifier(nn.Flatten(), nn.Linear(64, 3)), train, test)
    >>> [m.name for m in found.measurements]
    ['median_flip', 'accuracy_under_attack', 'accuracy_under_attack', 'noise_flipped', 'missed_flips', 'no_gradient']
    """

    name: ClassVar[str] = "minimal_perturbation"
    needs: ClassVar[tuple[str, ...]] = ("gradients",)
    norm: float | str = "inf"
    images: int = 200
    steps: int = 100
    queries: int = 300

    def __post_init__(self) -> None:
        norm = norm_name(self.norm)
        check_choice("norm", norm, ("inf", "2"))
        object.__setattr__(self, "norm", norm)
        for name in ("images", "steps", "queries"):
            check_count(name, getattr(self, name))

    def examine(self, subject: Subject) -> Findings:
        """Find the nearest wrong images, then try noise and a blind search at the median."""
        with evaluating(subject.model):
            data = fixed_images(subject.test, self.images, subject.seed).in_memory()
            target = Target(subject.model, data.images, data.labels, seed=subject.seed)
            right = int(target.right.sum())
            if not right:
                found = [self._size(torch.zeros(1)), *self._within(data, torch.zeros(0))]
                found += self._shares(NOTHING_RIGHT, 1)
                return Findings(tuple(found), (self._image_by_image(data, target.right, torch.zeros(0)),))
            distances = self._distances(subject, target)
            subject.progress(SEARCH, 100)  # a search without gradients follows
            size = self._size(distances)
            flipped, missed = self._at(subject, size.value, target, distances)
            blind = round(target.blind("logit_margin") * right)
        counts = {"noise_flipped": flipped, "missed_flips": missed, "no_gradient": blind}
        shown = self._image_by_image(data, target.right, distances)
        return Findings((size, *self._within(data, distances), *self._shares(counts, right)), (shown,))

    def _distances(self, subject: Subject, target: Target) -> Tensor:
        images, labels = target.images[target.right], target.labels[target.right]
        search = MinimumNorm(float(self.norm), steps=self.steps)
        if subject.workers is None:  # which could not tell from elsewhere
            search = replace(search, on_progress=lambda done: subject.progress(int(SEARCH * done), 100))
        return minimum_distances(subject, images, labels, search, past_steps=target.steps)

    def _at(self, subject: Subject, radius: float, target: Target, distances: Tensor) -> tuple[int, int]:
        """How many right images noise of this radius flips, and how many farther ones a search without gradients."""
        norm = float(self.norm)
        if not math.isfinite(radius):
            radius = of_all_pixels(target.images, norm)
        flipped = int((target.right & ~target.under_noise(norm, radius)).sum())
        farther = torch.zeros_like(target.right)
        farther[target.right.nonzero().flatten()[distances > radius]] = True
        blind = SquareSearch(radius, norm, queries=self.queries, seed=target.seed)
        rows = farther.nonzero().flatten()
        left = (
            subject.by_parts(_left, len(rows), lambda some: (target.part(rows[some]), blind))
            if len(rows)
            else []
        )
        return flipped, len(rows) - sum(int(part.sum()) for part in left)

    def _size(self, distances: Tensor) -> Measurement:
        value, low, high = median_interval(distances)
        context: dict[str, Scalar] = {"norm": self.norm}
        ends: dict[str, float] = {}
        if len(distances) >= FEWEST_FOR_INTERVAL and math.isfinite(high):
            context["interval"], ends = "order statistics 95 %", {"low": low, "high": high}
        return Measurement(
            self.name,
            "median_flip",
            value,
            "pixel units",
            len(distances),
            better="higher",
            context=context,
            **ends,
        )

    def _within(self, data: ImageSet, distances: Tensor) -> list[Measurement]:
        found = []
        for radius in usual_radii(data.images)[str(self.norm)]:
            left = int((distances > radius).sum())
            context: dict[str, Scalar] = {"norm": self.norm, "epsilon": radius}
            found.append(share_of(self.name, "accuracy_under_attack", left, len(data), "higher", context))
        return found

    def _image_by_image(self, data: ImageSet, right: Tensor, distances: Tensor) -> Exhibit:
        found = iter(distances.tolist())
        values = [next(found) if each else None for each in right.tolist()]
        # another number of steps finds other distances, so it is part of what two models must share
        context: dict[str, Scalar] = {
            "norm": self.norm, "steps": self.steps, "statistic": "median", "images": data.digest()[:16],
        }  # fmt: skip
        caption = (
            "Distance of each image to the nearest wrong one found, in their order; none where it is wrong."
        )
        return Exhibit(self.name, "median_flip", "per_image", {"value": values}, caption, context)

    def _shares(self, counts: dict[str, int], right: int) -> list[Measurement]:
        context: dict[str, Scalar] = {"norm": self.norm}
        return [share_of(self.name, name, count, right, "lower", context) for name, count in counts.items()]


def _left(target: Target, attack: SquareSearch) -> Tensor:
    """The images that an attack leaves, (B,)."""
    return target.left([attack])


def minimum_distances(
    subject: Subject, images: Tensor, labels: Tensor, search: MinimumNorm, *, past_steps: bool
) -> Tensor:
    """The distance of each image to the nearest wrong one that a search finds, (B,).

    The subject's model is in evaluation mode, with images (B, ...) and labels (B,). `past_steps` searches with
    gradients past rounding too.
    """

    def call(rows: Tensor) -> tuple[Any, ...]:
        rows = rows.to(labels.device)
        return subject.model, images[rows], labels[rows], search, past_steps

    return torch.cat(subject.by_parts(_nearest, len(labels), call, CHUNK))


def _nearest(
    model: Classifier, images: Tensor, labels: Tensor, search: MinimumNorm, past_steps: bool
) -> Tensor:
    models: list[Model] = [model]
    if past_steps:
        models.append(straight_through(model))  # the same except for its gradient
    return torch.stack([search(each, images, labels).distance for each in models]).amin(dim=0)


def median_interval(values: Tensor) -> tuple[float, float, float]:
    """The median and the 95 % interval of order statistics that holds for every distribution.

    Of n values in order the interval is from the j-th to the (n + 1 - j)-th, j the largest number for which
    P(Binomial(n, 1/2) < j) <= 2.5 %, and the extremes where n is below 6.

    >>> median_interval(torch.arange(1.0, 101.0))
    (50.0, 40.0, 61.0)
    """
    ordered = values.double().sort().values
    count = len(ordered)
    j = max(1, int(np.searchsorted(bdtr(np.arange(count + 1), count, 0.5), 0.025)))
    return float(ordered[(count - 1) // 2]), float(ordered[j - 1]), float(ordered[count - j])
