"""What the audit of likelihood looks at: normal images, held-out ones for thresholds, and every score of each set."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from clearance.attacks.attack import broken
from clearance.audits._abnormal import Changed
from clearance.audits._likelihood_scores import Scorer
from clearance.audits._pixel_scores import pixel_scores
from clearance.audits.rejection import rejection_threshold
from clearance.data import ImageSet

Scores = Mapping[str, Tensor]


@dataclass(frozen=True)
class Seen:
    """Images after an attack, as the classifier sees them: asked once, used by every number and picture.

    Args:
        changed: The images.
        scores: The network's scores of them.
        logits: (N, C).
    """

    changed: Changed
    scores: Scores
    logits: Tensor


@dataclass(frozen=True)
class NormalImages:
    """Images of the classes that were learned: some to be told apart, others to choose thresholds on.

    Args:
        scorer: Of the classifier, which is in evaluation mode.
        data: To be told from abnormal ones.
        held_out: For thresholds; disjoint from `data`.
    """

    scorer: Scorer
    data: ImageSet
    held_out: ImageSet

    @cached_property
    def seen(self) -> tuple[Scores, Tensor]:
        """The network's scores of `data`, and its logits."""
        return self.scorer.scores(self.data.images)

    @cached_property
    def seen_held_out(self) -> tuple[Scores, Tensor]:
        """The same of `held_out`."""
        return self.scorer.scores(self.held_out.images)

    @cached_property
    def right(self) -> Tensor:
        """Which of `data` the classifier gets right, (N,)."""
        return ~broken(self.seen[1], self.data.labels)

    def scores(self, epsilon: float) -> Scores:
        """Every score of `data`; those of pixels look for attacks of this radius."""
        return {**self.seen[0], **pixel_scores(self.data.images, epsilon)}

    def held_out_scores(self, epsilon: float) -> Scores:
        """The same of `held_out`."""
        return {**self.seen_held_out[0], **pixel_scores(self.held_out.images, epsilon)}

    def thresholds(self, epsilon: float) -> dict[str, float]:
        """For every score, what a normal image falls below with a probability of at most 5 %."""
        return {name: rejection_threshold(values) for name, values in self.held_out_scores(epsilon).items()}

    def after(self, changed: Changed) -> Seen:
        """What the classifier makes of them after an attack."""
        return Seen(changed, *self.scorer.scores(changed.images))

    def of(self, images: Tensor, epsilon: float) -> Scores:
        """Every score of other images."""
        return {**self.scorer.scores(images)[0], **pixel_scores(images, epsilon)}

    def spread(self, name: str) -> float:
        """The standard deviation of a score over held-out images; 1 where there is none."""
        return _or_one(self.seen_held_out[0][name].std())

    def margin(self) -> float:
        """The mean distance of the two largest logits over held-out images; 1 where there is none."""
        top = self.seen_held_out[1].topk(2, dim=1).values
        return _or_one((top[:, 0] - top[:, 1]).mean())


def _or_one(value: Tensor) -> float:
    return float(value) if bool(torch.isfinite(value)) and float(value) > 0 else 1.0
