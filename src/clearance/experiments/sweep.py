"""A sweep: the same comparison at several values of one setting, which then is an axis of everything measured."""

import dataclasses
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from clearance.experiments.catalogue import OBJECTIVES, loss_defaults, resolve
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe
from clearance.experiments.sweep_words import OF_LOSS, SHARED, Sweep, as_kind
from clearance.records import ExhibitRecord, Record, Report
from clearance.vocabulary import Scalar

if typing.TYPE_CHECKING:
    from clearance.experiments.run import RunFindings  # needs torch, and a plan must answer without

SETTING = "sweep"  # what a report's recipe calls it
SWEPT_AUDITS = ("boundary_distance", "weight_scale")  # what the curves over a sweep are of beside errors


def swept_recipes(recipe: Recipe, sweep: Sweep) -> dict[float, Recipe]:
    """The recipe at each value of the sweep; nothing else differs.

    Raises:
        ValueError: If a method or the recipe cannot have a value.

    >>> start = Recipe(methods={"plain": Method()})
    >>> [r.methods["plain"].lr for r in swept_recipes(start, Sweep("lr", (0.1, 0.2))).values()]
    [0.1, 0.2]
    """
    if sweep.field == "epochs" and recipe.steps is not None:
        raise ValueError(
            f"`sweep` of 'epochs' changes nothing where the length is {recipe.steps} steps; sweep those."
        )
    found = {}
    for value in sweep.values:
        change: dict[str, Any] = {sweep.field: value}
        if sweep.field not in SHARED:
            change = {"methods": {n: _changed(n, m, sweep.field, value) for n, m in recipe.methods.items()}}
        found[value] = dataclasses.replace(recipe, **change)
    return found


def _changed(name: str, method: Method, field: str, value: float) -> Method:
    """The method at one value of a field of its own, or of its loss."""
    if not field.startswith(OF_LOSS):
        change: dict[str, Any] = {field: value}
        return dataclasses.replace(method, **change)
    setting, known = field.removeprefix(OF_LOSS), loss_settings(method)
    if setting not in known:
        has = f"only {', '.join(known)}" if known else "none"
        raise ValueError(
            f"`sweep` of {field!r} needs methods whose loss has that setting; method {name!r} has the loss "
            f"{method.objective!r}, which has {has}. Leave the method out."
        )
    if isinstance(known[setting], str | bool | tuple | Mapping):
        raise ValueError(  # noqa: TRY004
            f"`sweep` needs a setting that is a number; got {field!r}, which is {known[setting]!r}."
        )
    given = as_kind(value, int, field) if isinstance(known[setting], int) else value
    return dataclasses.replace(method, objective_settings={**method.objective_settings, setting: given})


def loss_settings(method: Method) -> dict[str, Any]:
    """The settings of a method's loss, each with the value that the method gives it.

    >>> loss_settings(Method(objective="hinge", objective_settings={"margin": 2.0}))["margin"]
    2.0
    """
    loss = resolve("objective", method.objective, OBJECTIVES)
    return {**loss_defaults(loss), **method.objective_settings}


def under(found: "RunFindings", settings: Mapping[str, Scalar]) -> "RunFindings":
    """The same findings with `settings` in the context of every measurement and exhibit."""
    records = tuple(
        Record(r.dataset, r.method, r.seed, _with_context(r.measurement, settings)) for r in found.records
    )
    exhibits = tuple(
        ExhibitRecord(e.dataset, e.method, e.seed, _with_context(e.exhibit, settings)) for e in found.exhibits
    )
    return dataclasses.replace(found, records=records, exhibits=exhibits)


def with_swept_audits(recipe: Recipe) -> Recipe:
    """The recipe with what the curves over a sweep are of, where it names no audits of its own.

    >>> with_swept_audits(Recipe()).audits[-2:], with_swept_audits(Recipe(audits=("accuracy",))).audits
    (('boundary_distance', 'weight_scale'), ('accuracy',))
    """
    if recipe.audits != Recipe().audits:
        return recipe
    return dataclasses.replace(recipe, audits=(*recipe.audits, *SWEPT_AUDITS))


def at_values(findings: Iterable[tuple[float, "RunFindings"]], sweep: Sweep) -> list["RunFindings"]:
    """Findings that say at which value they were made; so does the note on how a run ended.

    Args:
        findings: Each with its value.
        sweep: The sweep.
    """
    found = []
    for value, one in findings:
        note = one.note
        if note is not None:
            note = dataclasses.replace(note, status=f"{note.status} ({sweep.field} {value:g})")
        found.append(under(dataclasses.replace(one, note=note), {sweep.setting: value}))
    return found


def swept_report(report: Report, sweep: Sweep, recipe: Recipe) -> Report:
    """A report whose settings name the sweep, and which of its values the page shows beside the curves.

    That is the first method's own value where the sweep has it, and otherwise the one in the middle.
    """
    first = next(iter(recipe.methods.values()))
    if sweep.field.startswith(OF_LOSS):
        own = loss_settings(first).get(sweep.field.removeprefix(OF_LOSS))
    else:
        own = getattr(recipe if sweep.field in SHARED else first, sweep.field)
    shown = own if own in sweep.values else sorted(sweep.values)[len(sweep.values) // 2]
    told = {"field": sweep.setting, "values": list(sweep.values), "shown": shown}
    return dataclasses.replace(report, recipe={**report.recipe, SETTING: told})


def _with_context(thing: Any, settings: Mapping[str, Scalar]) -> Any:
    return dataclasses.replace(thing, context={**thing.context, **settings})
