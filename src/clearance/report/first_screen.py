"""The sentences of the first screen: what was found and what to do, in words that need no knowledge of the field.

A sentence claims a difference only where the paired comparison over seeds carries it after Holm's adjustment
for the number of methods; otherwise it says that it is inconclusive, and how many seeds would settle it.
"""

import math
from collections import defaultdict
from dataclasses import dataclass

from markupsafe import Markup, escape

from clearance.records.derived import SummaryRow
from clearance.records.summary import LEVEL, MOST_SEEDS
from clearance.report.audits.co_adaptation import DEEPER
from clearance.report.findings import FEW, Findings, claimed
from clearance.report.names import head_name, listed, strong
from clearance.report.numbers import data
from clearance.report.sweep import at_value

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
        paragraph=Markup(" ").join(
            text for text in (at_value(findings.report), _paragraph(findings, few)) if text
        ),
        also=Markup(" ").join(
            [*_open(findings), *_rivals(findings), *_other_heads(findings), *_later_cut(findings)]
            if few
            else []
        ),
        failures=failures(findings),
        foot=escape((NOT_SAID if len(findings.methods) > 1 else NOT_SAID_ONCE) if few else ""),
    )


def _few_sentence(findings: Findings) -> Markup:
    """What to train with where a difference to the first method is significant; else both errors and the doubt.

    Of the methods that are ahead of the first one, the lowest is advised; the others are named with their numbers.
    Where only the first one is ahead, it is advised.
    """
    errors = {method: findings.few_error(method) for method in findings.methods}
    found = {method: row for method, row in errors.items() if row and math.isfinite(row.value)}
    if len(found) < 2 or findings.baseline not in found:
        return _start(findings) + _alone(findings, found)
    others = sorted((name for name in found if name != findings.baseline), key=lambda name: found[name].value)
    outcomes = {name: claimed(findings.compared(name)) for name in others}
    ahead = [name for name in others if outcomes[name] == "better"]
    behind = [name for name in others if outcomes[name] == "worse"]
    if not ahead and not behind:
        order = sorted((others[0], findings.baseline), key=lambda name: found[name].value)
        both = Markup("{} is wrong on {}, {} on {}").format(*_pairs(found, order))
        return _start(findings) + both + _doubt(findings.compared(others[0]))
    best, worse = (ahead[0], [findings.baseline]) if ahead else (findings.baseline, behind)
    text = _start(findings)
    if findings.head == "retrained":
        text = Markup("To retrain last layers on {}, ").format(findings.few)
    text += Markup("train with {} rather than {}: {} errors against {}").format(
        strong(best),
        listed([strong(name) for name in worse], "or"),
        data(found[best].value, "fraction"),
        listed([data(found[name].value, "fraction") for name in worse]),
    )
    if ahead:
        text += _if_cut_later(findings)
    if time := _time(findings, best):
        text += Markup(", in {} the training time").format(time)
    for name in ahead[1:]:
        text += Markup("; {}: {}").format(strong(name), data(found[name].value, "fraction"))
        if time := _time(findings, name):
            text += Markup(" in {}").format(time)
    return text + _own_cost(findings, best) + Markup(".")


def _start(findings: Findings) -> Markup:
    if findings.head != "retrained":
        return Markup("With {} from {} as last layers, ").format(head_name(str(findings.head)), findings.few)
    return Markup("Retrained on {}, ").format(findings.few)


def _if_cut_later(findings: Findings) -> Markup:
    """The first method's error behind a later cut, if it was measured: advice against it must not hide that."""
    row = _later_error(findings, findings.baseline)
    return (
        Markup("")
        if row is None
        else Markup(" ({} if cut one layer later)").format(data(row.value, "fraction"))
    )


def _time(findings: Findings, method: str) -> Markup | None:
    """The training time as a factor of the first method's, if it was measured to within a factor of two.

    Times that are not told apart are about the same.
    """
    row = findings.row("ratio", "training", "seconds", method=method, against=findings.baseline)
    if row is None or (row.low is not None and row.low < row.value / 2):
        return None
    if row.low is not None and row.high is not None and row.low <= 1 <= row.high:
        return Markup("about 1\N{MULTIPLICATION SIGN}")
    return data(row.value, "factor")


def _own_cost(findings: Findings, method: str) -> Markup:
    """What the advice costs in accuracy with the method's own last layers, where that is significant."""
    row = findings.row("difference", "accuracy", "error", method=method, split="test")
    own = findings.own_error(method), findings.own_error(findings.baseline)
    if claimed(row) != "worse" or own[0] is None or own[1] is None:
        return Markup("")
    return Markup("; but with its own last layers it is wrong on {}, {} on {}").format(
        data(own[0].value, "fraction"), strong(findings.baseline), data(own[1].value, "fraction")
    )


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
    return Markup("Of the test images, ") + listed(parts) + _apart(findings, [*found][1:])


def _apart(findings: Findings, others: list[str]) -> Markup:
    """Which of the others' errors differ from the first method's, as the end of a sentence; a full stop if untested."""
    rows = {
        name: findings.row("difference", "accuracy", "error", method=name, split="test") for name in others
    }
    outcomes = {name: claimed(row) for name, row in rows.items() if row is not None and row.seeds > 1}
    if not outcomes:
        return Markup(".")
    if apart := [strong(name) for name, outcome in outcomes.items() if outcome in ("better", "worse")]:
        verb = "differs" if len(apart) == 1 else "differ"
        return Markup(". {} {} significantly from {}.").format(listed(apart), verb, strong(findings.baseline))
    return Markup("; {} seeds do not separate {} from {}.").format(
        data(findings.seeds, "count"), "it" if len(others) == 1 else "any", strong(findings.baseline)
    )


def _pairs(found: dict[str, SummaryRow], order: list[str]) -> list[Markup]:
    return [part for method in order for part in (strong(method), data(found[method].value, "fraction"))]


def _doubt(row: SummaryRow | None) -> Markup:
    """A full stop where the difference is significant, else the caveat and what would settle it."""
    if claimed(row) != "inconclusive":
        return Markup(".")
    seeds = row.seeds if row else 0
    if row is None or seeds < 2:
        return Markup("; one seed is not enough to compare them.")
    text = Markup("; {} seeds do not separate them. ").format(data(seeds, "count"))
    if row.needed is None:
        much = data(MOST_SEEDS, "count")
        return text + Markup("More than {} would be needed: treat them as alike.").format(much)
    return text + Markup("About {} would, if the difference stays as it is.").format(
        data(row.needed, "count")
    )


def _open(findings: Findings) -> list[Markup]:
    """The methods that the sentence does not name: those that are not separated from the first, and those behind it."""
    outcomes = {name: claimed(row) for name in findings.methods[1:] if (row := findings.compared(name))}
    if "better" in outcomes.values() or "worse" not in outcomes.values():
        outcomes.pop(_advised(findings) or "", None)  # the sentence names it
        behind = [strong(name) for name, outcome in outcomes.items() if outcome == "worse"]
    else:
        behind = []
    tied = [strong(name) for name, outcome in outcomes.items() if outcome == "inconclusive"]
    first = strong(findings.baseline)
    found = [Markup("{} is ahead of {}.").format(first, listed(behind))] if behind else []
    if tied and findings.seeds > 1:
        found.append(Markup("The seeds do not separate {} from {}.").format(listed(tied, "or"), first))
    return found


def _rivals(findings: Findings) -> list[Markup]:
    """How the lowest method compares with the methods that the sentence did not name."""
    rows = [row for row in findings.rivals() if findings.baseline not in (row.method, row.against)]
    if not rows or findings.seeds < 2:
        return []
    best = strong(rows[0].method)
    so = "is also" if claimed(findings.compared(rows[0].method)) == "better" else "is"
    ahead = [strong(str(row.against)) for row in rows if claimed(row) == "better"]
    tied = [strong(str(row.against)) for row in rows if claimed(row) != "better"]
    if not tied:
        return [Markup("{} {} ahead of {}.").format(best, so, listed(ahead))]
    if not ahead:
        return [Markup("The seeds do not separate {} from {}.").format(best, listed(tied))]
    text = Markup("{} {} ahead of {}; the seeds do not separate {} from {}.")
    return [text.format(best, so, listed(ahead), best, listed(tied))]


def _other_heads(findings: Findings) -> list[Markup]:
    """Whether the sentence is also true for other stand-ins for the last layers."""
    method = _advised(findings)
    compared = findings.seeds > 1 and findings.few_error(findings.baseline) is not None
    if method is None or len(findings.heads) < 2 or not compared:
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
    method = _advised(findings)
    if method is None:
        return []
    errors = {name: _later_error(findings, name) for name in (findings.baseline, method)}
    found = {name: row for name, row in errors.items() if row}
    if findings.baseline not in found:
        return []
    start = Markup("Cut one layer later (the first of the last layers is kept), ")
    if method not in found:
        pair = _pairs(found, [findings.baseline])
        return [start + Markup("{} is wrong on {}; {} has no later cut.").format(*pair, strong(method))]
    order = sorted(found, key=lambda name: found[name].value)
    text = start + Markup("{} is wrong on {}, {} on {}").format(*_pairs(found, order))
    wanted = {"head": findings.head, "samples": findings.fewest}
    return [text + _doubt(findings.row("difference", DEEPER, "error", method=method, **wanted))]


def _later_error(findings: Findings, method: str) -> SummaryRow | None:
    """Test error from the fewest images where the first of the last layers is kept."""
    wanted = {"head": findings.head, "samples": findings.fewest}
    row = findings.row("mean", DEEPER, "error", method=method, **wanted)
    return row if row and math.isfinite(row.value) else None


def _advised(findings: Findings) -> str | None:
    """The lowest of the methods that are ahead of the first one, or else the lowest of all but the first."""
    means = {name: findings.few_error(name) for name in findings.methods[1:]}
    found = {name: row.value for name, row in means.items() if row and math.isfinite(row.value)}
    ahead = [name for name in found if claimed(findings.compared(name)) == "better"]
    return min(ahead or found, key=lambda name: found[name], default=None)


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
    return text + Markup("; the small numbers are 95 % intervals over the runs.") + _family(findings)


def _family(findings: Findings) -> Markup:
    """Which comparisons the sentence is drawn from, and when it claims one; empty with a single method."""
    count = len(findings.methods) - 1
    if count < 1 or findings.few_error(findings.baseline) is None:
        return Markup("")
    each = (
        Markup("Every other {} was").format(findings.thing)
        if count > 1
        else strong(findings.methods[1]) + " was"
    )
    adjusted = Markup(" after Holm's adjustment for the {} comparisons").format(data(count, "count"))
    return Markup(
        " {} compared with {}, seed by seed; a difference counts if a paired t test finds it at {}{}."
    ).format(each, strong(findings.baseline), data(LEVEL, "fraction"), adjusted if count > 1 else "")


def failures(findings: Findings) -> tuple[Markup, ...]:
    """What went wrong, one line per method: runs, rebuilt last layers, seeds that only one method has."""
    runs: dict[str, list[str]] = defaultdict(list)
    for note in findings.failures:
        runs[note.method].append(f"seed {note.seed} {note.status.rstrip('.')}")
    lines = [Markup("{}: {}.").format(strong(name), "; ".join(ends)) for name, ends in runs.items()]
    wanted = {"head": findings.head, "samples": findings.fewest}
    for row in findings.rows("mean", FEW, "diverged_heads", **wanted):
        if row.value > 0:
            text = Markup(
                "{}: of {} last layers retrained on {}, {} failed to train{}; they count as guessing."
            )
            counts = (data(row.n, "count"), findings.few, data(row.value, "count"))
            often = Markup(" on average over {} seeds").format(data(row.seeds, "count"))
            lines.append(text.format(strong(row.method), *counts, often if row.seeds > 1 else ""))
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
