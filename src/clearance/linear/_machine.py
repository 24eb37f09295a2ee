"""What the walk along a path of lambda needs to know of a loss, and the walk itself."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from clearance.linear._certificate import Certified, State
from clearance.linear._problem import Array, Problem

STRIDE = 3.0  # the largest ratio of two lambdas in a row; wider gaps get stations on the way
STATION = 1e-3  # relative gap there: they only lead on
LONGEST = 1.5  # extrapolation in steps of the path


class Machine(Protocol):
    """One loss."""

    def without_weights(self, problem: Problem) -> tuple[float, float]:
        """The best bias by itself, and its mean loss."""

    def origin(self, problem: Problem) -> float:
        """The lambda from which a cold start is good."""

    def exact(self, problem: Problem, lam: float) -> Certified | None:
        """The solution where it is known in closed form."""

    def cold(self, problem: Problem, lam: float) -> State:
        """A state to begin with, good at large lambda."""

    def minimise(
        self, problem: Problem, lam: float, start: State, tolerance: float, reach: float
    ) -> Certified:
        """The solution from a start nearby."""

    def constant_from(self, problem: Problem, found: Certified, lam: float) -> Certified | None:
        """The solution that holds for every smaller lambda too, if there is one."""


def walk(
    machine: Machine, problem: Problem, lambdas: Sequence[float], tolerance: float
) -> dict[float, Certified]:
    """Solve at every lambda, from strong to weak, each from where the path leads.

    Args:
        machine: The loss.
        problem: The samples.
        lambdas: Any order.
        tolerance: Relative duality gap.
    """
    wanted = sorted(set(lambdas), reverse=True)
    solved: dict[float, Certified] = {}
    behind: list[tuple[float, State]] = []
    held: tuple[float, Certified] | None = None
    for lam in _stations(wanted, machine.origin(problem)):
        if held is not None:
            solved[lam] = shrunk(held[1], lam / held[0])
            continue
        aim = tolerance if lam in wanted else max(tolerance, STATION)
        found = machine.exact(problem, lam)
        if found is None:
            start, reach = _start(machine, problem, lam, behind)
            found = machine.minimise(problem, lam, start, aim, reach)
        constant = machine.constant_from(problem, found, lam)
        if constant is not None and constant.relative_gap <= tolerance:
            found, held = constant, (lam, constant)
        solved[lam] = found
        behind = [*behind[-1:], (lam, found.state)]
    return {lam: solved[lam] for lam in wanted}


def shrunk(hard: Certified, factor: float) -> Certified:
    """A machine that pays for nothing, at lambda times `factor`: the same, its multipliers in proportion."""
    state = dataclasses.replace(hard.state, a=hard.state.a * factor)
    return Certified(state, 0.0, hard.objective * factor, hard.gap * factor)


def _stations(wanted: Sequence[float], origin: float) -> Iterator[float]:
    """The wanted lambdas, and between those that are far apart as many more as keep every step short."""
    last = max(origin, wanted[0])
    for lam in wanted:
        steps = math.ceil((math.log(last) - math.log(lam)) / math.log(STRIDE)) if lam < last else 1
        yield from (last ** (1 - step / steps) * lam ** (step / steps) for step in range(1, steps))
        yield lam
        last = lam


def _start(
    machine: Machine, problem: Problem, lam: float, behind: Sequence[tuple[float, State]]
) -> tuple[State, float]:
    """A start for lambda and how far samples will move from it, in margins."""
    if not behind:
        return machine.cold(problem, lam), math.inf
    if len(behind) == 1:
        return behind[0][1], math.inf
    (older, before), (newer, last) = behind
    ratio = min(math.log(lam / newer) / math.log(newer / older), LONGEST)
    return extrapolated(before, last, ratio, problem.cap), 2 * float(np.abs(last.f - before.f).max())


def extrapolated(before: State, last: State, ratio: float, cap: float) -> State:
    """Where the path goes if it keeps its direction: last + ratio (last - before), multipliers within bounds."""

    def ahead(old: Array, new: Array) -> Array:
        return new + ratio * (new - old)

    return State(
        ahead(before.w, last.w),
        last.b + ratio * (last.b - before.b),
        np.clip(ahead(before.a, last.a), 0, cap),
        ahead(before.f, last.f),
    )
