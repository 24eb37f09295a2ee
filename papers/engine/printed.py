"""What a ``ledger.md`` prints in its tables and sentences, checked against the values of single seeds.

`misprints` finds every mean with its spread or interval, every difference or factor with its interval, every p value
and every verdict that no measurement or pair of measurements gives.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import fmean
from typing import Any

from clearance.research import LEVEL, Comparison, compare_seeds, holm, summarise
from papers.engine.judging import Better
from papers.engine.ledger import in_unit, mean_and_spread, mean_cell

VALUE = r"[−+-]?(?:\d[\d.,]*(?:e[−-]?\d+)?|∞)(?:×| (?:%|s|min|MiB|pixel units))?"
WORDS = r"better|worse|inconclusive"
INTERVAL = re.compile(rf"(?P<middle>{VALUE})(?: \(|, )(?P<ends>{VALUE} to {VALUE})")
DIFFERENCE = re.compile(
    rf"\*\*(?P<verdict>{WORDS})\*\* \(difference (?P<middle>{VALUE}), (?P<ends>{VALUE} to {VALUE})"
)
ERRS = re.compile(
    r"errs \*\*(?P<word>less|more|not significantly otherwise)\*\*(?: than [^:]+)?: "
    rf"(?P<middle>{VALUE}) \((?P<ends>{VALUE} to {VALUE})(?:; p = (?P<p>\S+) after Holm's adjustment)?"
)
VERDICT = re.compile(rf" \[({WORDS})\]")
SPREAD = re.compile(rf"{VALUE} ± {VALUE}")
ROUNDING = 1e-15
CHOSEN = {"score", "attacked"}  # settings that a column may have otherwise for each method


@dataclass(frozen=True)
class Series:
    """A row of a ``ledger.json``: a number of a method under each seed; its label in tables, where it has one."""

    label: str
    method: str
    audit: str
    name: str
    unit: str
    context: Mapping[str, Any]
    better: str
    values: Mapping[int, float]

    def forms(self) -> set[str]:
        """The mean as tables have it: with its interval, or with its spread and then turned or without its unit."""
        over = summarise(self.values)
        return {mean_cell(self.values, self.unit)} | {
            mean_and_spread(mean, over.spread, unit)
            for mean in (over.mean, 1 - over.mean)
            for unit in (self.unit, "ratio")
        }

    def against(self, other: "Series") -> Comparison:
        """Paired over seeds: fractions by their difference, all else by the factor."""
        as_factor = self.unit != "fraction"
        better: Better = "higher" if self.better == "higher" else "lower"
        return compare_seeds(self.values, other.values, better=better, log=as_factor)


Forms = Mapping[str, Sequence[Series]]


def misprints(text: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    r"""What a page prints and the rows of its ``ledger.json`` do not give.

    >>> values = {"plain": {"0": 0.1, "1": 0.12, "2": 0.11}, "foca": {"0": 0.04, "1": 0.05, "2": 0.045}}
    >>> kind = {"audit": "accuracy", "name": "error", "unit": "fraction", "context": {}, "better": "lower"}
    >>> rows = [{"method": method, "values": own, **kind} for method, own in values.items()]
    >>> page = "|  | error |\n| --- | --- |\n| plain | 11.0 % ± 1.0 % |\n| foca | 4.5 % ± 0.5 % [{}] |\n"
    >>> misprints(page.format("better"), rows)
    []
    >>> misprints(page.format("worse"), rows)
    ["'4.5 % ± 0.5 % [worse]' of foca is no verdict on its values"]
    """
    series = [_series(row) for row in rows if row["values"]]
    forms: dict[str, list[Series]] = {}
    for one in series:
        for form in one.forms():
            forms.setdefault(form, []).append(one)
    methods = {one.method for one in series}
    labels = {one.label for one in series} - {""}
    in_tables = [line for table in _tables(text) for line in _wrong_cells(table, forms, methods, labels)]
    spreads = [
        f"{one!r} is no mean and spread"
        for one in dict.fromkeys(SPREAD.findall(text))
        if one not in forms and not any(repr(one) in said for said in in_tables)
    ]
    return [*in_tables, *spreads, *_wrong_intervals(text, forms, series)]


def _series(row: Mapping[str, Any]) -> Series:
    names = ("method", "audit", "name", "unit", "context", "better")
    values = {int(seed): value for seed, value in row["values"].items()}
    return Series(row.get("label", ""), **{name: row[name] for name in names}, values=values)


def _tables(text: str) -> Iterator[list[list[str]]]:
    for table in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        title, _, *lines = (
            [cell.strip(" *") for cell in line.split("|")[1:-1]] for line in table.splitlines()
        )
        yield [title, *lines]


def _wrong_cells(table: list[list[str]], forms: Forms, methods: set[str], labels: set[str]) -> Iterator[str]:
    """Means with a spread that are no measurement's, and verdicts that are not those against the baseline's cells.

    The baseline is the method whose cells have no verdict. A column is of a method, or of one under a setting:
    "low-decay, he".
    """
    title, *lines = table
    if not any(_method(name, methods) for name in title[1:]):
        columns = [list(column) for column in zip(*table, strict=True)]
        title, *lines = columns
    for label, *line in lines:
        cells = {name: cell for name, cell in zip(title[1:], line, strict=True) if _method(name, methods)}
        baselines = {name for name, cell in cells.items() if not VERDICT.search(cell)}
        for name, cell in cells.items():
            method = _method(name, methods)
            settings = name.removeprefix(method).removeprefix(", ")
            shown = re.split(r" [\[]| \(paper|, (?=\S+×)", cell)[0]
            own = [
                one
                for one in forms.get(shown, ())
                if one.method == method
                and (not settings or settings in map(str, one.context.values()))
                and (label not in labels or one.label == label)
            ]
            if ("±" in cell or (label in labels and " to " in shown)) and not own:
                yield f"{shown!r} is no mean and spread of {name}"
            if (said := VERDICT.search(cell)) and said[1] not in {
                one.against(other).verdict
                for one in own
                for baseline in baselines
                for other in forms.get(cells[baseline].split(" (paper")[0], ())
                if other.method == baseline and _is_like(one, other)
            }:
                yield f"{cell!r} of {name} is no verdict on its values"


def _method(name: str, methods: set[str]) -> str:
    """The method that a column is of, or nothing."""
    return next((one for one in (name, name.split(", ")[0]) if one in methods), "")


def _is_like(one: Series, other: Series) -> bool:
    """Whether two methods may stand beside each other with these numbers."""
    differing = {key for key, _ in set(one.context.items()) ^ set(other.context.items())}
    return (one.audit, one.name) == (other.audit, other.name) and differing <= CHOSEN


Pairs = Mapping[tuple[str, str], Sequence[tuple[Series, Series]]]


def _wrong_intervals(text: str, forms: Forms, series: Sequence[Series]) -> list[str]:
    """Intervals that are not of a mean, a difference or a factor, and what sentences say of differences."""
    asked = [one for one in INTERVAL.finditer(text) if f"{one['middle']} ({one['ends']})" not in forms]
    pairs = _pairs(series, {one["middle"] for one in asked})
    problems = [
        f"{one[0]!r} is no mean, difference or factor with its interval"
        for one in asked
        if (one["middle"], one["ends"]) not in pairs
    ]
    for one in DIFFERENCE.finditer(text):
        found = pairs.get((one["middle"], one["ends"]), ())
        if one["verdict"] not in {own.against(other).verdict for own, other in found}:
            problems.append(f"{one[0]!r} has another verdict")
    for one in ERRS.finditer(text):
        found = pairs.get((one["middle"], one["ends"]), ())
        if (one["word"], one["p"]) not in {_errs(*pair, series, one["p"] is not None) for pair in found}:
            problems.append(f"{one[0]!r} has another verdict or p value")
    return problems


def _pairs(series: Sequence[Series], middles: set[str]) -> Pairs:
    """Pairs of numbers by middle and ends of their difference or factor as it is printed, of some middles alone."""
    found: dict[tuple[str, str], list[tuple[Series, Series]]] = {}
    for own, other in _alike(series):
        one = own.against(other) if middles.intersection(_middles(own, other)) else None
        if one is None or one.difference is None or one.low is None or one.high is None:
            continue
        ends = [_difference_forms(end, own.unit) for end in (one.difference, one.low, one.high)]
        for middle, low, high in zip(*ends, strict=True):
            found.setdefault((middle, f"{low} to {high}"), []).append((own, other))
    return found


def _alike(series: Sequence[Series]) -> Iterator[tuple[Series, Series]]:
    """Pairs of methods with the same number, and of a method's own and retrained heads."""
    groups: dict[tuple[Any, ...], list[Series]] = {}
    for one in series:
        context = tuple(sorted(one.context.items(), key=str))
        groups.setdefault((one.audit, one.name, one.unit, context), []).append(one)
        if one.name == "error" and (one.audit == "accuracy" or one.context.get("head") == "retrained"):
            groups.setdefault((one.method,), []).append(one)
    for group in groups.values():
        yield from permutations(group, 2)


def _middles(own: Series, other: Series) -> tuple[str, ...]:
    """The middle of a difference or factor in the forms that a page may have."""
    shared = [(value, other.values[seed]) for seed, value in own.values.items() if seed in other.values]
    pairs = [(a, b) for a, b in shared if math.isfinite(a) and math.isfinite(b)]
    if own.unit != "fraction":
        if min(map(min, pairs), default=0) <= 0:
            return ()
        pairs = [(math.log(a), math.log(b)) for a, b in pairs]
    return _difference_forms(fmean(a - b for a, b in pairs), own.unit) if pairs else ()


def _difference_forms(value: float, unit: str) -> tuple[str, ...]:
    """A difference as pages may have it, in percent or in points, or of logarithms as a factor.

    Where seeds are summed in another order a zero may have another sign.
    """
    if unit != "fraction":
        return (in_unit(math.exp(value), "factor"),)
    near = [value, value + ROUNDING, value - ROUNDING]
    return (*(in_unit(one, unit) for one in near), *(f"{100 * one:+.2f}" for one in near))


def _errs(own: Series, other: Series, series: Sequence[Series], adjusted: bool) -> tuple[str, str | None]:
    """The word for how often one method errs beside another, with the p value where Holm's adjustment was made."""
    one, p = own.against(other), None
    if adjusted:
        rivals = [s for s in series if s.method != own.method and _is_like(own, s)]
        tested = {rival.method: own.against(rival).p for rival in rivals}
        p = holm({name: value for name, value in tested.items() if value is not None}).get(other.method)
    significant = one.verdict != "inconclusive" if p is None else p < LEVEL
    word = "not significantly otherwise"
    if significant and one.difference is not None:
        word = "less" if one.difference < 0 else "more"
    return word, None if p is None else f"{p:.2g}"
