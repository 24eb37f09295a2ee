"""One derived number and everything that is needed to read it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from clearance.records.encoding import encode
from clearance.vocabulary import Better, Scalar

Kind = Literal["mean", "difference", "ratio", "rival"]


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One derived number and what it was derived from.

    Args:
        kind: ``"mean"`` over seeds; ``"difference"`` and ``"ratio"`` to the first method, paired over seeds;
            ``"rival"``: the difference of the method that looks best to each other one.
        dataset: Name of the dataset.
        method: The method that it is about.
        audit: Name of the audit.
        name: What was measured.
        context: The settings that identify the quantity.
        unit: Unit of `value`; a ratio's is ``"factor"``.
        better: Which direction is better.
        value: The number.
        spread: Standard deviation over seeds (of a mean).
        within: Root mean square, over seeds, of the spread that each measurement has over its own `n`.
        low: Lower end of the 95 % interval that `interval` names, or None; not below what is possible.
        high: Upper end of it; not above what is possible.
        interval: ``"t over seeds"``; with one seed, the kind that the measurement itself brought.
        seeds: How many seeds it was taken over.
        n: What each seed's value was taken over, where all seeds agree.
        against: The other method of a difference, ratio or rival.
        p: Two-sided p value of the paired t test.
        adjusted: The same after Holm's adjustment over all methods that were compared with the same one.
        verdict: Better, worse or not told apart, by the 95 % interval alone (unadjusted).
        dropped: Seeds that only one of the two has; they were not compared.
    """

    kind: Kind
    dataset: str
    method: str
    audit: str
    name: str
    context: Mapping[str, Scalar]
    unit: str
    better: Better
    value: float
    spread: float | None = None
    within: float | None = None
    low: float | None = None
    high: float | None = None
    interval: str | None = None
    seeds: int = 0
    n: int | None = None
    against: str | None = None
    p: float | None = None
    adjusted: float | None = None
    verdict: str | None = None
    dropped: int = 0

    def to_json(self) -> dict[str, Any]:
        """The row of ``report.json``, without the fields that say nothing."""
        row = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return encode({name: value for name, value in row.items() if value is not None})
