"""The best single threshold on scores, exactly."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Threshold:
    """A threshold on scores.

    Args:
        value: The threshold; infinite if all scores are on one side.
        positive_above: Whether scores above `value` are classified positive, else those at or below it.
        error: Error on the scores that it was chosen on, a fraction.
    """

    value: float
    positive_above: bool
    error: float

    def error_on(self, scores: Tensor, positive: Tensor) -> float:
        """The error on other scores (N,), a fraction; `positive` (N,) marks the positive ones.

        >>> Threshold(0.5, True, 0.0).error_on(torch.tensor([0.0, 1.0]), torch.tensor([True, True]))
        0.5
        """
        called = (scores > self.value) == self.positive_above
        return float((called != positive).double().mean())


def best_threshold(scores: Tensor, positive: Tensor) -> Threshold:
    """The threshold with the fewest errors, of all thresholds and both orientations, in O(N log N).

    It lies half-way between two different scores, or at infinity if one class for all samples is best. Of equally
    good thresholds, the lowest with positives above is used.

    Args:
        scores: (N,), finite.
        positive: Boolean, (N,).

    Misleads: on the samples that it was chosen on, its error is optimistic. It is at most the share of the rarer
    class.

    >>> best_threshold(torch.tensor([3.0, 1.0, 2.0, 4.0]), torch.tensor([True, False, False, True]))
    Threshold(value=2.5, positive_above=True, error=0.0)
    """
    ordered, order = scores.double().sort()
    count, named = len(ordered), positive[order].long()
    # Cut k has the k lowest scores below it: positives below and negatives above are wrong.
    below = torch.nn.functional.pad(named.cumsum(0), (1, 0))
    wrong = below + (count - named.sum()) - (torch.arange(count + 1, device=below.device) - below)
    parted = torch.nn.functional.pad(ordered[1:] > ordered[:-1], (1, 1), value=True)
    either = torch.where(parted, torch.stack([wrong, count - wrong]), count + 1)
    best = int(either.argmin())
    return Threshold(_cut(ordered, best % (count + 1)), best <= count, float(either.flatten()[best]) / count)


def _cut(ordered: Tensor, below: int) -> float:
    """A number with `below` scores at or under it."""
    if below == 0:
        return float("-inf")
    if below == len(ordered):
        return float("inf")
    lower, upper = float(ordered[below - 1]), float(ordered[below])
    middle = lower + (upper - lower) / 2
    return middle if lower <= middle < upper else lower  # neighbouring floats have no middle
