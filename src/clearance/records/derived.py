"""Numbers derived from the records: means, differences, ratios, and the best method against each other one.

Pages and tables take every derived number from here, so it is also in ``report.json`` under ``"summary"`` and changes
when a record changes.
"""

import math
from array import array
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from clearance.records.encoding import encode
from clearance.records.record import Record
from clearance.records.summary import LEVEL, Comparison, compare_seeds, holm, seeds_needed, summarise
from clearance.vocabulary import Better, Measurement, Scalar

Kind = Literal["mean", "difference", "ratio", "rival"]


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One derived number, and the quantity it is about.

    Args:
        kind: ``"mean"`` over seeds; ``"difference"`` and ``"ratio"`` to the first method, paired over seeds;
            ``"rival"``: the difference between the method with the best mean and another one.
        dataset: Name of the dataset.
        method: Name of the method.
        audit: Name of the audit.
        name: Name of the measurement.
        context: The settings that identify the quantity.
        unit: Unit of `value`; a ratio's is ``"factor"``.
        better: Which direction is better.
        value: The number.
        spread: Standard deviation over seeds (of a mean).
        within: Root mean square, over seeds, of the spread that each measurement has over its own `n`.
        low: Lower end of the 95 % interval, or None; not below the quantity's smallest possible value.
        high: Upper end; not above the largest possible value.
        interval: Kind of the interval: ``"t over seeds"``, or with one seed that of the measurement.
        seeds: Number of seeds.
        n: The measurements' `n`, if it is the same for all seeds.
        against: The other method of a difference, ratio or rival.
        p: Two-sided p value of the paired t test.
        adjusted: The p value after Holm's adjustment over all comparisons with the baseline; of the best method over
            all pairs.
        verdict: Better, worse or inconclusive, by the 95 % interval alone (unadjusted).
        dropped: Seeds that only one of the two has; they were not compared.
        needed: How many seeds would separate the two, of a difference that is not significant after adjustment (see
            `seeds_needed`); None if they are too many.
    """

    kind: Kind
    dataset: str
    method: str
    audit: str
    name: str
    context: Mapping[str, Scalar]
    unit: str
    better: Better
    value: float
    spread: float | None = None
    within: float | None = None
    low: float | None = None
    high: float | None = None
    interval: str | None = None
    seeds: int = 0
    n: int | None = None
    against: str | None = None
    p: float | None = None
    adjusted: float | None = None
    verdict: str | None = None
    dropped: int = 0
    needed: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The row of ``report.json``, without fields that are None."""
        row = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return encode({name: value for name, value in row.items() if value is not None})


RATIO_UNITS = frozenset({"fraction", "seconds", "MiB", "nats", "ratio"})
# They may fall below zero, and no factor makes sense of them.
SIGNED = frozenset(
    {
        "gap",
        "gain",
        "train_gain",
        "overconfidence",
        "path_error_rise",
        "behind",
        "train_minus_test",
        "ece_debiased",
        "first_order_distance",
    }
)
AMOUNTS = frozenset({"ratio", "nats", "seconds", "MiB", "count"})  # none of these is below zero


class _Numbers:
    """A quantity's numbers in the runs of one method, in little memory."""

    def __init__(self, first: Measurement) -> None:
        self.first = first
        self.seeds: list[int] = []
        self.values, self.spreads = array("d"), array("d")
        self.counts: set[int] = set()

    def add(self, found: Measurement, seed: int) -> None:
        self.seeds.append(seed)
        self.values.append(found.value)
        if found.spread is not None:
            self.spreads.append(found.spread)
        self.counts.add(found.n)


@dataclass
class _Quantity:
    """The numbers of one quantity, by method."""

    first: Record
    methods: dict[str, _Numbers] = field(default_factory=dict)

    def values(self, method: str) -> dict[int, float]:
        numbers = self.methods[method]
        return dict(zip(numbers.seeds, numbers.values, strict=True))

    def row(self, kind: Kind, method: str, value: float, **rest: Any) -> SummaryRow:
        found = self.first.measurement
        context = {key: entry for key, entry in found.context.items() if key != "interval"}
        given = {"unit": found.unit, **rest}
        return SummaryRow(
            kind=kind,
            dataset=self.first.dataset,
            method=method,
            audit=found.audit,
            name=found.name,
            context=context,
            better=found.better,
            value=value,
            **given,
        )


def derive(
    records: Iterable[Record], baseline: str | None = None, failed: Collection[str] = ()
) -> tuple[SummaryRow, ...]:
    """Every derived number of a comparison, in a stable order.

    `baseline` is by default the method of the first record. A method that `failed` in a run counts in Holm's adjustment
    also where it has no number: which comparisons are made is fixed before the runs. The interval of a mean is cut at
    the ends of its quantity's range: 0 and 1 for a fraction, 0 for an amount (`AMOUNTS`), none for a difference (one of
    `SIGNED`, or any quantity with a value outside these ends). Ratios are computed from logarithms. A fraction below
    half a test image (0.5 / n of the same dataset's test accuracy) is raised to that; any other quantity has no ratio
    if a number is not above 0.

    >>> from clearance.vocabulary import Measurement
    >>> def seconds(value):
    ...     return Measurement("training", "seconds", value, "seconds", n=1, better="lower")
    >>> found = {("plain", 0): 10.0, ("plain", 1): 11.0, ("foca", 0): 20.0, ("foca", 1): 22.0}
    >>> rows = derive(Record("digits", *key, seconds(value)) for key, value in found.items())
    >>> [(row.kind, row.method, round(row.value, 3)) for row in rows if row.kind != "rival"]
    [('mean', 'plain', 10.5), ('mean', 'foca', 21.0), ('difference', 'foca', 10.5), ('ratio', 'foca', 2.0)]
    """
    floors: dict[str, float] = {}
    quantities = _quantities(records, floors)
    if not quantities:
        return ()
    first = quantities[0].first.method if baseline is None else baseline
    rows: list[SummaryRow] = []
    for quantity in quantities:
        lost = len(set(failed) - quantity.methods.keys())
        rows += [_mean(quantity, method) for method in quantity.methods]
        if first in quantity.methods:
            rows += _differences(quantity, first, lost)
            rows += _ratios(quantity, first, floors.get(quantity.first.dataset))
        rows += _rivals(quantity, lost)
    return tuple(rows)


def _quantities(records: Iterable[Record], floors: dict[str, float]) -> list[_Quantity]:
    """Every quantity; `floors` gets half a test image, as a fraction, for each dataset whose accuracy was measured."""
    found: dict[Any, _Quantity] = {}
    seeds: dict[int, int] = {}  # each number once in memory
    for record in records:
        measured, seed = record.measurement, seeds.setdefault(record.seed, record.seed)
        quantity = found.get(record.quantity) or found.setdefault(record.quantity, _Quantity(record))
        if record.method not in quantity.methods:
            quantity.methods[record.method] = _Numbers(measured)
        quantity.methods[record.method].add(measured, seed)
        if measured.audit == "accuracy" and measured.context.get("split") == "test":
            floors[record.dataset] = 0.5 / measured.n
    return list(found.values())


def _mean(quantity: _Quantity, method: str) -> SummaryRow:
    over = summarise(quantity.values(method))
    found = quantity.methods[method]
    spreads, counts = found.spreads, found.counts
    single = found.first if len(found.seeds) == 1 and found.first.low is not None else None
    low, high = (single.low, single.high) if single else (over.low, over.high)
    if low is not None and high is not None:
        least, most = _ends(quantity)
        low, high = (
            max(least, low),
            min(most, high),
        )  # the cut interval still covers: no value is possible outside
    return quantity.row(
        "mean",
        method,
        over.mean,
        spread=over.spread,
        within=math.sqrt(math.fsum(s * s for s in spreads) / len(spreads)) if spreads else None,
        low=low,
        high=high,
        interval=_interval(single.context if single else None, over.low),
        seeds=over.seeds,
        n=next(iter(counts)) if len(counts) == 1 else None,
    )


def _ends(quantity: _Quantity) -> tuple[float, float]:
    """The range of a quantity's values; unbounded if a value lies outside the usual range."""
    found = quantity.first.measurement
    if found.name in SIGNED or found.unit not in AMOUNTS | {"fraction"}:
        return -math.inf, math.inf
    most = 1.0 if found.unit == "fraction" else math.inf
    numbers = [value for method in quantity.methods for value in quantity.values(method).values()]
    inside = all(0.0 <= value <= most for value in numbers if not math.isnan(value))
    return (0.0, most) if inside else (-math.inf, math.inf)


def _interval(context: Mapping[str, Scalar] | None, low: float | None) -> str | None:
    if context is not None:
        return str(context.get("interval", "as measured"))
    return None if low is None else "t over seeds"


def _differences(quantity: _Quantity, baseline: str, lost: int) -> list[SummaryRow]:
    better = quantity.first.measurement.better
    if better == "neither":
        return []
    found = {
        method: compare_seeds(quantity.values(method), quantity.values(baseline), better=better)
        for method in quantity.methods
        if method != baseline
    }
    tests = len(found) + lost
    adjusted = holm({method: one.p for method, one in found.items()}, tests)
    return [
        _compared(
            quantity,
            "difference",
            method,
            one,
            against=baseline,
            adjusted=adjusted[method],
            needed=seeds_needed(one, tests) if adjusted[method] >= LEVEL else None,
        )
        for method, one in found.items()
        if one.difference is not None
    ]


def _ratios(quantity: _Quantity, baseline: str, floor: float | None) -> list[SummaryRow]:
    found = quantity.first.measurement
    if found.better == "neither" or found.unit not in RATIO_UNITS or found.name in SIGNED:
        return []
    least = floor if found.unit == "fraction" else None
    numbers = [value for method in quantity.methods for value in quantity.values(method).values()]
    if any(value < 0 or (value == 0 and least is None) for value in numbers):
        return []  # no logarithm, and no natural floor
    rows = []
    for method in quantity.methods:
        if method == baseline:
            continue
        one = compare_seeds(
            quantity.values(method), quantity.values(baseline), better=found.better, log=True, floor=least
        )
        if one.difference is not None:
            rows.append(_compared(quantity, "ratio", method, one, against=baseline, unit="factor"))
    return rows


def _rivals(quantity: _Quantity, lost: int) -> list[SummaryRow]:
    """The method with the best mean against each other one; with two methods that is the difference already.

    Which one is best was seen in the same numbers, so that p values are adjusted for all pairs of methods.
    """
    better = quantity.first.measurement.better
    means = {method: summarise(quantity.values(method)).mean for method in quantity.methods}
    finite = {method: mean for method, mean in means.items() if math.isfinite(mean)}
    if better == "neither" or len(quantity.methods) < 3 or not finite:
        return []
    choose = min if better == "lower" else max
    best = choose(finite, key=lambda method: finite[method])
    found = {
        rival: compare_seeds(quantity.values(best), quantity.values(rival), better=better)
        for rival in quantity.methods
        if rival != best
    }
    pairs = math.comb(len(quantity.methods) + lost, 2)
    adjusted = holm({rival: one.p for rival, one in found.items()}, tests=pairs)
    return [
        _compared(
            quantity, "rival", best, one, against=rival, adjusted=None if one.p is None else adjusted[rival]
        )
        for rival, one in found.items()
        if one.difference is not None
    ]


def _compared(quantity: _Quantity, kind: Kind, method: str, one: Comparison, **rest: Any) -> SummaryRow:
    """A comparison as a row; a difference of logarithms becomes a factor."""
    back = math.exp if one.log else float
    assert one.difference is not None
    return quantity.row(
        kind,
        method,
        back(one.difference),
        low=None if one.low is None else back(one.low),
        high=None if one.high is None else back(one.high),
        interval=None if one.low is None else "t over seeds",
        seeds=one.seeds,
        p=one.p,
        verdict=one.verdict,
        dropped=one.dropped,
        **rest,
    )
