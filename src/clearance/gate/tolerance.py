"""What may change, in which direction and by how much, as one reads it: "accuracy drops 1pt"."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from clearance._checks import check_choice

Direction = Literal["drops", "rises", "changes"]
DIRECTIONS: tuple[Direction, ...] = ("drops", "rises", "changes")
FORM = '"QUANTITY drops|rises|changes AMOUNT", for example "accuracy drops 1pt" or "flip_distance drops 10%"'
_SENTENCE = re.compile(
    r"\s*(?P<what>[\w.]+(?:\[[^\]]*\])?)\s+(?P<how>\w+)(?:\s+(?:by\s+)?(?P<much>[\d.eE+-]+)\s*(?P<unit>pt|%)?)?\s*"
)
_ROUNDING = 1e-12  # a change of just the amount is tolerated
_POINT = 0.01
_BETWEEN = re.compile(r",(?=\s*\w+\s*=)")


@dataclass(frozen=True)
class Quantity:
    """One number of a report.

    Args:
        audit: Name of the audit.
        name: Name of the measurement.
        context: Settings that identify it among others of that name; those that are not given may be any.
        mirrored: Whether one minus the number is meant (accuracy, of an error).
    """

    audit: str
    name: str
    context: Mapping[str, str] = field(default_factory=dict)
    mirrored: bool = False

    def fits(self, audit: str, name: str, context: Mapping[str, object]) -> bool:
        """Whether a measurement or an exhibit is of this quantity.

        >>> QUANTITIES["accuracy"].fits("accuracy", "error", {"split": "test", "interval": "wilson 95 %"})
        True
        """
        return (audit, name) == (self.audit, self.name) and all(
            str(context.get(key)) == value for key, value in self.context.items()
        )


QUANTITIES = {
    "accuracy": Quantity("accuracy", "error", {"split": "test"}, mirrored=True),
    "error": Quantity("accuracy", "error", {"split": "test"}),
    "flip_distance": Quantity("minimal_perturbation", "median_flip", {"norm": "inf"}),
    "overconfidence": Quantity("calibration", "overconfidence", {"temperature": "as trained"}),
}
"""Quantities with a short name; any other is AUDIT.NAME, with [key=value,...] where several have it."""


OF_GROUPS = {"class": "recall", "slice": "accuracy"}
"""What the accuracy of a class or of a slice is called in the audit `performance`."""


@dataclass(frozen=True)
class Tolerance:
    """How much a quantity may change before that counts.

    Args:
        quantity: The quantity to compare.
        direction: ``"drops"``, ``"rises"``, or ``"changes"`` for either.
        amount: What is tolerated, in the quantity's unit, or as a share of the older number.
        relative: Whether it is such a share.
        text: The sentence.
        in_points: Whether it is in points of a percentage, which only fractions have.
    """

    quantity: Quantity
    direction: Direction
    amount: float
    relative: bool
    text: str = ""
    in_points: bool = False

    @classmethod
    def parse(cls, text: str) -> "Tolerance":
        """The tolerance that a sentence says.

        The amount is in points of a percentage (``1pt`` of a fraction is 0.01), per cent of the older number
        (``10%``), or the quantity's own unit (``0.5``); without one, any change counts that the interval shows.

        Raises:
            ValueError: If it is not a tolerance, or names an unknown direction or quantity.

        >>> kept = Tolerance.parse("co_adaptation.error[head=linear,samples=10] rises 2pt")
        >>> kept.quantity.context, kept.amount
        ({'head': 'linear', 'samples': '10'}, 0.02)
        >>> of_cats = Tolerance.parse("accuracy[class=cat] drops 2pt").quantity
        >>> of_cats.audit, of_cats.name, of_cats.context
        ('performance', 'recall', {'split': 'test', 'class': 'cat'})
        """
        found = _SENTENCE.fullmatch(text)
        if found is None:
            raise ValueError(f"a tolerance must read {FORM}; got {text!r}.")
        check_choice("direction", found["how"], DIRECTIONS)
        direction: Direction = found["how"]  # type: ignore[assignment]  # one of DIRECTIONS
        amount = _amount(found["much"] or "0", text) * {"pt": _POINT, "%": 0.01}.get(found["unit"] or "", 1.0)
        if found["unit"] == "%" and direction == "drops" and amount >= 1:
            raise ValueError(
                f"a drop of 100 % or more tolerates any change; got {text!r}. Write a smaller share, as in 5%."
            )
        return cls(
            _quantity(found["what"]),
            direction,
            amount,
            found["unit"] == "%",
            text.strip(),
            found["unit"] == "pt",
        )

    def exceeded_by(self, low: float, high: float) -> bool:
        """Whether an interval of the change lies beyond what is tolerated, entirely.

        >>> kept = Tolerance.parse("accuracy drops 1pt")
        >>> kept.exceeded_by(-0.05, -0.02), kept.exceeded_by(-0.05, -0.005), kept.exceeded_by(0.02, 0.05)
        (True, False, False)
        """
        fell, rose = high < -self.amount - _ROUNDING, low > self.amount + _ROUNDING
        return {"drops": fell, "rises": rose, "changes": fell or rose}[self.direction]

    def reached_by(self, low: float, high: float) -> bool:
        """Whether an interval of the change reaches beyond what is tolerated, somewhere."""
        return self.exceeded_by(high, low)  # the farther end decides


def _amount(text: str, sentence: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise ValueError(
            f"a tolerance's amount must be a number of at least 0; got {text!r} in {sentence!r}."
        )
    return amount


def _quantity(text: str) -> Quantity:
    name, _, options = text.rstrip("]").partition("[")
    audit, dot, measured = name.partition(".")
    if not dot:
        check_choice("quantity", name, [*QUANTITIES, "AUDIT.NAME"])
        found = QUANTITIES[name]
    else:
        found = Quantity(audit, measured)
    # a value may contain a comma, as in "class mean, unit length"
    pairs = [option.partition("=") for option in _BETWEEN.split(options) if option.strip()]
    if any(not equals or not key.strip() or not value.strip() for key, equals, value in pairs):
        raise ValueError(f"the brackets must hold key=value pairs, separated by commas; got {text!r}.")
    given = {key.strip(): value.strip() for key, _, value in pairs}
    if (
        not dot
        and found.audit == "accuracy"
        and (kind := next((kind for kind in OF_GROUPS if kind in given), None))
    ):
        found = Quantity("performance", OF_GROUPS[kind], found.context, mirrored=not found.mirrored)
    context = {**found.context, **given}
    return Quantity(found.audit, found.name, context, found.mirrored)
