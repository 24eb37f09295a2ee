"""The sentences of the first screen: what was found, in words that need no knowledge of the field.

A sentence claims a difference only where the paired comparison over seeds carries it after Holm's adjustment
for the number of methods; otherwise it says that it is inconclusive.
"""

import math
from collections import defaultdict
from dataclasses import dataclass

from markupsafe import Markup, escape

from clearance.records.derived import SummaryRow
from clearance.report.audits.co_adaptation import DEEPER
from clearance.report.findings import FEW, Findings, claimed
from clearance.report.names import head_name, listed, strong
from clearance.report.numbers import data

WHAT_WE_DID = (
    "We froze each trained network, discarded its last layers and trained new ones on a few images. "
    "Lower is better."
)
WHAT_WE_DID_ONCE = WHAT_WE_DID.replace("each trained network", "the trained network")
NOT_SAID_ONCE = (
    "This does not show how good the network is in use (there it keeps its own last layers), or whether it can "
    "learn classes it has never seen."
)
NOT_SAID = (
    "This does not show that a network is better in use (there it keeps its own last layers; see the table), or "
    "that it can learn classes it has never seen."
)
NOTHING = Markup("Nothing was measured.")


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """The words of the first screen: the sentence, what was done, how far it goes, what it does not say."""

    sentence: Markup
    paragraph: Markup
    also: Markup
    failures: tuple[Markup, ...]
    foot: Markup


def first_screen(findings: Findings) -> FirstScreen:
    """What a report says about one dataset, in plain words.

    >>> from clearance.records import Report
    >>> str(first_screen(Findings(Report({}, {}, "", ""), "digits")).sentence)
    'Nothing was measured.'
    """
    few = findings.head is not None and findings.fewest is not None
    return FirstScreen(
        sentence=_few_sentence(findings) if few else _own_sentence(findings),
        paragraph=_paragraph(findings, few),
        also=Markup(" ").join(
            [*_rivals(findings), *_other_heads(findings), *_later_cut(findings)] if few else []
        ),
        failures=_failures(findings),
        foot=escape((NOT_SAID if len(findings.methods) > 1 else NOT_SAID_ONCE) if few else ""),
    )


def _few_sentence(findings: Findings) -> Markup:
    """Says "Retrained on one image per digit, A is wrong on x, B on y." with the lower number first."""
    start = Markup("Retrained on {}, ").format(findings.few)
    if findings.head != "retrained":
        start = Markup("With {} from {} as last layers, ").format(head_name(str(findings.head)), findings.few)
    errors = {method: findings.few_error(method) for method in findings.methods}
    found = {method: row for method, row in errors.items() if row and math.isfinite(row.value)}
    if len(found) < 2 or findings.baseline not in found:
        return start + _alone(findings, found)
    baseline = findings.baseline
    best = min((method for method in found if method != baseline), key=lambda method: found[method].value)
    order = sorted((best, baseline), key=lambda method: found[method].value)
    both = Markup("{} is wrong on {}, {} on {}").format(*_pairs(found, order))
    return start + both + _doubt(findings.compared(best))


def _alone(findings: Findings, found: dict[str, SummaryRow]) -> Markup:
    """The end of the sentence where a network can only be compared with itself."""
    if not found:
        return Markup("no network has a number.")
    method = min(found, key=lambda name: found[name].value)
    name = strong(method) if len(findings.methods) > 1 else Markup("this network")
    text = Markup("{} is wrong on {}").format(name, data(found[method].value, "fraction"))
    own = findings.own_error(method)
    if own is None:
        return text + Markup(".")
    return text + Markup("; with its own last layers, on {}.").format(data(own.value, "fraction"))


def _own_sentence(findings: Findings) -> Markup:
    errors = {method: findings.own_error(method) for method in findings.methods}
    found = {method: row for method, row in errors.items() if row and math.isfinite(row.value)}
    if not found:
        report = findings.report
        some = findings.dataset in {row.dataset for row in report.records} | {
            shown.dataset for shown in report.exhibits
        }
        return Markup("The error on test images was not measured.") if some else NOTHING
    parts = [
        Markup("{} is wrong on {}").format(strong(method), data(row.value, "fraction"))
        for method, row in found.items()
    ]
    return Markup("Of the test images, ") + listed(parts) + Markup(".")


def _pairs(found: dict[str, SummaryRow], order: list[str]) -> list[Markup]:
    return [part for method in order for part in (strong(method), data(found[method].value, "fraction"))]


def _doubt(row: SummaryRow | None) -> Markup:
    """A full stop where the difference is significant, else the caveat."""
    if claimed(row) != "inconclusive":
        return Markup(".")
    seeds = row.seeds if row else 0
    if seeds < 2:
        return Markup("; one seed is not enough to compare them.")
    return Markup("; {} seeds do not separate them.").format(data(seeds, "count"))


def _rivals(findings: Findings) -> list[Markup]:
    """How the lowest method compares with the methods that the sentence did not name."""
    rows = [row for row in findings.rivals() if findings.baseline not in (row.method, row.against)]
    if not rows:
        return []
    best = strong(rows[0].method)
    so = "is also" if claimed(findings.compared(rows[0].method)) == "better" else "is"
    ahead = [strong(str(row.against)) for row in rows if claimed(row) == "better"]
    tied = [strong(str(row.against)) for row in rows if claimed(row) != "better"]
    if not tied:
        return [Markup("{} {} ahead of {}.").format(best, so, listed(ahead))]
    open_ = Markup("the seeds do not separate {} from {}.").format(best, listed(tied))
    if not ahead:
        return [Markup("But ") + open_]
    return [Markup("{} {} ahead of {}; ").format(best, so, listed(ahead)) + open_]


def _other_heads(findings: Findings) -> list[Markup]:
    """Whether the sentence is also true for other stand-ins for the last layers."""
    method = _lowest(findings)
    if method is None or len(findings.heads) < 2 or findings.few_error(findings.baseline) is None:
        return []
    groups: dict[str, list[str]] = defaultdict(list)
    for head in findings.heads:
        if head != findings.head:
            groups[claimed(findings.compared(method, head))].append(head_name(head))
    first = claimed(findings.compared(method))
    names = (strong(method), strong(findings.baseline))
    return [
        _holds(outcome, outcome == first, names, listed(groups[outcome], "or"))
        for outcome in ("better", "worse", "inconclusive")
        if groups[outcome]
    ]


def _later_cut(findings: Findings) -> list[Markup]:
    """What becomes of the sentence where the first of the last layers is kept, too."""
    method = _lowest(findings)
    if method is None:
        return []
    wanted = {"head": findings.head, "samples": findings.fewest}
    both = (findings.baseline, method)
    errors = {name: findings.row("mean", DEEPER, "error", method=name, **wanted) for name in both}
    found = {name: row for name, row in errors.items() if row and math.isfinite(row.value)}
    if len(found) < 2:
        return []
    text = Markup(
        "Cut one layer later (the first of the last layers is kept), {} is wrong on {}, {} on {}"
    ).format(*_pairs(found, sorted(found, key=lambda name: found[name].value)))
    return [text + _doubt(findings.row("difference", DEEPER, "error", method=method, **wanted))]


def _lowest(findings: Findings) -> str | None:
    """The method with the lowest error from the fewest images, without the baseline."""
    means = [(findings.few_error(method), method) for method in findings.methods[1:]]
    return min(
        ((row.value, name) for row, name in means if row and math.isfinite(row.value)), default=(0, None)
    )[1]


def _holds(outcome: str, same: bool, names: tuple[Markup, Markup], heads: Markup) -> Markup:
    """One sentence about the stand-ins for the last layers that agree on an outcome."""
    if outcome == "inconclusive":
        end = Markup("the seeds do not separate {} from {}{}.").format(*names, " either" if same else "")
    else:
        ahead, behind = names if outcome == "better" else names[::-1]
        end = Markup("{} {} ahead of {}.").format(ahead, "stays" if same else "is", behind)
    return Markup("With {} as last layers, ").format(heads) + end


def _paragraph(findings: Findings, few: bool) -> Markup:
    """What was done and on how much."""
    several = len(findings.methods) > 1
    did = escape(WHAT_WE_DID if several else WHAT_WE_DID_ONCE) if few else Markup("Lower is better.")
    if findings.images is None or not findings.seeds:
        return did
    text = did + Markup(" Measured on {} test images").format(data(findings.images, "count"))
    if findings.seeds == 1:
        once = Markup(", with a single training run (one seed) per method.")
        return text + (once if several and findings.thing == "method" else Markup("."))
    seeds = data(findings.seeds, "count")
    text += Markup(", with {} training runs (seeds) {}").format(seeds, "per method" if several else "of it")
    return text + Markup("; the small numbers are 95 % intervals over the runs.")


def _failures(findings: Findings) -> tuple[Markup, ...]:
    """What went wrong, one line per method: runs, rebuilt last layers, seeds that only one method has."""
    runs: dict[str, list[str]] = defaultdict(list)
    for note in findings.failures:
        runs[note.method].append(f"seed {note.seed} {note.status}")
    lines = [Markup("{}: {}.").format(strong(name), "; ".join(ends)) for name, ends in runs.items()]
    wanted = {"head": findings.head, "samples": findings.fewest}
    for row in findings.rows("mean", FEW, "diverged_heads", **wanted):
        if row.value > 0:
            text = Markup(
                "{}: of {} last layers retrained on {}, {} failed to train; they count as guessing."
            )
            counts = (data(row.n, "count"), findings.few, data(row.value, "count"))
            lines.append(text.format(strong(row.method), *counts))
    for row in findings.rows("difference", FEW, "error", **wanted):
        if row.dropped:
            names = (strong(row.method), strong(str(row.against)))
            shared = (
                Markup("the one seed")
                if row.seeds == 1
                else Markup("the {} seeds").format(data(row.seeds, "count"))
            )
            lines.append(Markup("{} and {} are compared over {} that both have.").format(*names, shared))
    return tuple(lines)


def plain_text(markup: Markup) -> str:
    """A sentence without its markup, for a terminal.

    >>> plain_text(Markup("<b>FOCA</b> &amp; co"))
    'FOCA & co'
    """
    return markup.striptags()
