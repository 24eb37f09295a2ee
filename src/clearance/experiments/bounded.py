"""Audits one after the other, the most useful first, until a deadline; what is done is kept, nothing is half done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from clearance.audits import Audit, Findings, Subject
from clearance.experiments.auditing import MODEL_AUDITS
from clearance.experiments.limits import Budget, Limits

BUDGET, INTERRUPTED = "budget", "interrupted"


@dataclass(frozen=True)
class LeftOut:
    """An audit that was asked for and not done.

    Args:
        audit: Its name.
        why: ``"budget"`` or ``"interrupted"``.
    """

    audit: str
    why: str


@dataclass
class Done:
    """What was done, and what was not."""

    findings: list[Findings] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


def by_usefulness(audits: Sequence[Audit]) -> list[Audit]:
    """In the order of `MODEL_AUDITS`; what is not among them comes last, as it stands.

    >>> from clearance.audits import Accuracy, Calibration, Refit
    >>> [audit.name for audit in by_usefulness([Calibration(), Refit(), Accuracy()])]
    ['accuracy', 'refit', 'calibration']
    """
    places = {name: place for place, name in enumerate(MODEL_AUDITS)}
    return sorted(audits, key=lambda audit: places.get(audit.name, len(places)))


def bounded_audits(
    subject: Subject,
    audits: Sequence[Audit],
    limits: Limits,
    on_audit: Callable[[str], object] | None = None,
) -> Done:
    """The audits, one after the other; none starts once the budget is spent, and one that has begun is finished.

    Args:
        subject: The classifier and its images.
        audits: In any order.
        limits: The budget, and whether an interruption keeps what is done.
        on_audit: Called with the name of each audit before it starts.

    Raises:
        ValueError: If the budget is spent before the first audit.
        KeyboardInterrupt: If somebody interrupts before the first audit is done, or nothing is to be kept.
    """
    queue = by_usefulness(audits)
    done = Done()
    for number, audit in enumerate(queue):
        if limits.budget is not None and limits.budget.is_spent:
            done.left_out += _left(queue[number:], BUDGET)
            break
        if on_audit is not None:
            on_audit(audit.name)
        try:
            found = audit.examine(subject)
        except KeyboardInterrupt:
            if not (limits.keep and done.findings):
                raise
            done.left_out += _left(queue[number:], INTERRUPTED)
            break
        done.findings.append(found)
        done.audits.append(audit)
    if not done.findings and limits.budget is not None:
        raise ValueError(_nothing_done(limits.budget))
    return done


def _left(audits: Sequence[Audit], why: str) -> list[LeftOut]:
    return [LeftOut(audit.name, why) for audit in audits]


def _nothing_done(budget: Budget) -> str:
    return (
        f"`budget` must leave time for one audit; got {budget.seconds:g} s, and reading model and images took "
        f"{budget.spent:.1f} s. Give more."
    )
