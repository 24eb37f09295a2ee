"""What a paper claims, as data: one claim for every number or ordering that can be checked, with its readings.

They are written down in a ``claims.toml`` of this form::

    paper = "sato_2019"          reference = "..."          method = "foca"     rivals = ["plain", "dropout"]

    [scaled]                     what is smaller than in the paper, by dataset; "svm on mnist" is for one study alone
    digits = "8x8 digits in place of photographs"

    [seeds]                      seeds (or draws) of every study, fixed before it is run; no more are judged
    noise = 5                    the paper's recipe is called "recipe"; "noise on mnist" is for one dataset alone

    [[claim]]
    id = "A3"                    a name of our own, one for each claim
    kind = "order"               "order", "ratio", "value" or "qualitative" (judged by an order instead)
    words = "Fewest errors of all methods up to 1,000 images."
    value = "an ordering"        what the paper prints
    where = "Fig. 2"             table or figure
    datasets = ["cifar10"]       what it is about
    also = ["digits"]            other datasets on which its ordering is looked at: there the claim is not comparable
    note = ""
    study = "noise"              which study measures it, if the recipe does not
    source = "[S] slides"        where the number or ordering is known from, if not from the paper itself
    recalled = false             true: only known from memory; shown as such, never judged, not called the paper's
    expected = false             true: the paper expects it and shows nothing; labelled so and not counted
    not_judged = {digits = "why"}  datasets on which the numbers are shown and nothing is judged
    includes = ["A1"]            claims that it contains: where one of them is refuted, so is this one
      [[claim.reading]]          see `ClaimReading`
      is = "lower"
      audit = "co_adaptation"
      measure = "error"
      context = {head = "retrained", samples = {at_most = 1000}}

A value of a ``context`` is a plain value, a list (each of them, a comparison for each), or a table with one of
``rank`` (0 the smallest number in the records, -1 the largest), ``at_most`` (every number up to it) and
``by_dataset`` (a plain value for each dataset).
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

from clearance.research import check_choice, check_positive

Kind = Literal["order", "ratio", "value", "qualitative"]
Role = Literal["verdict", "control", "beside"]
KINDS = ("order", "ratio", "value", "qualitative")
ROLES = ("verdict", "control", "beside")
RECALLED = "recalled, not checked"
SELECTORS = frozenset({"rank", "at_most", "by_dataset"})


@dataclass(frozen=True)
class ClaimReading:
    """One measurement that a claim is judged on, or that is shown next to the judgement.

    Args:
        direction: ``is`` in the file: ``"lower"`` or ``"higher"`` than what it is compared with; ``"about"`` for
            a `value` that must be missed by no more than `within` on either side.
        audit: Name of the audit.
        measure: Name of the measurement.
        context: Settings that pick it out; see the form above.
        methods: Whose measurement; the paper's own method where empty.
        against: Names of the rivals, each with changes to `context` for its side; every rival of the paper
            where empty.
        itself: Changes to audit, measure and context under which each method is compared with itself, in place
            of rivals.
        factor: How many times lower or higher it must be.
        log: Compare logarithms, that is, ratios; always where `factor` is not 1.
        value: A number that it is compared with instead of rivals.
        within: The part of `value` by which it may be missed, above 0 where the direction is ``"about"``.
        role: ``"verdict"``: the claim is judged on it. ``"control"``: the same ordering in another measure,
            which a claim that holds should survive. ``"beside"``: only shown.
        label: Its name among the readings of the claim.
        floor: Comparisons with less than this on the second side (its mean) are left out, in the unit of the
            measurement: nothing is left there to be compared. None leaves out nothing.
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
    floor: float | None = None

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

    @property
    def is_ordering(self) -> bool:
        """Whether it asks which of two is lower alone, without a number or a factor."""
        return self.value is None and self.factor == 1


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    Args:
        id: A short name, such as "A3"; no two claims of a paper have the same.
        kind: How it is judged.
        words: The claim in a sentence.
        value: What the paper prints.
        where: Its table or figure.
        datasets: What it is about.
        readings: What it is judged on; none where nothing of it can be measured by a comparison.
        also: Other datasets on which its ordering is looked at; there the claim itself is not comparable.
        note: What must be known to read the verdict.
        command: What to run where the claim is about no dataset of a comparison; ``"-"`` where nothing here runs it.
        study: Name of the study that measures it, if the paper's recipe does not.
        source: Where the claim is known from, if not from the paper itself.
        recalled: Whether it is only known from memory, so that it is shown as "recalled, not checked", gets no
            verdict and is not called the paper's.
        expected: Whether the paper only expects it, so that it is labelled so and not counted.
        not_judged: Why nothing is judged on a dataset, by its name; the numbers are shown.
        includes: Claims that it contains: where one of them is refuted, so is this one.
    """

    id: str
    kind: Kind
    words: str
    value: str
    where: str
    datasets: Sequence[str]
    readings: Sequence[ClaimReading] = ()
    also: Sequence[str] = ()
    note: str = ""
    command: str = ""
    study: str = ""
    source: str = ""
    recalled: bool = False
    expected: bool = False
    not_judged: Mapping[str, str] = field(default_factory=dict)
    includes: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        if self.recalled:
            self._check_recalled()
            return
        judged = [reading for reading in self.readings if reading.role == "verdict"]
        if self.kind == "ratio" and any(reading.factor == 1 for reading in judged):
            raise ValueError(f"claim {self.id}: a reading of a ratio must have a `factor`; give one.")
        if self.kind == "value" and all(reading.value is None for reading in judged):
            raise ValueError(
                f"claim {self.id}: a claim of kind value needs a `value` to compare with; give one."
            )

    @property
    def quoted(self) -> str:
        """What a table says that the paper prints, and where it is known from.

        >>> Claim("1", "order", "", "96 %", "Fig. 1", (), source="[S] slides").quoted
        '96 % (Fig. 1; [S] slides)'
        """
        if self.recalled:
            return f"{RECALLED}: {self.value}"
        return f"{self.value} ({'; '.join(part for part in (self.where, self.source) if part)})"

    def _check_recalled(self) -> None:
        if any(reading.value is not None for reading in self.readings):
            raise ValueError(
                f"claim {self.id}: a recalled number must not be compared with; drop the `value` of its readings."
            )


@dataclass(frozen=True)
class PaperClaims:
    """All claims of a paper.

    Args:
        paper: Its name here, for example ``"sato_2019"``.
        reference: Authors, title, place and year.
        method: The method that it proposes.
        rivals: What it is compared with.
        claims: Every claim, in the order of the sheet.
        scaled: What differs from the paper's experiment, by dataset, or ``"STUDY on DATASET"`` for one study.
        seeds: How many seeds each study has, fixed before it is run; ``"recipe"`` is the paper's recipe, and
            ``"STUDY on DATASET"`` is for one dataset.
    """

    paper: str
    reference: str
    method: str
    rivals: Sequence[str]
    claims: Sequence[Claim]
    scaled: Mapping[str, str] = field(default_factory=dict)
    seeds: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [claim.id for claim in self.claims]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"`claim` must have each id once; got {', '.join(twice)} more than once.")
        known = {self.method, *self.rivals}
        for claim in self.claims:
            for name in {name for reading in claim.readings for name in (*reading.methods, *reading.against)}:
                check_choice(f"a method of claim {claim.id}", name, known)
            for name in claim.includes:
                check_choice(f"a claim that {claim.id} includes", name, names)

    def scaled_in(self, study: str, dataset: str) -> str:
        """What differs from the experiment of the paper in a study, or in the recipe (``""``); empty if nothing."""
        return self.scaled.get(f"{study} on {dataset}", self.scaled.get(dataset, ""))

    def seeds_of(self, study: str, dataset: str) -> int | None:
        """How many seeds of a study, or of the recipe (``""``), are judged; None is all."""
        name = study or "recipe"
        return self.seeds.get(f"{name} on {dataset}", self.seeds.get(name))


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
    readings = [_filled(ClaimReading, reading, source) for reading in row.get("reading", [])]
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
