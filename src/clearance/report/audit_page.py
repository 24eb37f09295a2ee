"""What a page says about one audit: the form that every file in :mod:`clearance.report.audits` fills in."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.records.record import ExhibitRecord
from clearance.report.findings import Findings
from clearance.report.numbers import POINTS, data, half_width, interval, rest, rest_interval
from clearance.report.pictures import Gallery, Picture
from clearance.report.tables import Compact


@dataclass(frozen=True, slots=True)
class Term:
    """One quantity: a title, what it is, how to read it, and what it does not mean.

    `difference` says that it is a difference of two fractions, which is printed in points and not in per cent.
    """

    title: str
    what: str
    reading: str
    not_meant: str
    difference: bool = False


CLOSE = 0.02  # two points: as near as a new last layer must come, and from where on a difference is a warning
FAR = 0.10  # ten points: from where on a difference is a problem
ALARM = 0.02  # share of images from which on a sign of hidden gradients is said


Severity = Literal["problem", "warning", "fine", "information"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""In the order of the first screen; the rules are in ``docs/severity.md``."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know about a model, and what to do about it.

    Args:
        title: What it is about, in a word or two.
        severity: By a rule of ``docs/severity.md``.
        said: One plain sentence, with its interval. A cause is named only where it was measured.
        todo: What to do; empty where there is nothing to do, as where it is fine.
        code: What can be pasted to do it: an option, a command or a line of Python.
        pictures: What shows it better than words.
        lead: Whether it stands below the headline, before all others, and is not counted.
        alone: Whether nothing else is worth doing before; the others then say only what was found.
    """

    title: str
    severity: Severity
    said: Markup
    todo: str | Markup = ""
    code: str = ""
    pictures: Sequence[Gallery] = ()
    lead: bool = False
    alone: bool = False


def points_with_ends(row: SummaryRow) -> Markup:
    """A difference in percentage points with its interval in brackets, where it has one."""
    return with_ends(replace(row, unit=POINTS))


def with_ends(row: SummaryRow) -> Markup:
    """A number with its interval in brackets, where it has one."""
    shown = data(row.value, row.unit, half_width(row.low, row.high))
    if row.low is None:
        return shown
    return shown + Markup(" ({})").format(interval(row.low, row.high, row.unit))


def rest_with_ends(row: SummaryRow) -> Markup:
    """One minus a share, with its interval in brackets, where it has one."""
    shown = rest(row.value, half_width(row.low, row.high))
    if row.low is None or row.high is None:
        return shown
    return Markup("{} ({})").format(shown, rest_interval(row.low, row.high))


@dataclass(frozen=True, slots=True)
class Row:
    """Pictures side by side.

    Args:
        shape: ``"features"`` for small ones, one per method; ``"two"`` for wide ones.
        title: Words above them.
        cite: What a reader of the paper may compare them with.
        folded: Whether they are shown only when asked for; `title` is then what is clicked on.
    """

    pictures: Sequence[Picture]
    shape: str = "two"
    title: str = ""
    cite: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page about one audit.

    Args:
        title: The heading, in plain words.
        text: Paragraphs below it.
        parts: Pictures, galleries and tables, in the page's order.
        cite: The figure or table of the paper that this is about, for who knows the paper.
    """

    title: str
    text: Sequence[str | Markup]
    parts: Sequence[Row | Compact | Gallery]
    cite: str = ""


def section(
    title: str,
    text: Sequence[str | Markup],
    parts: Iterable[Row | Compact | Gallery | None],
    cite: str = "",
) -> Section | None:
    """A section of the parts that are there; None without one. A row without pictures is not there."""
    shown = [one for one in parts if one is not None and not (isinstance(one, Row) and not one.pictures)]
    return Section(title, text, shown, cite) if shown else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """Everything that a page knows of one audit.

    Args:
        title: What the audit is called.
        reading: One sentence on how to read its numbers.
        place: Where its section and its sentence stand; smaller is earlier, equal ones in the order measured.
        glossary: For each quantity, by its name, how to read it.
        section: Makes the audit's part of the page; None where a report has nothing for it.
        over_seeds: Exhibits that are made afresh from those of the runs, by name.
        drawn: Names of the exhibits that have a place on the page, or need none; any other one is drawn at its end, by
            its kind.
        findings: Makes what the first screen of a page about one network says of the audit.
    """

    title: str
    reading: str = ""
    place: int = 1000
    glossary: Mapping[str, Term] = field(default_factory=dict)
    section: Callable[[Findings], Section | None] | None = None
    over_seeds: Mapping[str, Callable[[Findings], ExhibitRecord | None]] = field(default_factory=dict)
    drawn: Collection[str] = ()
    findings: Callable[[Findings], Sequence[Finding]] | None = None
