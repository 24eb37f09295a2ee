"""The result for each tolerance: the change between two reports, its interval, and a sentence."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clearance._checks import did_you_mean
from clearance.gate.tolerance import Quantity, Tolerance
from clearance.records.record import settings
from clearance.records.store import Report
from clearance.records.summary import adjusted_wald, compare_seeds
from clearance.vocabulary import Better, Exhibit

DRAWS = 4000
LEVEL = 0.95
MOST_CERTAIN = 0.99  # of a bootstrap of so many draws
HALF = 0.5  # of the images asked: a distance of fewer is not passed
_SEED = 0
_CHUNK = 2**22  # numbers drawn at once
Statistic = Literal["mean", "median"]
Inconclusive = Literal["fail", "pass"]

STATISTICS: Mapping[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "mean": lambda values: values.mean(axis=-1),
    # the lower of two, so that it is a value that occurs: distances may be infinite
    "median": lambda values: np.sort(values, axis=-1)[..., (values.shape[-1] - 1) // 2],
}


def paired_fractions(
    last: NDArray[Any], now: NDArray[Any], *, relative: bool = False, level: float = LEVEL
) -> tuple[float, float]:
    """The interval of the change of a fraction of the same n images, from numbers in [-1, 1] for each.

    Of now - last as :func:`~clearance.records.summary.adjusted_wald` gives it. Where it is `relative`, of now / last
    less 1, by Fieller's theorem with the same two images more, one gained and one lost: of all shares r for which the
    interval of now - (1 + r) last has 0 in it. NaN where the older fraction may be 0.

    >>> last, now = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 1])
    >>> [round(end, 3) for end in paired_fractions(last, now)]
    [-0.33, 0.616]
    >>> [round(end, 3) for end in paired_fractions(np.ones(100), np.ones(100), relative=True)]
    [-0.027, 0.028]
    """
    z = NormalDist().inv_cdf(0.5 + level / 2)
    if not relative:
        return adjusted_wald(float((now - last).sum()), float(((now - last) ** 2).sum()), len(last), z)
    older, newer = np.append(last, (0.0, 1.0)), np.append(now, (1.0, 0.0))
    share = z**2 / (len(older) + z**2)
    square = older.mean() ** 2 - share * (older**2).mean()
    middle = older.mean() * newer.mean() - share * (older * newer).mean()
    rest = newer.mean() ** 2 - share * (newer**2).mean()
    if square <= 0 or older.mean() <= 0:
        return math.nan, math.nan
    half = math.sqrt(max(middle**2 - square * rest, 0.0))
    return float((middle - half) / square - 1), float((middle + half) / square - 1)


def bootstrapped(
    last: NDArray[Any],
    now: NDArray[Any],
    statistic: Statistic = "mean",
    *,
    relative: bool = False,
    level: float = LEVEL,
) -> tuple[float, float]:
    """The percentile interval of the change of a statistic over images that are drawn again, in pairs.

    `last` and `now` have a number for each image, of the older model and of the newer; `relative` gives the change as
    a share of the older statistic. `level` is in (0, 1); 4,000 draws carry at most 0.99. NaN where a statistic is
    infinite or, of a share, not above 0 in the draws that decide the interval.

    >>> last = np.arange(1.0, 101.0)
    >>> [round(end, 6) for end in bootstrapped(last, 0.5 * last, "median", relative=True)]
    [-0.5, -0.5]
    """
    generator = np.random.default_rng(_SEED)  # equal reports give equal results
    measure = STATISTICS[statistic]
    rows = max(1, _CHUNK // len(last))
    changes = []
    for start in range(0, DRAWS, rows):
        drawn = generator.integers(0, len(last), (min(rows, DRAWS - start), len(last)))
        changes.append(change(measure(last[drawn]), measure(now[drawn]), relative=relative))
    ends = np.sort(np.concatenate(changes))  # NaN comes last, so that it is an end if there is much of it
    outside = (1 - level) / 2
    return float(ends[round(outside * DRAWS)]), float(ends[round((1 - outside) * DRAWS) - 1])


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
    found = compare_seeds(now, last, log=relative)
    if found.low is None or found.high is None:
        return None
    return (math.expm1(found.low), math.expm1(found.high)) if relative else (found.low, found.high)


PER_IMAGE = "per_image"


@dataclass(frozen=True)
class Values:
    """A quantity of one method.

    Args:
        seeds: The number by seed.
        images: A number for each image, by seed, NaN where an image has none; empty where none are kept.
        which: What identifies these images and how they were measured, by seed.
        statistic: How the number follows from those of images.
        without_number: What of it is NaN, in words.
        context: The settings that it was measured with.
        missing: Which exhibits of the report could not be read, in words.
        better: Which direction of the quantity is.
        dataset: What it was measured on.
    """

    seeds: Mapping[int, float]
    images: Mapping[int, NDArray[Any]]
    which: Mapping[int, str]
    statistic: Statistic = "mean"
    unit: str = ""
    without_number: str = ""
    context: Mapping[str, Any] = field(default_factory=dict)
    missing: str = ""
    better: Better = "neither"
    dataset: str = ""


def values_of(which: str, report: Report, quantity: Quantity, method: str | None) -> Values:
    """The quantity in a report, the older or the newer, of its one method or the one named.

    Raises:
        ValueError: If several methods or numbers would do, or numbers of images do not give the number.
    """
    method = _method(report, method)
    records = [
        record
        for record in report.records
        if record.method == method
        and quantity.fits(record.measurement.audit, record.measurement.name, record.measurement.context)
    ]
    found = [(record.seed, record.measurement) for record in records]
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
    statistic: Statistic = "median" if statistics == {"median"} else "mean"
    _check_agreement(which, quantity, statistic, {seed: one.value for seed, one in found}, dict(kept))
    return Values(
        {seed: shift + sign * one.value for seed, one in found},
        {seed: shift + sign * np.array(shown.columns["value"], dtype=float) for seed, shown in kept},
        {seed: str(sorted(shown.context.items())) for seed, shown in kept},
        statistic,
        found[0][1].unit if found else "",
        _without_number([one.value for _, one in found], [shown.columns["value"] for _, shown in kept]),
        dict(settings(found[0][1].context)) if found else {},
        report.missing,
        _better(found[0][1].better, mirrored=quantity.mirrored) if found else "neither",
        records[0].dataset if records else "",
    )


def _better(direction: Better, *, mirrored: bool) -> Better:
    other: dict[Better, Better] = {"higher": "lower", "lower": "higher"}
    return other.get(direction, direction) if mirrored else direction


def _without_number(values: Sequence[float], columns: Sequence[Sequence[Any]]) -> str:
    if any(math.isnan(value) for value in values):
        return "NaN for it"
    count = sum(isinstance(entry, float) and math.isnan(entry) for column in columns for entry in column)
    return f"NaN for {count} image{'' if count == 1 else 's'}" if count else ""


def _check_agreement(
    which: str,
    quantity: Quantity,
    statistic: Statistic,
    numbers: Mapping[int, float],
    kept: Mapping[int, Exhibit],
) -> None:
    """Raise unless the numbers of the images give the measurement of each seed; None is an image without a number."""
    said = f"the {which} report is damaged: the exhibit of {quantity.audit}.{quantity.name} for single images"
    for seed, shown in kept.items():
        column = shown.columns.get("value", [])
        if not all(entry is None or isinstance(entry, int | float) for entry in column):
            raise ValueError(f"{said} must hold numbers. Make it again.")
        given = np.array([entry for entry in column if entry is not None], dtype=float)
        if seed not in numbers or not len(given):
            continue
        found = float(STATISTICS[statistic](given))
        ends = (
            found,
            -float(STATISTICS[statistic](-given)),
        )  # of an even number the lower and the upper median
        near = np.isclose(ends, numbers[seed], rtol=1e-5, atol=1e-7, equal_nan=True)
        if not (near.any() or ends[0] < numbers[seed] < ends[1]):
            raise ValueError(
                f"{said} does not agree with report.json: their {statistic} is {found:.6g}, and report.json has "
                f"{numbers[seed]:.6g}. Make it again."
            )


def _method(report: Report, method: str | None) -> str:
    known = report.methods
    if method is None and len(known) > 1:
        raise ValueError(f"the report must be of one method; got {', '.join(known)}. Name one: --method.")
    if method is not None and method not in known:
        raise ValueError(f"`method` must be one of {', '.join(map(repr, known))}; got {method!r}.")
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
        raise ValueError(
            f"{quantity.audit}.{quantity.name} is {len(different)} numbers ({choices}); say which, as "
            f"{quantity.audit}.{quantity.name}[{keys[0]}={_values(different, keys[0])[0]},...]."
        )


def _values(contexts: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    return list(dict.fromkeys(str(each.get(key)) for each in contexts))[:8]


FEWEST = 6  # images that may all have changed to one side by chance less often than one time in twenty


class GateStatus(StrEnum):
    """Of one tolerance, or of all together."""

    PASS = "passed"  # noqa: S105 - a word, no password
    FAIL = "failed"
    UNMEASURED = "not measured"


@dataclass(frozen=True)
class GateResult:
    """The status of one tolerance, with the numbers and the interval it follows from.

    Args:
        last: The older number.
        now: The newer.
        low: Lower end of the 95 % interval of the change.
        high: Upper end.
        over: What the interval is over, in words.
        reason: Why nothing could be measured.
        unit: Of both numbers.
        only_better: Whether it fails only where the number gets better, which is rarely meant.
    """

    tolerance: Tolerance
    status: GateStatus
    last: float | None = None
    now: float | None = None
    low: float | None = None
    high: float | None = None
    over: str = ""
    reason: str = ""
    unit: str = ""
    only_better: bool = False

    @property
    def numbers(self) -> str:
        """Both numbers, the older first."""
        if self.last is None or self.now is None:
            return ""
        return " -> ".join(_written((self.last, self.now), self.unit))

    @property
    def changed(self) -> str:
        """The interval of the change."""
        if self.low is None or self.high is None:
            return ""
        unit = "%" if self.tolerance.relative else "pt" if self.unit == "fraction" else ""
        scale = 100 if unit else 1
        return f"{scale * self.low:+.3g} to {scale * self.high:+.3g}{' ' + unit if unit else ''}"

    def __str__(self) -> str:
        said = f"{self.status}: {self.tolerance.text}"
        if self.status is GateStatus.UNMEASURED:
            return f"{said} ({self.reason})"
        doubt = f"; {self.doubt}" if self.doubt else ""
        note = "; this fails only where the number gets better" if self.only_better else ""
        return f"{said}; {self.numbers}, change {self.changed} (95 %, {self.over}){doubt}{note}"

    @property
    def doubt(self) -> str:
        """What the interval leaves open."""
        if self.status is GateStatus.UNMEASURED or self.low is None or self.high is None:
            return ""
        ends = self.low, self.high
        open_ = self.tolerance.reached_by(*ends) and not self.tolerance.exceeded_by(*ends)
        counted = "seeds" if "seeds" in self.over.partition(",")[0] else "images"
        return f"too few {counted} to exclude more than is tolerated" if open_ else ""


def check(
    now: Report,
    last: Report,
    tolerances: Sequence[Tolerance],
    method: str | None = None,
    *,
    inconclusive: Inconclusive = "pass",
    level: float = LEVEL,
) -> list[GateResult]:
    """A result for every tolerance.

    The interval is paired over images where both reports keep numbers for the same images, measured alike (exhibits of
    kind ``per_image``, whose context says which and how), and over those of them that have a number in both; else over
    the seeds that both have. A tolerance fails where that interval lies beyond it entirely. What fewer than half of the
    images have in both is not passed.

    Args:
        now: The report of the newer model.
        last: The report of the older one.
        tolerances: What may change, and by how much.
        method: Whose numbers, where a report has those of several.
        inconclusive: Whether a tolerance passes where the interval lies beyond it in part.
        level: Of intervals over images, in (0, 1).

    Raises:
        ValueError: If a tolerance or a report does not say which number is meant, or the numbers of single images do
            not give that number.
    """
    found = []
    for tolerance in tolerances:
        before = values_of("older", last, tolerance.quantity, method)
        after = values_of("newer", now, tolerance.quantity, method)
        only_better = (before.better, tolerance.direction) in (("higher", "rises"), ("lower", "drops"))
        lacking = [
            _lacking(which, report, tolerance)
            for which, report, values in (("older", last, before), ("newer", now, after))
            if not values.seeds
        ]
        result = _unmeasured(tolerance, lacking[0]) if lacking else _result(tolerance, before, after, level)
        found.append(replace(result, only_better=only_better))
    if inconclusive == "pass":
        return found
    return [replace(each, status=GateStatus.FAIL) if each.doubt else each for each in found]


def _lacking(which: str, report: Report, tolerance: Tolerance) -> str:
    """That a report lacks a quantity, and what to do: another audit, or another setting of one that was made."""
    quantity = tolerance.quantity
    said = f"the {which} report has no {quantity.audit}.{quantity.name}{_options(tolerance)}; "
    contexts = [
        record.measurement.context
        for record in report.records
        if (record.measurement.audit, record.measurement.name) == (quantity.audit, quantity.name)
    ]
    for key, value in quantity.context.items():
        known = sorted({str(context[key]) for context in contexts if key in context})
        if known and value not in known:
            return f"{said}its {key} is one of {', '.join(known)}.{did_you_mean(value, known)}"
    return f"{said}make the audit {quantity.audit} of both models, or correct the name"


def _result(tolerance: Tolerance, last: Values, now: Values, level: float) -> GateResult:
    for which, found in (("older", last), ("newer", now)):
        if lacking := found.without_number:
            return _unmeasured(tolerance, f"the {which} report has {lacking}")
    unequal = [
        f"{key} is {last.context[key]} in the older report, {now.context[key]} in the newer"
        for key in sorted(last.context.keys() & now.context.keys())
        if last.context[key] != now.context[key]
    ]
    if unequal:
        return _unmeasured(tolerance, f"they are different quantities: {'; '.join(unequal)}")
    if tolerance.in_points and last.unit != "fraction":
        what = f"{tolerance.quantity.audit}.{tolerance.quantity.name} is in {last.unit or 'plain numbers'}"
        raise ValueError(
            f"points are of fractions, and {what}; got {tolerance.text!r}. Give a share of it (10%), or an amount "
            "without pt."
        )
    if last.unit == "fraction" and not tolerance.relative and tolerance.amount >= 1:
        raise ValueError(
            f"an amount of 1 or more tolerates any change of a fraction; got {tolerance.text!r}. Write points, as in "
            "1pt, or a fraction, as in 0.01."
        )
    paired = _same_images(last, now)
    common = sorted(last.seeds.keys() & now.seeds.keys())
    most = max(len(last.seeds), len(now.seeds))
    of_all = f", {len(common)} of {most} seeds" if common and len(common) < most else ""
    if paired is not None:
        return _over_images(tolerance, *paired, last, level, of_all)
    alike = bool(common) and last.dataset == now.dataset
    ends = over_seeds(last.seeds, now.seeds, relative=tolerance.relative) if alike else None
    if ends is None:
        return _unmeasured(tolerance, _why_not(tolerance, last, now, len(common)))
    means = [float(np.mean([found.seeds[seed] for seed in common])) for found in (last, now)]
    over = f"paired over {len(common)} seeds" + (f" of {most}" if of_all else "")
    if last.images and now.images:
        over += ", of different images"
    return _decided(tolerance, means, ends, over, last.unit)


def _same_images(last: Values, now: Values) -> tuple[NDArray[Any], NDArray[Any]] | None:
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


def _over_images(
    tolerance: Tolerance, last: NDArray[Any], now: NDArray[Any], values: Values, level: float, of_all: str
) -> GateResult:
    both = ~(np.isnan(last) | np.isnan(now))
    if not both.any():
        return _unmeasured(tolerance, "no image has a number in both reports")
    over = f"paired over {len(last)} images"
    if not both.all():
        over = f"paired over the {both.sum()} of {len(last)} images that have a number in both"
    over += of_all
    last, now, measure = last[both], now[both], STATISTICS[values.statistic]
    numbers = [float(measure(last)), float(measure(now))]
    if len(last) < FEWEST:
        said = f"{over}: an interval needs {FEWEST} at least"
        return _unmeasured(tolerance, said, *numbers, unit=values.unit)
    if values.statistic == "mean" and values.unit == "fraction":
        ends = paired_fractions(last, now, relative=tolerance.relative, level=level)
    else:
        ends = bootstrapped(
            last, now, values.statistic, relative=tolerance.relative, level=min(level, MOST_CERTAIN)
        )
    if any(math.isnan(end) for end in ends):
        said = "the change is not a number: infinite values, or a share of 0"
        return _unmeasured(tolerance, said, *numbers, unit=values.unit)
    decided = _decided(tolerance, numbers, ends, over, values.unit)
    if decided.status is GateStatus.PASS and both.mean() < HALF:
        return replace(decided, status=GateStatus.UNMEASURED, reason=f"{over}: fewer than half")
    return decided


def _unmeasured(
    tolerance: Tolerance, reason: str, last: float | None = None, now: float | None = None, *, unit: str = ""
) -> GateResult:
    return GateResult(tolerance, GateStatus.UNMEASURED, last, now, reason=reason, unit=unit)


def _decided(
    tolerance: Tolerance, numbers: Sequence[float], ends: tuple[float, float], over: str, unit: str
) -> GateResult:
    status = GateStatus.FAIL if tolerance.exceeded_by(*ends) else GateStatus.PASS
    return GateResult(tolerance, status, numbers[0], numbers[1], *ends, over=over, unit=unit)


def _why_not(tolerance: Tolerance, last: Values, now: Values, common: int) -> str:
    if last.dataset != now.dataset and common > 1:
        return f"the older report is of {last.dataset}, the newer of {now.dataset}"
    numbers = [number for found in (last, now) for number in found.seeds.values()]
    if not all(map(math.isfinite, numbers)):
        return "some of its numbers are infinite"
    if tolerance.relative and common > 1:
        return "a share can only be taken of numbers above 0"
    seeds = f"{common} seed{'' if common == 1 else 's'} in common"
    if last.images and now.images:
        counts = [len(next(iter(found.images.values()))) for found in (last, now)]
        if counts[0] != counts[1]:
            said = f"the older report measured {counts[0]} images and the newer {counts[1]}"
        else:
            said = "the reports are of different images, or measured them in different ways"
        return f"{said}: give both audits the same images and settings (they have {seeds}; 2 would do, too)"
    if missing := [found.missing for found in (last, now) if found.missing and not found.images]:
        images = f"{' and '.join(dict.fromkeys(missing))}, so that numbers of single images are not known"
    else:
        images = "the reports keep no numbers of single images for it"
    return f"{images}, and have {seeds}; 2 are needed"


def _options(tolerance: Tolerance) -> str:
    settings = ",".join(f"{key}={value}" for key, value in tolerance.quantity.context.items())
    return f"[{settings}]" if settings else ""


def _written(values: Sequence[float], unit: str) -> list[str]:
    """Numbers with four digits, all with as many decimals as the one with most."""
    scale, sign = (100, " %") if unit == "fraction" else (1, "")
    digits = 4
    while scale == 100 and digits < 9 and any(f"{100 * v:.{digits}g}" == "100" and v != 1 for v in values):
        digits += 1  # 99.997 % is not 100 %
    short = [f"{scale * value:.{digits}g}" for value in values]
    if any("e" in text or not math.isfinite(float(text)) for text in short):
        return [text + sign for text in short]
    decimals = max(len(text.partition(".")[2]) for text in short)
    return [f"{scale * value:.{decimals}f}{sign}" for value in values]
