"""One sentence of the first screen, with what to do about it."""

from dataclasses import dataclass

from markupsafe import Markup

from clearance.records.derived import SummaryRow
from clearance.report.numbers import data, half_width, interval, points, points_interval

CLOSE = 0.02  # two points: as near as a new last layer must come, and from where on a difference is an alarm
ALARM = 0.02  # share of images from which on a sign of hidden gradients is said


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to know.

    Args:
        title: What it is about, in a word or two.
        said: The sentence, with its numbers.
        todo: What to do about it; empty where there is nothing to do.
        alarm: Whether the number cannot be trusted, or asks to act at once.
    """

    title: str
    said: Markup
    todo: str = ""
    alarm: bool = False


def points_with_ends(row: SummaryRow) -> Markup:
    """A difference in percentage points with its interval in brackets, where it has one."""
    half = half_width(row.low, row.high)
    if row.low is None or row.high is None:
        return points(row.value)
    return Markup("{} ({})").format(points(row.value, half), points_interval(row.low, row.high, half))


def with_ends(row: SummaryRow) -> Markup:
    """A number with its interval in brackets, where it has one."""
    shown = data(row.value, row.unit, half_width(row.low, row.high))
    if row.low is None:
        return shown
    return shown + Markup(" ({})").format(interval(row.low, row.high, row.unit))
