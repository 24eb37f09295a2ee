"""Schedules for a loss's settings: a margin that grows, a softmax weight that decays."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, SupportsFloat

from clearance._checks import check_choice, check_count, check_non_negative, check_positive


@dataclass(frozen=True)
class StepUp:
    """A value multiplied at fixed intervals, up to a bound: min(most, start * factor^(step // every)).

    The alpha of Wan et al. (2018) as released: CIFAR-100 ``StepUp(0.1, 2, 5000, 0.3)``, MNIST
    ``StepUp(0.001, 10, 1500, 1)``.

    Args:
        start: At step 0, above 0.
        factor: At least 1, finite.
        every: Steps from one value to the next, at least 1.
        most: The bound, at least `start` and finite.

    Raises:
        ValueError: If a number is out of range.

    >>> [StepUp(0.1, 2, 5000, 0.3)(step) for step in (0, 4999, 5000, 10_000)]
    [0.1, 0.1, 0.2, 0.3]
    """

    start: float
    factor: float
    every: int
    most: float

    def __post_init__(self) -> None:
        check_positive("start", self.start)
        check_count("every", self.every)
        for name, least in (("factor", 1.0), ("most", self.start)):
            check_positive(name, getattr(self, name))
            if not getattr(self, name) >= least:
                raise ValueError(f"`{name}` must be at least {least:g}; got {getattr(self, name)}.")

    def __call__(self, step: int) -> float:
        """The number at this step, from 0."""
        steps = step // self.every
        # A power of a large step overflows; the bound is reached long before.
        value = self.start
        while steps and self.factor > 1 and value < self.most:
            value, steps = value * self.factor, steps - 1
        return float(min(value, self.most))


@dataclass(frozen=True)
class InverseDecay:
    """A value that decays: max(least, start * (1 + rate * step)^-power).

    The weight of softmax in L-Softmax as released with Liu et al. (2016): MNIST
    ``InverseDecay(1000, 2.5e-5, 35, 0)``, CIFAR-10 ``InverseDecay(1000, 2e-5, 45, 0)``; hard sets stop at 5 to 10.

    Args:
        start: At step 0, at least 0.
        rate: At least 0.
        power: At least 0.
        least: At least 0.

    Raises:
        ValueError: If a number is out of range.

    >>> [round(InverseDecay(1000, 2.5e-5, 35, 0)(step), 2) for step in (0, 2000, 5000, 10_000)]
    [1000.0, 181.29, 16.21, 0.41]
    """

    start: float
    rate: float
    power: float
    least: float = 0.0

    def __post_init__(self) -> None:
        for name in ("start", "rate", "power", "least"):
            check_non_negative(name, getattr(self, name))

    def __call__(self, step: int) -> float:
        """The number at this step, from 0."""
        return float(max(self.least, self.start * (1 + self.rate * step) ** -self.power))


Schedule = StepUp | InverseDecay


def scheduled(name: str, given: Any, kind: type[StepUp] | type[InverseDecay]) -> float | Schedule:
    """The setting `name` as a number or a schedule; `given` may also be a schedule's settings by name.

    Raises:
        TypeError: If `given` is neither: a schedule of another kind, a list, a string.
        ValueError: If it is a number below 0, or a setting is unknown or missing.

    >>> scheduled("alpha", {"start": 0.1, "factor": 2, "every": 10, "most": 0.3}, StepUp)
    StepUp(start=0.1, factor=2, every=10, most=0.3)
    """
    if isinstance(given, kind):
        return given
    if isinstance(given, Mapping):
        _check_settings(name, given, kind)
        return kind(**given)
    if not isinstance(given, SupportsFloat):  # numbers of every library, but not strings
        article = "an" if kind is InverseDecay else "a"
        raise TypeError(f"`{name}` must be a number or {article} {kind.__name__}; got {given!r}.")
    number = float(given)
    check_non_negative(name, number)
    return number


def _check_settings(name: str, given: Mapping[str, Any], kind: type[StepUp] | type[InverseDecay]) -> None:
    for setting in given:
        check_choice(name, setting, kind.__dataclass_fields__)
    needed = [field.name for field in fields(kind) if field.default is MISSING]
    missing = [repr(setting) for setting in needed if setting not in given]
    if missing:
        named = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
        raise ValueError(
            f"`{name}` must name {', '.join(needed)}; {named} {'is' if len(missing) == 1 else 'are'} missing."
        )
