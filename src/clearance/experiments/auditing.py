"""Audits on one classifier, one after the other, until a deadline; finished audits are kept, failed ones named."""

import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from clearance._checks import check_positive
from clearance.audits import Audit, Findings, Subject
from clearance.experiments.audit_progress import AuditProgress
from clearance.models.black_box import lacks
from clearance.records.encoding import encode
from clearance.records.record import BUDGET, FAILED, IMPOSSIBLE, INTERRUPTED, LeftOut

_UNITS = {"h": 3600, "m": 60, "s": 1}


@dataclass
class Budget:
    """A time limit that starts now.

    Args:
        seconds: Above 0.
        clock: Returns the time in seconds.

    >>> times = iter([0.0, 20.0, 60.0])
    >>> budget = Budget(60.0, clock=lambda: next(times))
    >>> budget.is_spent, budget.is_spent
    (False, True)
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        check_positive("budget", self.seconds)
        self.began = self.clock()

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.began

    @property
    def is_spent(self) -> bool:
        """Whether no more audits may start."""
        return self.spent >= self.seconds


def seconds_of(text: str | float) -> float:
    """Seconds from a text such as ``"90s"``, ``"5m"``, ``"2h"``, ``"1h30m"``; a number is in seconds.

    Raises:
        ValueError: If it is not a time, or not above 0.

    >>> seconds_of("90s"), seconds_of("1h30m"), seconds_of(2.5)
    (90.0, 5400.0, 2.5)
    """
    if isinstance(text, str):
        parts = re.findall(r"(\d+(?:\.\d+)?)([hms])", text.strip().lower())
        if not parts or "".join(map("".join, parts)) != text.strip().lower():
            raise ValueError(f"`budget` must be a time such as 90s, 5m, 2h or 1h30m; got {text!r}.")
        text = sum(float(number) * _UNITS[unit] for number, unit in parts)
    check_positive("budget", text)
    return float(text)


@dataclass
class Done:
    """The audits that were run, those left out, what failed ones raised, and how long each took."""

    findings: list[Findings] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def _run(audit: Audit, subject: Subject, done: Done) -> None:
    lacking = [need for need in audit.needs if need in lacks(subject.model)]
    if lacking:
        done.left_out.append(LeftOut(audit.name, IMPOSSIBLE, " and ".join(lacking)))
        return
    try:
        with torch.inference_mode(False):  # tensors of a caller's inference mode have no gradients
            found = audit.examine(subject)
        _check_findings(audit, found)
    except Exception as error:  # noqa: BLE001 - the model and the audit may be anybody's
        done.errors.append(error)
        done.left_out.append(LeftOut(audit.name, FAILED, reason_of(error)))
        return
    done.findings.append(found)
    done.audits.append(audit)


def _check_findings(audit: Audit, found: Any) -> None:
    """Raise ValueError unless an audit returned what a report can keep: the audit may be anybody's."""
    if not isinstance(found, Findings):
        raise ValueError(  # noqa: TRY004 - bad input is a ValueError everywhere in this library
            f"`examine` of {audit.name} must return Findings; got {type(found).__name__}."
        )
    names = [(one.name, tuple(sorted(one.context.items(), key=str))) for one in found.measurements]
    if twice := next((name for (name, _), count in Counter(names).items() if count > 1), None):
        raise ValueError(
            f"`examine` of {audit.name} must return each measurement once; got {twice!r} twice with one context. Give "
            "them contexts that differ."
        )
    for exhibit in found.exhibits:
        if exhibit.kind != "images":
            encode(exhibit.columns)


def _check_any(done: Done) -> None:
    if done.left_out and all(left.why == IMPOSSIBLE for left in done.left_out) and not done.findings:
        raise ValueError(
            f"none of the audits can be asked of a black box: {', '.join(left.audit for left in done.left_out)}. Leave "
            "`audits` out, or give a model that clearance.wrap cuts."
        )
    if done.findings or not done.errors:
        return
    first = done.errors[0]
    if isinstance(first, ValueError | TypeError | OSError):
        raise first
    failed = next(left for left in done.left_out if left.why == FAILED)
    raise ValueError(f"no audit has a result; {failed.audit} failed with {failed.reason}") from first


_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^\s/'\":,;]+/)+")


def reason_of(error: BaseException) -> str:
    r"""An error and its place in one line, without folders of this machine.

    >>> reason_of(ValueError("there is no file /home/ann/nets/best.pt"))
    'ValueError: there is no file best.pt'
    """
    lines = str(error).strip().splitlines()
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    said = f": {_FOLDERS.sub('', lines[0])}" if lines else ""
    return f"{type(error).__name__}{said}{place}"


def bounded_audits(
    subject: Subject,
    audits: Sequence[Audit],
    budget: Budget | None = None,
    progress: AuditProgress | None = None,
    *,
    keep: bool = False,
    on_audit: Callable[[str], object] | None = None,
) -> Done:
    """Run audits in the given order; none starts once the budget is spent, and the one in progress is finished.

    An audit that raises is named, and the others go on. A budget of None is no limit; `keep` tells whether an
    interruption keeps finished audits; `on_audit` is called with the name of each before it starts.

    Raises:
        ValueError: If the budget is spent before the first audit, or no audit has a result; a TypeError or OSError if
            that is what the first raised.
        KeyboardInterrupt: On an interruption before the first audit is finished, or if `keep` is False.
    """
    done = Done()
    progress = AuditProgress() if progress is None else progress
    subject.on_progress = progress.update
    for number, audit in enumerate(audits):
        if budget is not None and budget.is_spent:
            done.left_out += _left(audits[number:], BUDGET)
            break
        progress.begin(audit.name, number + 1, len(audits))
        if on_audit is not None:
            on_audit(audit.name)
        began = time.monotonic()
        try:
            _run(audit, subject, done)
            done.seconds[audit.name] = time.monotonic() - began
        except KeyboardInterrupt:
            if not (keep and done.findings):
                raise
            done.left_out += _left(audits[number:], INTERRUPTED)
            break
    _check_any(done)
    if not done.findings and budget is not None:
        raise ValueError(
            f"`budget` must leave time for one audit; got {budget.seconds:g} s, and reading model and images took "
            f"{budget.spent:.1f} s. Give a larger budget."
        )
    return done


def _left(audits: Sequence[Audit], why: str) -> list[LeftOut]:
    return [LeftOut(audit.name, why) for audit in audits]
