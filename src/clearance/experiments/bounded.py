"""Audits one after the other, the most useful first, within a budget; what is done is kept, nothing is half done."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from clearance.audits import Audit, Findings, Subject
from clearance.experiments.auditing import MODEL_AUDITS
from clearance.experiments.feature_cache import KeptSubject
from clearance.experiments.limits import Budget, Limits
from clearance.experiments.pace import Pace, try_pace
from clearance.experiments.workload import Sizes, Work, work_of
from clearance.models._running import evaluating

BUDGET, INTERRUPTED = "budget", "interrupted"
_ON_PIXELS = frozenset(
    {"minimal_perturbation", "robustness", "boundary_distance", "weight_scale"}
)  # need no features


@dataclass(frozen=True)
class LeftOut:
    """An audit that was asked for and not done.

    Args:
        audit: Its name.
        why: ``"budget"`` or ``"interrupted"``.
        seconds: What it was expected to take; None where nobody asked.
    """

    audit: str
    why: str
    seconds: float | None = None


@dataclass
class Done:
    """What was done, and what was not."""

    findings: list[Findings] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


def by_usefulness(audits: Sequence[Audit]) -> list[Audit]:
    """In the order of `MODEL_AUDITS`; what is not among them comes last, as it stands.

    >>> from clearance.audits import Accuracy, Calibration, LinearProbe
    >>> [audit.name for audit in by_usefulness([Calibration(), LinearProbe(), Accuracy()])]
    ['accuracy', 'linear_probe', 'calibration']
    """
    places = {name: place for place, name in enumerate(MODEL_AUDITS)}
    return sorted(audits, key=lambda audit: places.get(audit.name, len(places)))


def bounded_audits(
    subject: Subject,
    audits: Sequence[Audit],
    limits: Limits,
    on_audit: Callable[[str], object] | None = None,
) -> Done:
    """Every audit that fits, one after the other.

    Before each audit its time is estimated from what has been tried and seen so far; where that is more than what is
    left of the budget the audit is left out, and a later, cheaper one may still fit. An audit that has begun is
    finished, so that no number is half measured, and an estimate may be wrong.

    Args:
        subject: The classifier and its images.
        audits: In any order.
        limits: The budget, and whether an interruption keeps what is done.
        on_audit: Told the name of each audit before it starts.

    Raises:
        ValueError: If not one audit fits.
        KeyboardInterrupt: If somebody interrupts before the first audit is done, or nothing is to be kept.
    """
    queue = by_usefulness(audits)
    done = Done()
    clerk = None if limits.budget is None else _Clerk(subject, limits.budget)
    for number, audit in enumerate(queue):
        expected = None if clerk is None else clerk.refused(audit)
        if expected is not None:
            done.left_out.append(LeftOut(audit.name, BUDGET, float(f"{expected:.2g}")))
            continue
        if on_audit is not None:
            on_audit(audit.name)
        try:
            found = audit.examine(subject) if clerk is None else clerk.timed(audit)
        except KeyboardInterrupt:
            if not (limits.keep and done.findings):
                raise
            done.left_out += [LeftOut(each.name, INTERRUPTED) for each in queue[number:]]
            return done
        done.findings.append(found)
        done.audits.append(audit)
    if not done.findings and limits.budget is not None:
        raise ValueError(_nothing_fits(done, limits.budget))
    return done


def _nothing_fits(done: Done, budget: Budget) -> str:
    needed = min(each.seconds or 0.0 for each in done.left_out)
    return (
        f"`budget` must be enough for one audit; got {budget.seconds:.0f} s, of which {budget.spent:.0f} s went into "
        f"reading, and the cheapest audit would take about {needed:.2g} s. Give more, or fewer images."
    )


class _Clerk:
    """Estimates before each audit, and learns from each."""

    def __init__(self, subject: Subject, budget: Budget) -> None:
        self.subject, self.budget = subject, budget
        self.pace: Pace = try_pace(subject)
        with evaluating(subject.model):
            pixels, _ = subject.test.batch(torch.tensor([0]))
            width = subject.model.features(pixels.to(subject.test.labels.device)).shape[1]
        self.sizes = Sizes.of(subject, width)

    def refused(self, audit: Audit) -> float | None:
        """The seconds that an audit would take where these do not fit, else None."""
        expected = self.pace.seconds(self._work(audit))
        return None if self.budget.allows(expected) else expected

    def timed(self, audit: Audit) -> Findings:
        """Its findings; how long it took is noted."""
        work, began = self._work(audit), time.perf_counter()
        found = audit.examine(self.subject)
        self.pace.learn(work, time.perf_counter() - began)
        return found

    def _work(self, audit: Audit) -> Work:
        return work_of(audit, self.sizes) + (Work() if audit.name in _ON_PIXELS else self._features())

    def _features(self) -> Work:
        """Extracting what is not there yet, and not kept from before."""
        missing = 0
        for name in ("train", "test"):
            data = getattr(self.subject, name)
            there = f"{name}_features" in vars(self.subject)
            if not there and not (isinstance(self.subject, KeptSubject) and self.subject.keeps(data)):
                missing += len(data)
        return Work(passes=missing)
