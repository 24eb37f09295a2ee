"""95 % intervals of a change between two models that were measured on the same images or under the same seeds."""

import math
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clearance.records.summary import compare

Z_95 = 1.959963984540054  # the standard normal's 97.5 % point
DRAWS = 4000
_SEED = 0
_CHUNK = 2**22  # numbers drawn at once
Statistic = Literal["mean", "median"]

STATISTICS: Mapping[str, Callable[[NDArray], NDArray]] = {
    "mean": lambda values: values.mean(axis=-1),
    # the lower of two, so that it is a value that occurs: distances may be infinite
    "median": lambda values: np.sort(values, axis=-1)[..., (values.shape[-1] - 1) // 2],
}


def paired_fractions(last: NDArray, now: NDArray) -> tuple[float, float]:
    """The 95 % interval of the difference of two fractions of the same n images, now - last.

    With f01 images that only the newer has and f10 that only the older has, p = (f + 1) / (n + 2):
    p01 - p10 +- z sqrt((p01 + p10 - (p01 - p10)^2) / (n + 2)). Never without width, so that few images say little.

    Source: Bonett and Price, J. Educ. Behav. Stat. 37 (2012): the adjusted Wald interval.

    >>> last, now = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 1])
    >>> [round(end, 3) for end in paired_fractions(last, now)]
    [-0.33, 0.616]
    """
    n = len(last)
    gained = (float(((now > 0) & (last == 0)).sum()) + 1) / (n + 2)
    lost = (float(((now == 0) & (last > 0)).sum()) + 1) / (n + 2)
    half = Z_95 * math.sqrt((gained + lost - (gained - lost) ** 2) / (n + 2))
    return gained - lost - half, gained - lost + half


def bootstrapped(
    last: NDArray, now: NDArray, statistic: Statistic = "mean", *, relative: bool = False
) -> tuple[float, float]:
    """The 95 % percentile interval of the change of a statistic over images that are drawn again, in pairs.

    Args:
        last: A number for each image, of the older model.
        now: The same of the newer.
        statistic: Of the images: ``"mean"`` or ``"median"``.
        relative: The change as a share of the older statistic, not as a difference.

    NaN where a statistic is infinite or, of a share, not above 0 in the draws that decide the interval.

    >>> last = np.arange(1.0, 101.0)
    >>> [round(end, 6) for end in bootstrapped(last, 0.5 * last, "median", relative=True)]
    [-0.5, -0.5]
    """
    generator = np.random.default_rng(_SEED)  # equal reports give equal rulings
    measure = STATISTICS[statistic]
    rows = max(1, _CHUNK // len(last))
    changes = []
    for start in range(0, DRAWS, rows):
        drawn = generator.integers(0, len(last), (min(rows, DRAWS - start), len(last)))
        changes.append(change(measure(last[drawn]), measure(now[drawn]), relative=relative))
    ends = np.sort(np.concatenate(changes))  # NaN comes last, so that it is an end if there is much of it
    return float(ends[round(0.025 * DRAWS)]), float(ends[round(0.975 * DRAWS) - 1])


def change(last: NDArray, now: NDArray, *, relative: bool) -> NDArray:
    """The difference now - last, or now / last - 1 where it is relative; NaN where there is no such number.

    >>> change(np.array([2.0, 0.0]), np.array([1.0, 1.0]), relative=True)
    array([-0.5,  nan])
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        found = now / last - 1 if relative else now - last
        return np.where((last > 0) | (not relative), found, np.nan)


def over_seeds(
    last: Mapping[int, float], now: Mapping[int, float], *, relative: bool
) -> tuple[float, float] | None:
    """The 95 % t interval of the change, paired over seeds; of a share, by logarithms. None with one common seed.

    >>> [round(end, 6) for end in over_seeds({0: 1.0, 1: 2.0}, {0: 1.1, 1: 2.2}, relative=True) or ()]
    [0.1, 0.1]
    """
    common = last.keys() & now.keys()
    if relative and any(min(last[seed], now[seed]) <= 0 for seed in common):
        return None
    found = compare(now, last, log=relative)
    if found.low is None or found.high is None:
        return None
    return (math.expm1(found.low), math.expm1(found.high)) if relative else (found.low, found.high)
