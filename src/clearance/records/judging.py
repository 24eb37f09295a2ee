"""Whether a claim of a paper holds in the records of a comparison.

A claim is judged by paired differences over seeds (of logarithms where a factor is claimed), with their 95 % t
intervals; for "best of all" the p values of all rivals are Holm-adjusted, within one number. Fewer than five seeds
judge nothing. A claim about several numbers holds where every one of them carries it, and is refuted where one of them
says the opposite: of many numbers one may do so by chance, which the ledger leaves to see, number by number.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from clearance.records.claims import RECALLED, Claim, PaperClaims, Reading
from clearance.records.judgement import Compared, Judgement, Outcome, Verdict
from clearance.records.readings import Missing, Pair, Shelf, paired
from clearance.records.record import Record
from clearance.records.summary import LEVEL, Comparison, compare, holm

MINIMUM_SEEDS = 5  # decided before any number was seen; a t interval over fewer says next to nothing


def judge(claims: PaperClaims, records: Iterable[Record], dataset: str) -> tuple[Judgement, ...]:
    """Every claim of a paper, judged on the records of one dataset.

    Args:
        claims: The claims.
        records: Measurements of all methods and seeds; those of other datasets are passed over.
        dataset: Name of the dataset.

    Raises:
        ValueError: The settings of a reading fit two different measurements of the same run.

    >>> from clearance.records.claims_file import parse_claims
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
