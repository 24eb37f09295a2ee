"""The types that measurements, runs and reports share: frozen dataclasses, without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Real
from typing import Any, Literal

Better = Literal["lower", "higher", "neither"]
Scalar = str | int | float | bool
ExhibitKind = Literal["curve", "histogram", "scatter", "heatmap", "images", "per_image", "table"]


# Largest `mean_offset` of trained means. In the search of papers/wan_2018 on a split of digits an offset of 0.50 went
# with an area of 0.63 under the ROC curve against FGSM, 0.16 to 0.22 with 0.90, 0.03 to 0.07 with 0.95.
FAR_MEANS = 0.1


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number that an audit found, with everything needed to read it.

    Args:
        audit: Name of the audit that measured it.
        name: What was measured, for example ``"error"``.
        value: The number.
        unit: ``"fraction"``, ``"ratio"``, ``"seconds"``, ``"count"``, ``"nats"`` ...
        n: The number of things that `value` was taken over (images, heads, class pairs; `context` says which).
        spread: Standard deviation over what `n` counts, or None.
        low: Lower end of a 95 % interval, or None; ``context["interval"]`` names its kind.
        high: Upper end of the same interval.
        better: Which direction is better.
        context: The settings that identify this number (never results).

    Raises:
        ValueError: If `value` or `n` is no number, or a value of `context` is neither text nor a number.

    >>> Measurement("accuracy", "error", 0.02, "fraction", n=500, better="lower").value
    0.02
    """

    audit: str
    name: str
    value: float
    unit: str
    n: int
    spread: float | None = None
    low: float | None = None
    high: float | None = None
    better: Better = "neither"
    context: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, one in (("value", self.value), ("n", self.n)):
            if not isinstance(one, Real):
                raise ValueError(  # noqa: TRY004 - bad input is a ValueError everywhere in this library
                    f"`{name}` of {self.audit}.{self.name} must be a number; got {type(one).__name__}. A tensor: "
                    "`.item()`."
                )
        for key, setting in self.context.items():
            if not isinstance(setting, str | Real):
                raise ValueError(  # noqa: TRY004
                    f"`context` of {self.audit}.{self.name} must hold text and numbers; got {key} of type "
                    f"{type(setting).__name__}. Leave it out, or write it as text."
                )


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A figure or table as columns of plain numbers; the report draws it.

    Args:
        audit: Name of the audit that made it.
        name: What it shows, unique within the audit and context.
        kind: How to draw it; ``"per_image"`` is not drawn: its column ``value`` holds a number (or None) for
            each image, in their order, whose mean (or ``context["statistic"]``) is the measurement of the same name,
            and ``context["images"]`` identifies the images; ``"table"`` is not drawn either: its columns are text and
            numbers to read, saved as CSV too.
        columns: Columns of equal length, by name.
        caption: One sentence: what is shown.
        context: The settings that identify it.

    >>> Exhibit("accuracy", "line", "curve", {"x": [0, 1], "y": [0.5, 0.2]}, "Error.").columns["y"]
    [0.5, 0.2]
    """

    audit: str
    name: str
    kind: ExhibitKind
    columns: Mapping[str, Sequence[Any]]
    caption: str
    context: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"`columns` must be equally long; got lengths {lengths}.")


class Outcome(StrEnum):
    """How a training run ended; each value is the beginning of the sentence shown to the user."""

    FINISHED = "finished"
    STOPPED = "stopped"
    DIVERGED = "diverged"
    COLLAPSED = "collapsed"


@dataclass(frozen=True, slots=True)
class Status:
    """How a training run ended, when, and why.

    >>> str(Status(Outcome.DIVERGED, step=12, reason="term cross_entropy is not finite"))
    'diverged at step 12: term cross_entropy is not finite'
    >>> Status(Outcome.FINISHED, step=40).good
    True
    """

    outcome: Outcome
    step: int
    reason: str = ""

    @property
    def good(self) -> bool:
        """Whether training finished as requested."""
        return self.outcome is Outcome.FINISHED

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.outcome} at step {self.step}{reason}"
