"""Statistics over seeds: a mean and its interval, a paired comparison of two methods, several comparisons at once.

A seed is one training run. Repetitions within a seed (heads, images) are averaged first and not counted: ten thousand
images classified by one network are still one network.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtr, stdtrit  # Student's t; scipy.stats would cost every process half a second

from clearance._checks import check_choice, check_positive

Verdict = Literal["better", "worse", "inconclusive"]
LEVEL = 0.05  # 95 % intervals everywhere
Z_95 = 1.959963984540054  # the standard normal's 97.5 % point


@dataclass(frozen=True, slots=True)
class SeedSummary:
    """A mean over seeds with its 95 % t interval; `spread` is the standard deviation over seeds."""

    mean: float
    spread: float | None
    low: float | None
    high: float | None
    seeds: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A method against another, paired over seeds.

    `difference` is a - b, or log a - log b if `log` is true; `low` and `high` are its 95 % t interval and `p` the
    two-sided p value, None with fewer than two common seeds. `dropped` counts seeds for which not both have a finite
    number: they are not compared, which may favour the method that lost them.
    """

    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    seeds: int
    dropped: int
    log: bool
    verdict: Verdict


def summarise(values: Mapping[int, float]) -> SeedSummary:
    """Mean, spread and 95 % t interval over seeds: mean ± t(0.975, k - 1) · sd / √k.

    Args:
        values: One number per seed. If one is not finite, neither is the mean.

    Raises:
        ValueError: There are no seeds.

    With one seed there is no interval; with two it is valid and very wide.

    >>> summarise({0: 1.0, 1: 2.0, 2: 3.0})
    SeedSummary(mean=2.0, spread=1.0, low=-0.484..., high=4.484..., seeds=3)
    """
    numbers = np.array(list(values.values()), dtype=np.float64)
    if numbers.size == 0:
        raise ValueError("`values` must hold at least one seed; got none.")
    mean = math.fsum(numbers) / numbers.size if np.isfinite(numbers).all() else float(numbers.sum())
    if numbers.size < 2 or not math.isfinite(mean):
        return SeedSummary(mean, None, None, None, numbers.size)
    # for equal numbers rounding would give a little
    spread = float(numbers.std(ddof=1)) if np.ptp(numbers) > 0 else 0.0
    half = float(stdtrit(numbers.size - 1, 1 - LEVEL / 2)) * spread / math.sqrt(numbers.size)
    return SeedSummary(mean, spread, mean - half, mean + half, numbers.size)


def compare_seeds(
    a: Mapping[int, float],
    b: Mapping[int, float],
    *,
    better: Literal["lower", "higher"] = "lower",
    log: bool = False,
    floor: float | None = None,
) -> Comparison:
    """Whether `a` is better than `b`, from the differences of the seeds that both have.

    Args:
        a: One number per seed.
        b: One number per seed, of the method that `a` is compared with.
        better: Which direction is better.
        log: Compare logarithms, for a claim about a ratio.
        floor: Smaller numbers are raised to it before a logarithm is taken. An error of zero has no
            logarithm; half an image (0.5 / number of test images) is the usual choice.

    Raises:
        ValueError: `better` is unknown, or `log` is true and a number is not positive.

    A verdict needs two common seeds. If all differences are equal, the interval has no width and any difference is
    significant, however small. This is right for deterministic quantities (steps) and may mislead for coarse ones
    (an error over a few images).

    >>> compare_seeds({0: 0.03, 1: 0.04, 2: 0.03}, {0: 0.18, 1: 0.20, 2: 0.19}).verdict
    'better'
    >>> compare_seeds({0: 0.03}, {0: 0.18}).verdict
    'inconclusive'
    """
    check_choice("better", better, ("lower", "higher"))
    common = [seed for seed in a if seed in b and math.isfinite(a[seed]) and math.isfinite(b[seed])]
    dropped = len({*a, *b}) - len(common)
    differences = [_scaled(a[seed], log, floor) - _scaled(b[seed], log, floor) for seed in common]
    if len(common) < 2:
        single = differences[0] if differences else None
        return Comparison(single, None, None, None, len(common), dropped, log, "inconclusive")
    over = summarise(dict(enumerate(differences)))
    assert over.spread is not None
    assert over.low is not None
    assert over.high is not None
    return Comparison(
        difference=over.mean,
        low=over.low,
        high=over.high,
        p=_paired_p(over.mean, over.spread, over.seeds),
        seeds=over.seeds,
        dropped=dropped,
        log=log,
        verdict=_verdict(over.low, over.high, better),
    )


def adjusted_wald(total: float, squares: float, count: int, z: float = Z_95) -> tuple[float, float]:
    """The interval of the mean of `count` differences d in [-1, 1], of the same images; 95 % by default.

    With one image more at +1 and one at -1, N + 2 in all:

    m' = sum d / (N + 2),   v' = (sum d^2 + 2) / (N + 2) - m'^2,   m' +- z sqrt(v' / (N + 2))

    Never without width, so that few images say little; it may reach beyond -1 and 1.

    Source: Bonett and Price, J. Educ. Behav. Stat. 37 (2012), for differences of -1, 0 and 1.

    Args:
        total: sum d; of fractions, images gained less images lost.
        squares: sum d^2; of fractions, images gained or lost.
        count: N, at least 1.
        z: Standard deviations to each side.

    >>> [round(end, 3) for end in adjusted_wald(1, 1, 4)]
    [-0.383, 0.717]
    """
    middle = total / (count + 2)
    variance = (squares + 2) / (count + 2) - middle**2
    half = z * math.sqrt(variance / (count + 2))
    return middle - half, middle + half


def holm(p_values: Mapping[str, float | None], tests: int = 0) -> dict[str, float]:
    """Holm's step-down adjustment of several p values.

    The i-th smallest of m becomes the largest of (m - j + 1) · p_j over j ≤ i, and at most 1. Where these were picked
    after looking, as those of the best method of all, `tests` is m: how many they were picked from. None, of what
    could not be tested, counts as 1.

    Source: Holm, "A simple sequentially rejective multiple test procedure", 1979.

    >>> {name: round(p, 3) for name, p in holm({"a": 0.01, "b": 0.04, "c": 0.03}).items()}
    {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    known = {name: 1.0 if p is None else p for name, p in p_values.items()}
    adjusted: dict[str, float] = {}
    running, count = 0.0, max(tests, len(known))
    for rank, name in enumerate(sorted(known, key=lambda name: known[name])):
        running = max(running, min(1.0, (count - rank) * known[name]))
        adjusted[name] = running
    return {name: adjusted[name] for name in p_values}


MOST_SEEDS = 100
POWER = 0.8


def seeds_needed(found: Comparison, tests: int = 1) -> int | None:
    """How many seeds a paired test would need, if the mean and spread of the differences stay as they are.

    The smallest k up to `MOST_SEEDS` with  |mean| √k / sd ≥ t(1 - 0.05 / 2m, k - 1) + t(0.8, k - 1):  a test at 5 %
    over m tests (Bonferroni's bound, the first step of Holm's) that finds such a difference four times in five.

    m counts the comparisons that share the 5 %; `found` has at least two seeds. None if it has no interval, or more
    would be needed.

    Misleads: the mean and the spread are estimates from few seeds, so this is a plan and not a promise.

    >>> near = compare_seeds({0: 0.05, 1: 0.06, 2: 0.07}, {0: 0.06, 1: 0.06, 2: 0.09})
    >>> seeds_needed(near), seeds_needed(near, tests=3)
    (10, 14)
    """
    if found.difference is None or found.low is None or found.high is None:
        return None
    half = (found.high - found.low) / 2
    spread = half * math.sqrt(found.seeds) / float(stdtrit(found.seeds - 1, 1 - LEVEL / 2))
    counts = np.arange(2, MOST_SEEDS + 1)
    needed = stdtrit(counts - 1, 1 - LEVEL / (2 * tests)) + stdtrit(counts - 1, POWER)
    enough = abs(found.difference) * np.sqrt(counts) >= needed * spread
    return int(counts[enough.argmax()]) if enough.any() and found.difference != 0 else None


def _scaled(value: float, log: bool, floor: float | None) -> float:
    """The number, or its logarithm."""
    if not log:
        return value
    if floor is not None:
        check_positive("floor", floor)
        value = max(value, floor)
    if value <= 0:
        raise ValueError(
            f"A ratio needs numbers above 0; got {value}. Give `floor`, or compare without `log`."
        )
    return math.log(value)


def _paired_p(mean: float, spread: float, count: int) -> float:
    """Two-sided p value of the paired t test; 0 or 1 if all differences are equal."""
    if spread == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(count - 1, -abs(mean) / (spread / math.sqrt(count))))


def _verdict(low: float, high: float, better: str) -> Verdict:
    if low <= 0 <= high:
        return "inconclusive"
    return "better" if (high < 0) == (better == "lower") else "worse"
