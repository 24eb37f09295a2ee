"""Which numbers of the records a claim reads: its settings resolved, and the sides of each comparison paired."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from clearance.records.claims import PaperClaims, Reading
from clearance.records.record import DESCRIPTIVE, Record

Better = Literal["lower", "higher"]
TITLED = ("samples", "layer", "noise", "attack", "norm", "epsilon")


class Missing(LookupError):  # noqa: N818 - nothing is wrong: a measurement was not made
    """A measurement that a claim reads is not in the records."""


@dataclass(frozen=True)
class Series:
    """One quantity of one method: a number for each seed.

    Args:
        method: The method; of a printed value the part by which it may be missed, ``"the paper's +10 %"``; else
            ``"the bound"``.
        context: The settings that were asked for, with their values in the records.
        unit: Unit of the numbers.
        values: Number by seed.
    """

    method: str
    context: Mapping[str, Any]
    unit: str
    values: Mapping[int, float]

    @property
    def title(self) -> str:
        """The method, and the settings that are numbers or differ from comparison to comparison.

        >>> Series("foca", {"head": "retrained", "samples": 10}, "fraction", {}).title
        'foca (samples 10)'
        """
        return f"{self.method} ({self.settings})" if self.settings else self.method

    @property
    def settings(self) -> str:
        """The settings in the title alone."""
        return ", ".join(f"{key} {self.context[key]}" for key in TITLED if key in self.context)


@dataclass(frozen=True)
class Pair:
    """Two sides of a comparison; `family` is the same for all rivals in one quantity."""

    first: Series
    second: Series
    family: Any
    better: Better


def paired(reading: Reading, claims: PaperClaims, shelf: "Shelf") -> tuple[Pair, ...]:
    """Every comparison that a reading asks for.

    Args:
        reading: What to read.
        claims: The paper, for its method and rivals.
        shelf: The records.

    Raises:
        Missing: A measurement is not there.
        ValueError: The settings fit two measurements of the same run.

    >>> reading = Reading("lower", "accuracy", "error")
    >>> paired(reading, PaperClaims("x", "", "foca", ("plain",), ()), Shelf([], "digits"))
    Traceback (most recent call last):
    clearance.records.readings.Missing: accuracy error was not measured
    """
    pairs: list[Pair] = []
    for context in shelf.contexts(reading.audit, reading.measure, reading.context):
        for method in reading.methods or (claims.method,):
            first = shelf.series(method, reading.audit, reading.measure, context)
            family = tuple(sorted(context.items(), key=str))
            if reading.value is not None:
                pairs += _held_against_value(reading, first, family)
            elif reading.direction != "about":
                seconds = _seconds(shelf, reading, claims, first)
                pairs += [Pair(first, second, family, reading.direction) for second in seconds]
    return tuple(pairs)


def _held_against_value(reading: Reading, first: Series, family: Any) -> Iterator[Pair]:
    """One pair, or where the value is to be met one for each end: two tests that must both be passed (Schuirmann 1987).

    They are no family: what is about a number must lie above one end and below the other, so that neither is a try.
    """
    assert reading.value is not None
    ends: tuple[Better, ...] = ("lower", "higher") if reading.direction == "about" else (reading.direction,)
    for better in ends:
        miss = reading.within if better == "lower" else -reading.within
        name = f"the paper's {100 * miss:+.2g} %" if miss else "the bound"
        values = dict.fromkeys(first.values, reading.value * (1 + miss))
        yield Pair(first, Series(name, {}, first.unit, values), (*family, better), better)


def _seconds(shelf: "Shelf", reading: Reading, claims: PaperClaims, first: Series) -> Iterator[Series]:
    """What one side is held against."""
    if reading.itself:
        audit = reading.itself.get("audit", reading.audit)
        measure = reading.itself.get("measure", reading.measure)
        context = shelf.one_context(audit, measure, reading.itself.get("context", first.context))
        yield shelf.series(first.method, audit, measure, context)
    else:
        for rival, changes in (reading.against or {name: {} for name in claims.rivals}).items():
            context = shelf.one_context(reading.audit, reading.measure, {**first.context, **changes})
            yield shelf.series(rival, reading.audit, reading.measure, context)


class Shelf:
    """The records of one dataset, by audit and measurement.

    Args:
        records: Measurements; those of other datasets are passed over.
        dataset: The dataset; also picks values that are given by dataset.
    """

    def __init__(self, records: Iterable[Record], dataset: str) -> None:
        self.dataset = dataset
        self.kept: dict[tuple[str, str], list[Record]] = {}
        for record in records:
            found = record.measurement
            if record.dataset == dataset:
                self.kept.setdefault((found.audit, found.name), []).append(record)

    def contexts(self, audit: str, measure: str, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The settings that `wanted` stands for, each with plain values."""
        if (audit, measure) not in self.kept:
            raise Missing(f"{audit} {measure} was not measured")
        fixed = {key: value for key, value in wanted.items() if not isinstance(value, Mapping | tuple | list)}
        here = [r for r in self.kept.get((audit, measure), []) if _fits(r, fixed)]
        alike = [r for (_, name), found in self.kept.items() if name == measure for r in found]
        choices = [self._choices(key, value, here, alike) for key, value in wanted.items()]
        return [dict(zip(wanted, chosen, strict=True)) for chosen in itertools.product(*choices)]

    def one_context(self, audit: str, measure: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """The same for the second side, which is one quantity."""
        found = self.contexts(audit, measure, wanted)
        if len(found) != 1:
            raise ValueError(f"the second side of a reading must be one quantity; got {found}. Narrow it.")
        return found[0]

    def series(self, method: str, audit: str, measure: str, context: Mapping[str, Any]) -> Series:
        """The numbers of one method.

        Raises:
            Missing: There are none.
            ValueError: `context` fits two of the same run.
        """
        values: dict[int, float] = {}
        unit, full = "", None
        for record in self.kept.get((audit, measure), []):
            if record.method != method or not _fits(record, context):
                continue
            if record.seed in values:
                raise ValueError(
                    f"a reading of {audit} {measure} must name one measurement; {dict(context)} fits "
                    f"{dict(record.measurement.context)} and {full}. Name what differs."
                )
            values[record.seed] = record.measurement.value
            unit, full = record.measurement.unit, dict(record.measurement.context)
        if not values:
            told = ", ".join(f"{key} {value}" for key, value in context.items())
            where = f" at {told}" if told else ""
            raise Missing(f"{audit} {measure} was not measured for {method}{where}")
        return Series(method, context, unit, values)

    def _choices(
        self, key: str, wanted: Any, here: Sequence[Record], alike: Sequence[Record]
    ) -> Sequence[Any]:
        """The values of one setting; `alike` holds what every audit measured under the same name."""
        if isinstance(wanted, tuple | list):
            return wanted
        if not isinstance(wanted, Mapping):
            return (wanted,)
        if "by_dataset" in wanted:
            if self.dataset not in wanted["by_dataset"]:
                raise Missing(f"no {key} is named for {self.dataset}")
            return (wanted["by_dataset"][self.dataset],)
        numbers = _numbers(key, here)
        if "at_most" in wanted:
            chosen = [number for number in numbers if number <= wanted["at_most"]]
        else:
            # counted among all audits: the largest number of one that left out "all" is not "all"
            ranked, rank = _numbers(key, alike), wanted["rank"]
            chosen = [ranked[rank]] if -len(ranked) <= rank < len(ranked) and ranked[rank] in numbers else []
        if not chosen:
            raise Missing(f"no {key} fits {dict(wanted)}: measured were {numbers or 'none'}")
        return chosen


def _numbers(key: str, records: Iterable[Record]) -> list[Any]:
    return sorted({number for r in records if (number := r.measurement.context.get(key)) is not None})


def _fits(record: Record, wanted: Mapping[str, Any]) -> bool:
    found = record.measurement.context
    return all(
        key in found and found[key] == value for key, value in wanted.items() if key not in DESCRIPTIVE
    )
