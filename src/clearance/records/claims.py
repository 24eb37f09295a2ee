"""What a paper claims, and whether it holds in the records of a comparison.

A claim is judged by paired differences over seeds (of logarithms where a factor is claimed), with their 95 % t
intervals; for "best of all" the p values of all rivals are Holm-adjusted, within one number. Fewer than five seeds
judge nothing. A claim about several numbers holds where every one of them carries it, and is refuted where one of them
says the opposite: of many numbers one may do so by chance, which the ledger leaves to see, number by number.

The claims of a paper are written in a ``claims.toml``::

    paper = "sato-2019"          reference = "..."          method = "foca"     rivals = ["plain", "dropout"]

    [scaled]                     what is smaller than in the paper, by dataset
    digits = "8x8 digits in place of photographs"

    [[claim]]
    id = "A3"                    as in the sheet of the paper
    kind = "order"               "order", "ratio", "value" or "qualitative" (judged by an order that stands for it)
    words = "Fewest errors of all methods up to 1,000 images."
    value = "an ordering"        what the paper prints
    where = "Fig. 2"             table or figure
    datasets = ["cifar10"]       what it is about
    also = ["digits"]            stand-ins on which an ordering can be judged
    note = ""
    study = "noise"              which study measures it, where the recipe alone does not
    source = "[S] slides"        where the number or ordering is known from, if not from the paper itself
    recalled = false             true: known from memory alone; shown as such, never judged, not called the paper's
      [[claim.reading]]          see `Reading`
      is = "lower"
      audit = "co_adaptation"
      measure = "error"
      context = {head = "retrained", samples = {at_most = 1000}}

A value of a ``context`` is a plain value, a list (each of them, a comparison for each), or a table with one of
``rank`` (0 the smallest number in the records, -1 the largest), ``at_most`` (every number up to it) and
``by_dataset`` (a plain value for each dataset).
"""

import itertools
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Literal

from clearance._checks import check_choice, check_positive
from clearance.records.encoding import encode
from clearance.records.record import DESCRIPTIVE, Record
from clearance.records.summary import LEVEL, Comparison, compare, holm, summarise

Kind = Literal["order", "ratio", "value", "qualitative"]
Role = Literal["verdict", "control", "beside"]
KINDS = ("order", "ratio", "value", "qualitative")
ROLES = ("verdict", "control", "beside")
RECALLED = "recalled, not checked"
SELECTORS = frozenset({"rank", "at_most", "by_dataset"})


@dataclass(frozen=True)
class Reading:
    """One measurement that a claim is judged on, or that is shown beside the judgement.

    Args:
        direction: ``is`` in the file: ``"lower"`` or ``"higher"`` than what it is held against; ``"about"`` for
            a `value` that must be missed by no more than `within` on either side.
        audit: Name of the audit.
        measure: Name of the measurement.
        context: Settings that pick it out; see :mod:`clearance.records.claims`.
        methods: Whose measurement; the paper's own method where empty.
        against: Names of the rivals, each with changes to `context` for its side; every rival of the paper
            where empty.
        itself: Changes to audit, measure and context under which each method is held against itself, in place
            of rivals.
        factor: How many times lower or higher it must be.
        log: Compare logarithms, so that ratios are told; always where `factor` is not 1.
        value: A number that it is held against instead of rivals.
        within: The part of `value` by which it may be missed, above 0 where the direction is ``"about"``.
        role: ``"verdict"``: the claim is judged on it. ``"control"``: the same ordering in another measure,
            which a claim that holds should survive. ``"beside"``: only shown.
        label: What tells it from the other readings of the claim.
    """

    direction: Literal["lower", "higher", "about"]
    audit: str
    measure: str
    context: Mapping[str, Any] = field(default_factory=dict)
    methods: Sequence[str] = ()
    against: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    itself: Mapping[str, Any] = field(default_factory=dict)
    factor: float = 1.0
    log: bool = False
    value: float | None = None
    within: float = 0.0
    role: Role = "verdict"
    label: str = ""

    def __post_init__(self) -> None:
        check_choice("is", self.direction, ("lower", "higher", "about"))
        if self.direction == "about" and (self.value is None or self.within <= 0):
            raise ValueError(
                'a reading that is "about" a number must have a `value` and a `within` above 0; add them.'
            )
        check_choice("role", self.role, ROLES)
        check_positive("factor", self.factor)
        if self.value is not None and (self.against or self.itself or self.factor != 1):
            raise ValueError(
                "a reading against `value` must name no `against`, `itself` or `factor`; drop one."
            )
        for where in (self.context, self.itself.get("context", {}), *self.against.values()):
            for key, wanted in where.items():
                _check_selector(key, wanted)


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    Args:
        id: As in the sheet of the paper.
        kind: How it is judged.
        words: The claim in a sentence.
        value: What the paper prints.
        where: Its table or figure.
        datasets: What it is about.
        readings: What it is judged on; none where nothing of it can be measured by a comparison.
        also: Datasets on which its ordering may be judged instead.
        note: What must be known to read the verdict.
        if_order_differs: What is said where the claim holds and a control of it is refuted.
        command: What to run where the claim is about no dataset of a comparison; ``"-"`` where nothing here runs it.
        study: Name of the study that measures it, where the paper's recipe alone does not.
        source: Where the claim is known from, if not from the paper itself.
        recalled: Whether it is known from memory alone, so that it is shown as "recalled, not checked", gets no
            verdict and is not called the paper's.
    """

    id: str
    kind: Kind
    words: str
    value: str
    where: str
    datasets: Sequence[str]
    readings: Sequence[Reading] = ()
    also: Sequence[str] = ()
    note: str = ""
    if_order_differs: str = ""
    command: str = ""
    study: str = ""
    source: str = ""
    recalled: bool = False

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        if self.recalled:
            self._check_recalled()
            return
        judged = [reading for reading in self.readings if reading.role == "verdict"]
        if self.kind == "ratio" and any(reading.factor == 1 for reading in judged):
            raise ValueError(f"claim {self.id}: a reading of a ratio must have a `factor`; give one.")
        if self.kind == "value" and all(reading.value is None for reading in judged):
            raise ValueError(f"claim {self.id}: a value must be held against a `value`; give one.")

    @property
    def told(self) -> str:
        """What a table says that the paper prints, and where it is known from.

        >>> Claim("1", "order", "", "96 %", "Fig. 1", (), source="[S] slides").told
        '96 % (Fig. 1; [S] slides)'
        """
        if self.recalled:
            return f"{RECALLED}: {self.value}"
        return f"{self.value} ({'; '.join(part for part in (self.where, self.source) if part)})"

    def _check_recalled(self) -> None:
        if any(reading.value is not None for reading in self.readings):
            raise ValueError(
                f"claim {self.id}: what is recalled must not be held against; drop the `value` of its readings."
            )


@dataclass(frozen=True)
class PaperClaims:
    """All claims of a paper.

    Args:
        paper: Its name here, for example ``"sato-2019"``.
        reference: Authors, title, place and year.
        method: The method that it proposes.
        rivals: What it is compared with.
        claims: Every claim, in the order of the sheet.
        scaled: What differs from the paper's experiment, by dataset.
    """

    paper: str
    reference: str
    method: str
    rivals: Sequence[str]
    claims: Sequence[Claim]
    scaled: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [claim.id for claim in self.claims]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"`claim` must have each id once; got {', '.join(twice)} more than once.")
        known = {self.method, *self.rivals}
        for claim in self.claims:
            for name in {name for reading in claim.readings for name in (*reading.methods, *reading.against)}:
                check_choice(f"a method of claim {claim.id}", name, known)


def _check_selector(key: str, wanted: Any) -> None:
    if isinstance(wanted, Mapping) and (len(wanted) != 1 or not set(wanted) <= SELECTORS):
        raise ValueError(
            f"`{key}` of a context must be a value, a list, or a table with one of "
            f"{', '.join(sorted(SELECTORS))}; got {dict(wanted)}."
        )


RENAMED = {"is": "direction", "reading": "readings", "claim": "claims"}  # words of the file that Python keeps


def parse_claims(text: str, source: str = "claims.toml") -> PaperClaims:
    r"""The claims of the text of a ``claims.toml``; `source` is what errors call it.

    Raises:
        ValueError: It is no TOML of this form; the message names the claim.

    >>> parse_claims('paper = "x-2020"\nreference = ""\nmethod = "foca"\nrivals = []\nclaim = []').paper
    'x-2020'
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{source} must be TOML; got: {error}.") from error
    claims = tree.get("claim", [])
    made = [_claim(row, f"{source}, claim {row.get('id', place)}") for place, row in enumerate(claims)]
    found: PaperClaims = _filled(PaperClaims, {**tree, "claim": made}, source)
    return found


def _claim(row: Mapping[str, Any], source: str) -> Claim:
    readings = [_filled(Reading, reading, source) for reading in row.get("reading", [])]
    claim: Claim = _filled(Claim, {**row, "reading": readings}, source)
    return claim


def _filled(kind: Any, row: Mapping[str, Any], source: str) -> Any:
    """A dataclass from a table; a key that is missing or unknown is named."""
    values = {RENAMED.get(key, key): tuple(v) if isinstance(v, list) else v for key, v in row.items()}
    known = {entry.name: entry for entry in fields(kind)}
    for key in values:
        check_choice(f"{source}: a key", key, known)
    needed = [
        n for n, entry in known.items() if entry.default is MISSING and entry.default_factory is MISSING
    ]
    written = {name: key for key, name in RENAMED.items()}
    absent = [written.get(name, name) for name in needed if name not in values]
    if absent:
        raise ValueError(f"{source} must have {', '.join(absent)}; it is missing. Add it.")
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


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
    clearance.records.claims.Missing: accuracy error was not measured
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


Verdict = Literal["holds", "refuted", "cannot tell", "not run", "no verdict"]


@dataclass(frozen=True)
class Compared:
    """One side of a reading against another; `adjusted` is the Holm-adjusted p value."""

    first: Series
    second: Series
    comparison: Comparison
    adjusted: float | None

    def times(self, reading: Reading) -> tuple[float, float, float] | None:
        """How many times better the first side is, with a 95 % interval; None where no ratio was compared."""
        one = self.comparison
        if not one.log or one.difference is None or one.low is None or one.high is None:
            return None
        sign = -1 if reading.direction == "lower" else 1
        middle, *ends = (reading.factor * math.exp(sign * end) for end in (one.difference, one.low, one.high))
        return middle, min(ends), max(ends)


@dataclass(frozen=True)
class Outcome:
    """What one reading of a claim came to.

    Args:
        reading: What was read.
        verdict: Of this reading alone.
        reason: Why, where it does not hold.
        order: The verdict on the ordering alone, without the factor that is claimed.
        compared: Every comparison that it rests on.
    """

    reading: Reading
    verdict: Verdict
    reason: str = ""
    order: Verdict = "not run"
    compared: tuple[Compared, ...] = ()


@dataclass(frozen=True)
class Judgement:
    """A claim and what became of it.

    Args:
        claim: The claim.
        verdict: Holds, refuted, cannot tell or not run; no verdict for a claim that is only recalled.
        reason: Why, where it does not simply hold.
        remark: What must be said with the verdict because a control orders the methods otherwise.
        outcomes: The readings that it rests on, and those shown beside it.
    """

    claim: Claim
    verdict: Verdict
    reason: str = ""
    remark: str = ""
    outcomes: tuple[Outcome, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A row of ``ledger.json``."""
        claim = self.claim
        told = {
            "id": claim.id,
            "claim": claim.words,
            "kind": claim.kind,
            "paper": "" if claim.recalled else claim.value,
            "recalled": claim.value if claim.recalled else "",
            "source": claim.source,
            "where": claim.where,
            "about": list(claim.datasets),
            "verdict": self.verdict,
            "reason": self.reason,
            "remark": self.remark,
            "note": claim.note,
        }
        return encode(told | {"readings": [_outcome_row(outcome) for outcome in self.outcomes]})


def _outcome_row(outcome: Outcome) -> dict[str, Any]:
    reading = outcome.reading
    return {
        "label": reading.label,
        "role": reading.role,
        "audit": reading.audit,
        "measure": reading.measure,
        "is": reading.direction,
        "factor": reading.factor,
        "verdict": outcome.verdict,
        "order": outcome.order,
        "reason": outcome.reason,
        "compared": [
            {"first": _side(one.first), "second": _side(one.second), **asdict(one.comparison)}
            | {"adjusted": one.adjusted, "times": one.times(reading)}
            for one in outcome.compared
        ],
    }


def _side(series: Series) -> dict[str, Any]:
    over = asdict(summarise(series.values))
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

    >>> from clearance.records.claims import parse_claims
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
    return tuple(_judged(claim, claims, shelf) for claim in claims.claims)


def not_run(claims: PaperClaims, reason: str) -> tuple[Judgement, ...]:
    """Every claim, not run for one reason.

    >>> not_run(PaperClaims("x", "", "foca", (), ()), "no data")
    ()
    """
    return tuple(
        Judgement(claim, "no verdict", RECALLED) if claim.recalled else Judgement(claim, "not run", reason)
        for claim in claims.claims
    )


def _judged(claim: Claim, claims: PaperClaims, shelf: Shelf) -> Judgement:
    dataset = shelf.dataset
    if claim.recalled:  # what was measured is shown all the same
        here = claim.readings if dataset in (*claim.datasets, *claim.also) else ()
        return Judgement(
            claim, "no verdict", RECALLED, "", tuple(_read(reading, claims, shelf) for reading in here)
        )
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
    outcomes = tuple(_read(reading, claims, shelf) for reading in readings)
    judged = [outcome for outcome in outcomes if outcome.reading.role == "verdict"]
    # one part that is refuted refutes the whole; one that was not run leaves it open
    decided = next(
        (o for word in ("refuted", "not run", "cannot tell") for o in judged if o.verdict == word), judged[0]
    )
    remark = _remark(claim, judged, outcomes)
    return Judgement(claim, decided.verdict, decided.reason, remark, outcomes)


def _remark(claim: Claim, judged: Sequence[Outcome], outcomes: Sequence[Outcome]) -> str:
    controls = {outcome.order for outcome in outcomes if outcome.reading.role == "control"}
    orders = {outcome.order for outcome in judged}
    if orders == {"holds"} and "refuted" in controls:
        return claim.if_order_differs or "a control orders the methods otherwise"
    if "refuted" in orders and "holds" in controls:
        return "a control orders the methods as claimed"
    return ""


def _read(reading: Reading, claims: PaperClaims, shelf: Shelf) -> Outcome:
    try:
        pairs = paired(reading, claims, shelf)
    except Missing as missing:
        return Outcome(reading, "not run", str(missing))
    try:
        plain = [_compared(pair, reading, factor=1.0) for pair in pairs]
        claimed = plain if reading.factor == 1 else [_compared(p, reading, reading.factor) for p in pairs]
    except ValueError:  # told by `compare`: no logarithm
        return Outcome(reading, "cannot tell", "a number that is not above 0 has no ratio")
    compared = _adjusted(pairs, claimed)
    verdict, reason = _decided(compared)
    order, _ = (verdict, reason) if reading.factor == 1 else _decided(_adjusted(pairs, plain))
    if order == "holds" and verdict != "holds":
        reason += "; the ordering alone holds"
    return Outcome(reading, verdict, reason, order, tuple(compared))


def _compared(pair: Pair, reading: Reading, factor: float) -> Comparison:
    """The first side, made `factor` times worse, against the second."""
    scale = factor if pair.better == "lower" else 1 / factor
    first = {seed: value * scale for seed, value in pair.first.values.items()}
    log = reading.log or reading.factor != 1
    return compare(first, pair.second.values, better=pair.better, log=log)


def _adjusted(pairs: Sequence[Pair], comparisons: Sequence[Comparison]) -> list[Compared]:
    """Each comparison with its p value, adjusted for all rivals in the same quantity."""
    families: dict[Any, dict[str, float]] = {}
    for place, (pair, one) in enumerate(zip(pairs, comparisons, strict=True)):
        families.setdefault(pair.family, {})[str(place)] = 1.0 if one.p is None else one.p
    adjusted = {place: p for family in families.values() for place, p in holm(family).items()}
    return [
        Compared(pair.first, pair.second, one, None if one.p is None else adjusted[str(place)])
        for place, (pair, one) in enumerate(zip(pairs, comparisons, strict=True))
    ]


def _decided(compared: Sequence[Compared]) -> tuple[Verdict, str]:
    few = min(one.comparison.seeds for one in compared)
    if few < MINIMUM_SEEDS:
        return "cannot tell", f"{few} seed{'' if few == 1 else 's'}; a verdict needs {MINIMUM_SEEDS}"
    # "At every size" is refuted by any one size, so that all of them are tries and are paid for.
    tries = holm({str(k): _p(one) for k, one in enumerate(compared)})
    against = [
        one for k, one in enumerate(compared) if tries[str(k)] < LEVEL and one.comparison.verdict == "worse"
    ]
    if against:
        return "refuted", "refuted by " + _named(against)
    open_ = [
        one
        for one in compared
        if one.comparison.verdict != "better" or one.adjusted is None or one.adjusted >= LEVEL
    ]
    return ("cannot tell", "not told apart from " + _named(open_)) if open_ else ("holds", "")


def _p(one: Compared) -> float:
    return 1.0 if one.comparison.p is None else one.comparison.p


def _named(compared: Sequence[Compared]) -> str:
    """Who, and with which settings: methods with the same settings are told together."""
    settings: dict[str, list[str]] = {}
    for one in compared:
        told = one.second if one.first.method != one.second.method else one.first
        settings.setdefault(told.method, []).append(told.settings)
    methods: dict[tuple[str, ...], list[str]] = {}
    for method, shown in settings.items():
        methods.setdefault(tuple(dict.fromkeys(filter(None, shown))), []).append(method)
    return ", ".join(
        f"{', '.join(names)} ({'; '.join(shown)})" if shown else ", ".join(names)
        for shown, names in methods.items()
    )
