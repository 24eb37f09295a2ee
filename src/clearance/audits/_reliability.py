"""How sure against how right: proper scores image by image, the surplus of sureness, and errors over bins of it."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from scipy.special import erf
from torch import Tensor

from clearance.audits.accuracy import Z_95, wilson_interval

Binning = Literal["equal width", "equal mass"]


def proper_scores(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    r"""Negative log-likelihood and Brier score of each image, (N,) and (N,), float64; for both, lower is better.

    nll = -log p_y,    brier = sum_k (p_k - [k = y])^2, from 0 to 2,    p = softmax(logits)

    Source: Brier, *Verification of forecasts expressed in terms of probability* (1950), the sum over all classes.
    An image whose logits are not finite gets the worst there is: infinity, and 2.

    Args:
        logits: (N, C).
        labels: (N,).

    >>> nll, brier = proper_scores(torch.zeros(1, 2), torch.tensor([0]))
    >>> round(float(nll), 4), float(brier)
    (0.6931, 0.5)
    """
    log_p = logits.double().log_softmax(dim=1)
    p = log_p.exp()
    own = torch.nn.functional.one_hot(labels, logits.shape[1])
    nll = -log_p.gather(1, labels[:, None])[:, 0]
    brier = (p - own).square().sum(dim=1)
    broken = ~logits.isfinite().all(dim=1)
    return torch.where(broken, math.inf, nll), torch.where(broken, 2.0, brier)


def sureness(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The largest probability of each image and whether it is that of the right class: (N,) float64 and (N,) bool.

    Logits that are not finite count as sure and wrong.

    >>> sureness(torch.tensor([[0.0, 0.0, 80.0]]), torch.tensor([2]))
    (tensor([1.], dtype=torch.float64), tensor([True]))
    """
    broken = ~logits.isfinite().all(dim=1)
    confidence, named = logits.double().softmax(dim=1).max(dim=1)
    return torch.where(broken, 1.0, confidence), (named == labels) & ~broken


def surplus(confidence: Tensor, right: Tensor) -> tuple[float, float, float]:
    r"""Mean confidence less the share of right images, with a 95 % interval.

    d = c - a,   d - sqrt((a_high - a)^2 + (z s_c / sqrt(n))^2)  to  d + sqrt((a - a_low)^2 + (z s_c / sqrt(n))^2)

    with the Wilson interval of the accuracy a, so that it has a width where no image is wrong. Who is surer where it
    is right more often has an interval wider than need be.

    Source: Newcombe, *Interval estimation for the difference between independent proportions* (1998), method 10,
    with a normal interval for the mean confidence in place of the second proportion.

    Args:
        confidence: (N,), in [0, 1].
        right: (N,), bool.

    >>> [round(x, 3) for x in surplus(torch.ones(100, dtype=torch.float64), torch.arange(100) < 90)]
    [0.1, 0.055, 0.174]
    """
    n, count = len(right), int(right.sum())
    mean, accuracy = float(confidence.mean()), count / n
    half = Z_95 * float(confidence.std()) / math.sqrt(n) if n > 1 else 1.0
    low, high = wilson_interval(count, n)
    gap = mean - accuracy
    return (
        gap,
        max(-1.0, gap - math.hypot(high - accuracy, half)),
        min(1.0, gap + math.hypot(accuracy - low, half)),
    )


@dataclass(frozen=True)
class Bins:
    """Images sorted into bins by how sure the classifier is; empty bins are left out.

    Args:
        count: Images in each, (B,).
        confidence: Mean of the largest probability, (B,).
        accuracy: Share of right images, (B,).
    """

    count: Tensor
    confidence: Tensor
    accuracy: Tensor

    @property
    def error(self) -> float:
        """ECE = sum_b n_b / n |accuracy_b - confidence_b|: Naeini et al. (2015); Guo et al. (2017), equation 3."""
        return float(self._weights @ (self.accuracy - self.confidence).abs())

    @property
    def debiased_error(self) -> float:
        r"""ECE less what chance alone adds to it; may fall a little below 0 where there is nothing left.

        2 ECE - sum_b n_b / n E|g_b + sigma_b Z|,    g = accuracy - confidence,    sigma^2 = accuracy (1 - accuracy) /
        (n_b - 1),    E|g + sigma Z| = sigma sqrt(2 / pi) exp(-g^2 / 2 sigma^2) + g erf(g / (sigma sqrt 2))

        Source: Kumar, Liang, Ma, *Verified Uncertainty Calibration* (2019), who draw the Z; here in closed form.
        A bin of one image says nothing about its own variance and is given that of a calibrated answer.

        Misleads near perfect calibration: two fifths of the bias go, not all of it.
        """
        gap = (self.accuracy - self.confidence).abs()
        alone = self.count == 1
        rate = torch.where(alone, self.confidence, self.accuracy)
        sigma = (rate * (1 - rate) / (self.count - 1).clamp(min=1)).sqrt()
        share = gap / torch.where(sigma > 0, sigma, 1)
        noisy = sigma * math.sqrt(2 / math.pi) * (-share.square() / 2).exp()
        noisy = noisy + gap * torch.as_tensor(erf((share / math.sqrt(2)).numpy()))
        return float(self._weights @ (2 * gap - torch.where(sigma > 0, noisy, gap)))

    @property
    def _weights(self) -> Tensor:
        return self.count / self.count.sum()


def binned(confidence: Tensor, right: Tensor, bins: int, binning: Binning) -> Bins:
    """Images by their confidence.

    Args:
        confidence: (N,), in [0, 1], N at least 1.
        right: (N,), bool.
        bins: How many, at least 1.
        binning: ``"equal width"``: bin b holds ((b - 1) / bins, b / bins]. ``"equal mass"``: between the quantiles
            b / bins of `confidence`, so that all hold equally many but for ties, which stay together.

    >>> found = binned(torch.tensor([0.95, 0.97, 0.55]), torch.tensor([True, True, False]), 10, "equal width")
    >>> found.count.tolist(), found.accuracy.tolist()
    ([1.0, 2.0], [0.0, 1.0])
    """
    sure, hit = confidence.double().cpu(), right.double().cpu()
    inner = torch.arange(1, bins, dtype=torch.float64) / bins
    edges = inner if binning == "equal width" else torch.quantile(sure, inner)
    place = torch.bucketize(sure, edges)
    count = torch.bincount(place, minlength=bins)
    filled = count > 0
    sums = [torch.zeros(bins, dtype=torch.float64).index_add_(0, place, each)[filled] for each in (sure, hit)]
    kept = count[filled].double()
    return Bins(kept, sums[0] / kept, sums[1] / kept)
