"""Whether each tolerance is kept: the change between two reports, its interval, and a sentence that says so."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clearance.gate.tolerance import Quantity, Tolerance
from clearance.records.record import settings
from clearance.records.store import Report
from clearance.records.summary import compare

Z_95 = 1.959963984540054  # the standard normal's 97.5 % point
DRAWS = 4000
_SEED = 0
_CHUNK = 2**22  # numbers drawn at once
Statistic = Literal["mean", "median"]

STATISTICS: Mapping[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "mean": lambda values: values.mean(axis=-1),
    # the lower of two, so that it is a value that occurs: distances may be infinite
    "median": lambda values: np.sort(values, axis=-1)[..., (values.shape[-1] - 1) // 2],
}


def paired_fractions(last: NDArray[Any], now: NDArray[Any]) -> tuple[float, float]:
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
    last: NDArray[Any], now: NDArray[Any], statistic: Statistic = "mean", *, relative: bool = False
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


def change(last: NDArray[Any], now: NDArray[Any], *, relative: bool) -> NDArray[Any]:
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


PER_IMAGE = "per_image"


class UnclearError(ValueError):
    """A tolerance that does not say which number it means."""


@dataclass(frozen=True)
class Reading:
    """A quantity of one method.

    Args:
        seeds: The number by seed.
        images: A number for each image, by seed, NaN where an image has none; empty where none are kept.
        which: What identifies these images and how they were measured, by seed.
        statistic: How the number follows from those of images.
        unit: Of the number.
        context: The settings that it was measured with.
    """

    seeds: Mapping[int, float]
    images: Mapping[int, NDArray[Any]]
    which: Mapping[int, str]
    statistic: Statistic = "mean"
    unit: str = ""
    context: Mapping[str, Any] = field(default_factory=dict)


def reading(report: Report, quantity: Quantity, method: str | None = None) -> Reading:
    """The quantity in a report, of its one method or the one named.

    Raises:
        UnclearError: A ValueError, if several methods or numbers would do.
    """
    method = _method(report, method)
    found = [
        (record.seed, record.measurement)
        for record in report.records
        if record.method == method
        and quantity.fits(record.measurement.audit, record.measurement.name, record.measurement.context)
    ]
    _check_one(quantity, [dict(settings(one.context)) for _, one in found])
    kept = [
        (record.seed, record.exhibit)
        for record in report.exhibits
        if record.method == method
        and record.seed is not None
        and record.exhibit.kind == PER_IMAGE
        and quantity.fits(record.exhibit.audit, record.exhibit.name, record.exhibit.context)
    ]
    sign, shift = (-1.0, 1.0) if quantity.mirrored else (1.0, 0.0)
    statistics = {str(shown.context.get("statistic", "mean")) for _, shown in kept} & STATISTICS.keys()
    return Reading(
        {seed: shift + sign * one.value for seed, one in found},
        {seed: shift + sign * np.array(shown.columns["value"], dtype=float) for seed, shown in kept},
        {seed: str(sorted(shown.context.items())) for seed, shown in kept},
        "median" if statistics == {"median"} else "mean",
        found[0][1].unit if found else "",
        dict(settings(found[0][1].context)) if found else {},
    )


def _method(report: Report, method: str | None) -> str:
    known = report.methods
    if method is None and len(known) > 1:
        raise UnclearError(f"the report must be of one method; got {', '.join(known)}. Name one: --method.")
    if method is not None and method not in known:
        raise UnclearError(f"`method` must be one of {', '.join(map(repr, known))}; got {method!r}.")
    return known[0] if known and method is None else str(method)


def _check_one(quantity: Quantity, contexts: Sequence[Mapping[str, Any]]) -> None:
    different = []
    for context in contexts:
        if context not in different:
            different.append(context)
    if len(different) > 1:
        keys = sorted(
            {key for each in different for key in each if len({str(c.get(key)) for c in different}) > 1}
        )
        choices = "; ".join(f"{key} is {', '.join(_values(different, key))}" for key in keys)
        raise UnclearError(
            f"{quantity.audit}.{quantity.name} is {len(different)} numbers ({choices}); say which, as "
            f"{quantity.audit}.{quantity.name}[{keys[0]}={_values(different, keys[0])[0]},...]."
        )


def _values(contexts: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    return list(dict.fromkeys(str(each.get(key)) for each in contexts))[:8]


FEWEST = 6  # images that may all have changed to one side by chance less often than one time in twenty


class Outcome(StrEnum):
    """What became of one tolerance."""

    PASS = "passed"  # noqa: S105 - a word, no password
    FAIL = "failed"
    UNMEASURED = "not measured"


@dataclass(frozen=True)
class Ruling:
    """What became of one tolerance, and on what grounds.

    Args:
        tolerance: The tolerance.
        outcome: Passed, failed or not measured.
        last: The older number.
        now: The newer.
        low: Lower end of the 95 % interval of the change.
        high: Upper end.
        over: What the interval is over, in words.
        reason: Why nothing could be measured.
        unit: Of both numbers.
    """

    tolerance: Tolerance
    outcome: Outcome
    last: float | None = None
    now: float | None = None
    low: float | None = None
    high: float | None = None
    over: str = ""
    reason: str = ""
    unit: str = ""

    @property
    def numbers(self) -> str:
        """Both numbers, the older first."""
        if self.last is None or self.now is None:
            return ""
        return f"{_written(self.last, self.unit)} -> {_written(self.now, self.unit)}"

    @property
    def changed(self) -> str:
        """The interval of the change."""
        if self.low is None or self.high is None:
            return ""
        unit = "%" if self.tolerance.relative else "pt" if self.unit == "fraction" else ""
        scale = 100 if unit else 1
        return f"{scale * self.low:+.3g} to {scale * self.high:+.3g}{' ' + unit if unit else ''}"

    def __str__(self) -> str:
        said = f"{self.outcome}: {self.tolerance.text}"
        if self.outcome is Outcome.UNMEASURED:
            return f"{said} ({self.reason})"
        doubt = f"; {self.doubt}" if self.doubt else ""
        return f"{said}; {self.numbers}, change {self.changed} (95 %, {self.over}){doubt}"

    @property
    def doubt(self) -> str:
        """What a pass leaves open."""
        if self.outcome is not Outcome.PASS or self.low is None or self.high is None:
            return ""
        reached = self.tolerance.reached_by(self.low, self.high)
        return "too few to exclude more than is tolerated" if reached else ""


def rule(
    now: Report, last: Report, tolerances: Sequence[Tolerance], method: str | None = None
) -> list[Ruling]:
    """A ruling on every tolerance.

    The interval is paired over images where both reports keep numbers for the same images, measured alike (exhibits of
    kind ``per_image``, whose context says which and how), and over those of them that have a number in both; else over
    the seeds that both have. A tolerance is broken where that interval lies beyond it entirely.

    Args:
        now: The report of the newer model.
        last: The report of the older one.
        tolerances: What may change, and by how much.
        method: Whose numbers, where a report has those of several.

    Raises:
        ValueError: If a tolerance or a report does not say which number is meant.
    """
    return [_ruled(tolerance, reading(last, *_asked(tolerance, method)), reading(now, *_asked(tolerance, method)))
            for tolerance in tolerances]  # fmt: skip


def _asked(tolerance: Tolerance, method: str | None) -> tuple:
    return tolerance.quantity, method


def _ruled(tolerance: Tolerance, last: Reading, now: Reading) -> Ruling:
    for which, found in (("older", last), ("newer", now)):
        if not found.seeds:
            quantity = tolerance.quantity
            said = f"the {which} report has no {quantity.audit}.{quantity.name}{_options(tolerance)}"
            return Ruling(tolerance, Outcome.UNMEASURED, reason=said)
    unequal = [
        f"{key} is {last.context[key]} in the older report, {now.context[key]} in the newer"
        for key in sorted(last.context.keys() & now.context.keys())
        if last.context[key] != now.context[key]
    ]
    if unequal:
        return Ruling(
            tolerance, Outcome.UNMEASURED, reason=f"they are different quantities: {'; '.join(unequal)}"
        )
    if tolerance.in_points and last.unit != "fraction":
        what = f"{tolerance.quantity.audit}.{tolerance.quantity.name} is in {last.unit or 'plain numbers'}"
        raise UnclearError(
            f"points are of fractions, and {what}; got {tolerance.text!r}. Give a share of it (10%), or an amount "
            "without pt."
        )
    if last.unit == "fraction" and not tolerance.relative and tolerance.amount >= 1:
        raise UnclearError(
            f"an amount of 1 or more tolerates any change of a fraction; got {tolerance.text!r}. Write points, as in "
            "1pt, or a fraction, as in 0.01."
        )
    paired = _same_images(last, now)
    if paired is not None:
        return _over_images(tolerance, *paired, last)
    common = sorted(last.seeds.keys() & now.seeds.keys())
    ends = over_seeds(last.seeds, now.seeds, relative=tolerance.relative) if common else None
    if ends is None:
        return Ruling(tolerance, Outcome.UNMEASURED, reason=_why_not(tolerance, last, now, len(common)))
    means = [float(np.mean([found.seeds[seed] for seed in common])) for found in (last, now)]
    return _decided(tolerance, means, ends, f"paired over {len(common)} seeds", last.unit)


def _same_images(last: Reading, now: Reading) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """A number for each image of both, averaged over the seeds that both have; None where images differ."""
    seeds = sorted(last.images.keys() & now.images.keys())
    if not seeds:  # one model each, whatever seeds they were audited under
        if len(last.images) != 1 or len(now.images) != 1:
            return None
        pairs = [(next(iter(last.images)), next(iter(now.images)))]
    else:
        pairs = [(seed, seed) for seed in seeds]
    for a, b in pairs:
        if last.which[a] != now.which[b] or len(last.images[a]) != len(now.images[b]):
            return None
    if len({last.which[a] for a, _ in pairs}) > 1 or not len(last.images[pairs[0][0]]):
        return None
    older, newer = (
        [found.images[seed] for seed in s]
        for found, s in zip((last, now), zip(*pairs, strict=True), strict=True)
    )
    return np.mean(older, axis=0), np.mean(newer, axis=0)


def _over_images(tolerance: Tolerance, last: NDArray[Any], now: NDArray[Any], reading: Reading) -> Ruling:
    both = ~(np.isnan(last) | np.isnan(now))
    if not both.any():
        return Ruling(tolerance, Outcome.UNMEASURED, reason="no image has a number in both reports")
    over = f"paired over {len(last)} images"
    if not both.all():
        over = f"paired over the {both.sum()} of {len(last)} images that have a number in both"
    last, now, measure = last[both], now[both], STATISTICS[reading.statistic]
    numbers = [float(measure(last)), float(measure(now))]
    yes_or_no = np.isin(np.concatenate([last, now]), (0.0, 1.0)).all()
    if yes_or_no and reading.statistic == "mean" and not tolerance.relative:
        ends = paired_fractions(last, now)
    elif len(last) < FEWEST:
        said = f"{over}: an interval needs {FEWEST} at least"
        return Ruling(tolerance, Outcome.UNMEASURED, numbers[0], numbers[1], reason=said, unit=reading.unit)
    else:
        ends = bootstrapped(last, now, reading.statistic, relative=tolerance.relative)
    if any(math.isnan(end) for end in ends):
        said = "the change is not a number: infinite values, or a share of 0"
        return Ruling(tolerance, Outcome.UNMEASURED, numbers[0], numbers[1], reason=said, unit=reading.unit)
    return _decided(tolerance, numbers, ends, over, reading.unit)


def _decided(
    tolerance: Tolerance, numbers: Sequence[float], ends: tuple[float, float], over: str, unit: str
) -> Ruling:
    outcome = Outcome.FAIL if tolerance.broken_by(*ends) else Outcome.PASS
    return Ruling(tolerance, outcome, numbers[0], numbers[1], *ends, over=over, unit=unit)


def _why_not(tolerance: Tolerance, last: Reading, now: Reading, common: int) -> str:
    if tolerance.relative and common > 1:
        return "a share can only be taken of numbers above 0"
    if last.images and now.images:
        images = "the reports are of different images, or measured them in different ways"
    else:
        images = "the reports keep no numbers of single images for it"
    return f"{images}, and have {common} seed{'' if common == 1 else 's'} in common; 2 are needed"


def _options(tolerance: Tolerance) -> str:
    settings = ",".join(f"{key}={value}" for key, value in tolerance.quantity.context.items())
    return f"[{settings}]" if settings else ""


def _written(value: float, unit: str) -> str:
    return f"{100 * value:.4g} %" if unit == "fraction" else f"{value:.4g}"
