"""What became of a paper's claim: a judgement, the readings that it rests on, and the comparisons under those."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from clearance.records.claims import Claim, Reading
from clearance.records.encoding import encode
from clearance.records.readings import Series
from clearance.records.summary import Comparison, summarise

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
