"""Whether a claim of a paper holds in the records of a comparison.

A claim is judged by paired differences over seeds (of logarithms where a factor is claimed), with their 95 % t
intervals; for "best of all" the p values of all rivals are Holm-adjusted, within one number. Fewer than five seeds
judge nothing, and no more are judged than the paper's ``claims.toml`` fixes for the study. On another dataset than its
own a claim is "not comparable", and only its ordering is looked at. A claim about several numbers holds where every one
of them carries it, and is refuted where one of them says the opposite, its p value times the number of numbers.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from clearance.research import (
    DESCRIPTIVE,
    LEVEL,
    Comparison,
    Record,
    SeedSummary,
    compare_seeds,
    encode,
    holm,
    summarise,
)
from papers.engine.claims import RECALLED, Claim, ClaimReading, PaperClaims

# Which numbers of the records a claim reads: its settings resolved, and the sides of each comparison paired.

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
        context: The given settings, with their values in the records.
        unit: Unit of the numbers.
        values: Number by seed.
    """

    method: str
    context: Mapping[str, Any]
    unit: str
    values: Mapping[int, float]

    @property
    def over_seeds(self) -> SeedSummary:
        """Mean, spread and interval over seeds."""
        return summarise(self.values)

    @property
    def title(self) -> str:
        """The method, and the settings that are numbers or differ from comparison to comparison.

        >>> Series("foca", {"head": "retrained", "samples": 10}, "fraction", {}).title
        'foca (samples 10)'
        """
        return f"{self.method} ({self.settings})" if self.settings else self.method

    @property
    def settings(self) -> str:
        """The settings in the title."""
        return ", ".join(f"{key} {self.context[key]}" for key in TITLED if key in self.context)


@dataclass(frozen=True)
class Pair:
    """Two sides of a comparison; `family` is the same for all rivals in one quantity."""

    first: Series
    second: Series
    family: Any
    better: Better


def paired(reading: ClaimReading, claims: PaperClaims, shelf: "Shelf") -> tuple[Pair, ...]:
    """Every comparison that a reading asks for.

    Args:
        reading: What to read.
        claims: The paper, for its method and rivals.
        shelf: The records.

    Raises:
        Missing: A measurement is not there.
        ValueError: The settings fit two measurements of the same run.

    >>> reading = ClaimReading("lower", "accuracy", "error")
    >>> paired(reading, PaperClaims("x", "", "foca", ("plain",), ()), Shelf([], "digits"))
    Traceback (most recent call last):
    papers.engine.judging.Missing: accuracy error was not measured
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


def _held_against_value(reading: ClaimReading, first: Series, family: Any) -> Iterator[Pair]:
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


def _seconds(shelf: "Shelf", reading: ClaimReading, claims: PaperClaims, first: Series) -> Iterator[Series]:
    """What one side is compared with."""
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
            settings = ", ".join(f"{key} {value}" for key, value in context.items())
            where = f" at {settings}" if settings else ""
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


# What became of a paper's claim: a judgement, the readings that it rests on, and the comparisons under those.

ClaimVerdict = Literal[
    "holds",
    "ordering holds",
    "refuted",
    "cannot tell",
    "not comparable",
    "expected only",
    "not judged",
    "not run",
    "no verdict",
]
Ordering = Literal["", "holds", "does not hold", "cannot tell"]


@dataclass(frozen=True)
class Compared:
    """One side of a reading against another; `adjusted` is the Holm-adjusted p value."""

    first: Series
    second: Series
    comparison: Comparison
    adjusted: float | None

    def times(self, reading: ClaimReading) -> tuple[float, float, float] | None:
        """How many times better the first side is, with a 95 % interval; None where no ratio was compared."""
        one = self.comparison
        if not one.log or one.difference is None or one.low is None or one.high is None:
            return None
        sign = -1 if reading.direction == "lower" else 1
        middle, *ends = (reading.factor * math.exp(sign * end) for end in (one.difference, one.low, one.high))
        return middle, min(ends), max(ends)


@dataclass(frozen=True)
class JudgedReading:
    """What one reading of a claim came to.

    Args:
        reading: What was read.
        verdict: The verdict of this reading.
        reason: Why, where it does not hold.
        order: The verdict on the ordering, without the claimed factor.
        order_reason: Why, where the ordering does not hold.
        compared: Every comparison that it rests on.
        below_floor: Those left out.
    """

    reading: ClaimReading
    verdict: ClaimVerdict
    reason: str = ""
    order: ClaimVerdict = "not run"
    order_reason: str = ""
    compared: tuple[Compared, ...] = ()
    below_floor: tuple[Compared, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """A claim and what became of it.

    Args:
        claim: The claim.
        verdict: What became of it. "Ordering holds" where no number of the paper's was tested; "not comparable"
            on another dataset than its own; "expected only" where the paper shows nothing; no verdict where it is
            only recalled.
        reason: Why, where it does not simply hold.
        remark: A caveat, if a control orders the methods differently.
        readings: The readings that it is based on, and those only shown.
        ordering: Whether the ordering holds here, for a claim that is not comparable or only expected.
    """

    claim: Claim
    verdict: ClaimVerdict
    reason: str = ""
    remark: str = ""
    readings: tuple[JudgedReading, ...] = ()
    ordering: Ordering = ""

    @property
    def words(self) -> str:
        """The verdict as tables have it.

        >>> claim = Claim("A", "order", "", "", "", ("cifar10",))
        >>> Judgement(claim, "not comparable", ordering="does not hold").words
        'not comparable; ordering here: does not hold'
        """
        return self.verdict + (f"; ordering here: {self.ordering}" if self.ordering else "")

    def to_json(self) -> dict[str, Any]:
        """A row of ``ledger.json``."""
        claim = self.claim
        found = {
            "id": claim.id,
            "claim": claim.words,
            "kind": claim.kind,
            "paper": "" if claim.recalled else claim.value,
            "recalled": claim.value if claim.recalled else "",
            "source": claim.source,
            "where": claim.where,
            "about": list(claim.datasets),
            "verdict": self.verdict,
            "ordering": self.ordering,
            "reason": self.reason,
            "remark": self.remark,
            "note": claim.note,
        }
        return encode(found | {"readings": [_reading_row(one) for one in self.readings]})


def _reading_row(judged: JudgedReading) -> dict[str, Any]:
    reading = judged.reading
    return {
        "label": reading.label,
        "role": reading.role,
        "audit": reading.audit,
        "measure": reading.measure,
        "is": reading.direction,
        "factor": reading.factor,
        "verdict": judged.verdict,
        "order": judged.order,
        "reason": judged.reason,
        "compared": [_compared_row(one, reading) for one in judged.compared],
        "below_floor": [_compared_row(one, reading) for one in judged.below_floor],
    }


def _compared_row(one: Compared, reading: ClaimReading) -> dict[str, Any]:
    sides = {"first": _side(one.first), "second": _side(one.second)}
    return {**sides, **asdict(one.comparison), "adjusted": one.adjusted, "times": one.times(reading)}


def _side(series: Series) -> dict[str, Any]:
    over = asdict(series.over_seeds)
    return {"method": series.method, "context": dict(series.context), "unit": series.unit, **over}


MINIMUM_SEEDS = 5  # decided before any number was seen; a t interval over fewer says next to nothing


def judge(claims: PaperClaims, records: Iterable[Record], dataset: str) -> tuple[Judgement, ...]:
    """Every claim of a paper, judged on the records of one dataset.

    Args:
        claims: The claims.
        records: Measurements of all methods and seeds; those of other datasets are passed over.
        dataset: Name of the dataset.

    Raises:
        ValueError: The settings of a reading fit two different measurements of the same run.

    >>> from papers.engine.claims import parse_claims
    >>> text = '''
    ... paper = "x"
    ... reference = ""
    ... method = "foca"
    ... rivals = ["plain"]
    ... [[claim]]
    ... id = "A"
    ... kind = "order"
    ... words = "Fewest errors."
    ... value = ""
    ... where = ""
    ... datasets = ["digits"]
    ... reading = [{is = "lower", audit = "accuracy", measure = "error", context = {split = "test"}}]
    ... '''
    >>> judge(parse_claims(text), [], "digits")[0].reason
    'accuracy error was not measured'
    """
    shelf = Shelf(records, dataset)
    judged = {claim.id: _judged(claim, claims, shelf) for claim in claims.claims}
    return tuple(_with_included(one, judged) for one in judged.values())


def _with_included(judgement: Judgement, judged: Mapping[str, Judgement]) -> Judgement:
    """A claim is refuted where one that it contains is: there one comparison was tested, here it is one of several."""
    for name in judgement.claim.includes:
        part = judged.get(name)
        if part is not None and part.verdict == "refuted" and judgement.verdict != "not run":
            return replace(judgement, verdict="refuted", reason=f"it contains claim {name}, which is refuted")
        if part is not None and part.ordering == "does not hold" and judgement.ordering:
            reason = f"it contains claim {name}, whose ordering does not hold"
            return replace(judgement, ordering="does not hold", reason=reason)
    return judgement


def _judged(claim: Claim, claims: PaperClaims, shelf: Shelf) -> Judgement:
    dataset = shelf.dataset
    seeds = claims.seeds_of(claim.study, dataset)

    def read(readings: Sequence[ClaimReading]) -> tuple[JudgedReading, ...]:
        numbers = sum(reading.role == "verdict" for reading in readings)
        return tuple(
            _read(reading, claims, shelf, seeds, numbers if reading.role == "verdict" else 1)
            for reading in readings
        )

    if claim.recalled:  # what was measured is shown all the same
        here = claim.readings if dataset in (*claim.datasets, *claim.also) else ()
        return Judgement(claim, "no verdict", RECALLED, "", read(here))
    if not claim.readings and claim.command not in ("", "-"):
        return Judgement(claim, "not run", "measured by its own command, not here")
    about = ", ".join(claim.datasets)
    if dataset not in (*claim.datasets, *claim.also):
        return Judgement(claim, "not run", f"about {about}; this is {dataset}")
    readings = [r for r in claim.readings if r.value is None or dataset in claim.datasets]
    if not any(reading.role == "verdict" for reading in readings):
        what = (
            f"a number of {about}; this is {dataset}"
            if claim.readings
            else "no comparison of methods measures it"
        )
        return Judgement(claim, "not run", what)
    judged = read(readings)
    decisive = [one for one in judged if one.reading.role == "verdict"]
    # one part that is refuted refutes the whole; one that was not run leaves it open
    order = ("refuted", "not run", "cannot tell")
    decided = next((one for word in order for one in decisive if one.verdict == word), decisive[0])
    if decided.verdict == "not run":
        return Judgement(claim, "not run", decided.reason, "", judged)
    if dataset in claim.not_judged:
        bare = tuple(replace(one, verdict="not judged", reason="", order="not judged") for one in judged)
        return Judgement(claim, "not judged", claim.not_judged[dataset], "", bare)
    remark = _remark(judged)
    if claim.expected or dataset not in claim.datasets:
        word: ClaimVerdict = "expected only" if claim.expected else "not comparable"
        decided = next((one for word in order for one in decisive if one.order == word), decisive[0])
        bare = tuple(replace(one, verdict=word, reason=one.order_reason) for one in judged)
        return Judgement(claim, word, decided.order_reason, remark, bare, ordering_in_words(decided.order))
    numbers = any(not one.reading.is_ordering for one in decisive)
    verdict = decided.verdict if numbers or decided.verdict != "holds" else "ordering holds"
    return Judgement(claim, verdict, decided.reason, remark, judged)


def ordering_in_words(order: ClaimVerdict) -> Ordering:
    """The verdict on an ordering as a word of its own.

    >>> ordering_in_words("refuted")
    'does not hold'
    """
    words: Mapping[ClaimVerdict, Ordering] = {"holds": "holds", "refuted": "does not hold"}
    return words.get(order, "cannot tell")


def _remark(judged: Sequence[JudgedReading]) -> str:
    controls = {one.order for one in judged if one.reading.role == "control"}
    orders = {one.order for one in judged if one.reading.role == "verdict"}
    if orders == {"holds"} and "refuted" in controls:
        return "a control orders the methods otherwise"
    if "refuted" in orders and "holds" in controls:
        return "a control orders the methods as claimed"
    return ""


def _read(
    reading: ClaimReading,
    claims: PaperClaims,
    shelf: Shelf,
    seeds: int | None,
    numbers: int,
) -> JudgedReading:
    try:
        pairs = paired(reading, claims, shelf)
    except Missing as missing:
        return JudgedReading(reading, "not run", str(missing))
    pairs = pairs if seeds is None else tuple(_first_seeds(pair, seeds) for pair in pairs)
    try:
        plain = [_compared(pair, reading, factor=1.0) for pair in pairs]
        claimed = plain if reading.factor == 1 else [_compared(p, reading, reading.factor) for p in pairs]
    except ValueError:  # raised by `compare`: no logarithm
        why = "a number that is not above 0 has no ratio"
        return JudgedReading(reading, "cannot tell", why, "cannot tell", why)
    out = [pair for pair in pairs if _below_floor(pair, reading)]
    kept_in = [k for k, pair in enumerate(pairs) if pair not in out]
    if not kept_in:
        return JudgedReading(reading, "not run", f"every comparison is below the floor of {reading.floor:g}")
    needed = max(MINIMUM_SEEDS, seeds or 0)
    shown = [pairs[k] for k in kept_in]
    compared = _adjusted(shown, [claimed[k] for k in kept_in])
    verdict, reason = _decided(compared, needed, numbers)
    order, order_reason = verdict, reason
    if reading.factor > 1:  # below 1 it is a bound, and no ordering is claimed
        order, order_reason = _decided(_adjusted(shown, [plain[k] for k in kept_in]), needed, numbers)
    if order == "holds" and verdict != "holds":
        reason += "; the ordering alone holds"
    left_out = _adjusted(out, [claimed[k] for k in range(len(pairs)) if k not in kept_in])
    if left_out:
        cells = "; ".join(dict.fromkeys(pair.first.settings for pair in out))
        said = f"left out, with less than {reading.floor:g} on the other side: {cells}"
        reason, order_reason = (f"{text}; {said}" if text else said for text in (reason, order_reason))
    return JudgedReading(reading, verdict, reason, order, order_reason, tuple(compared), tuple(left_out))


def _below_floor(pair: Pair, reading: ClaimReading) -> bool:
    return reading.floor is not None and pair.second.over_seeds.mean < reading.floor


def _first_seeds(pair: Pair, count: int) -> Pair:
    """Without the seeds beyond the number that was fixed: more would be tries until the verdict pleases."""
    first, second = (
        replace(side, values={seed: value for seed, value in side.values.items() if seed < count})
        for side in (pair.first, pair.second)
    )
    return replace(pair, first=first, second=second)


def _compared(pair: Pair, reading: ClaimReading, factor: float) -> Comparison:
    """The first side, made `factor` times worse, against the second."""
    scale = factor if pair.better == "lower" else 1 / factor
    first = {seed: value * scale for seed, value in pair.first.values.items()}
    log = reading.log or reading.factor != 1
    return compare_seeds(first, pair.second.values, better=pair.better, log=log)


def _adjusted(pairs: Sequence[Pair], comparisons: Sequence[Comparison]) -> list[Compared]:
    """Each comparison with its p value, adjusted for all rivals in the same quantity."""
    families: dict[Any, dict[str, float | None]] = {}
    for place, (pair, one) in enumerate(zip(pairs, comparisons, strict=True)):
        families.setdefault(pair.family, {})[str(place)] = one.p
    adjusted = {place: p for family in families.values() for place, p in holm(family).items()}
    return [
        Compared(pair.first, pair.second, one, None if one.p is None else adjusted[str(place)])
        for place, (pair, one) in enumerate(zip(pairs, comparisons, strict=True))
    ]


def _decided(compared: Sequence[Compared], needed: int, numbers: int) -> tuple[ClaimVerdict, str]:
    few = min(one.comparison.seeds for one in compared)
    if few < needed:
        return "cannot tell", f"{few} seed{'' if few == 1 else 's'}; a verdict needs {needed}"
    # "At every size" is refuted by any one size, and a claim about several numbers by any one of them: all are tries
    # and are paid for.
    tries = holm({str(k): one.comparison.p for k, one in enumerate(compared)})
    against = [
        one
        for k, one in enumerate(compared)
        if numbers * tries[str(k)] < LEVEL and one.comparison.verdict == "worse"
    ]
    if against:
        return "refuted", "because of " + _named(against)
    open_ = [
        one
        for one in compared
        if one.comparison.verdict != "better" or one.adjusted is None or one.adjusted >= LEVEL
    ]
    return ("cannot tell", "inconclusive against " + _named(open_)) if open_ else ("holds", "")


def _named(compared: Sequence[Compared]) -> str:
    """Methods with their settings; methods with the same settings are grouped."""
    settings: dict[str, list[str]] = {}
    for one in compared:
        side = one.second if one.first.method != one.second.method else one.first
        settings.setdefault(side.method, []).append(side.settings)
    methods: dict[tuple[str, ...], list[str]] = {}
    for method, shown in settings.items():
        methods.setdefault(tuple(dict.fromkeys(filter(None, shown))), []).append(method)
    return ", ".join(
        f"{', '.join(names)} ({'; '.join(shown)})" if shown else ", ".join(names)
        for shown, names in methods.items()
    )
