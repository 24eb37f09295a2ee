"""A sweep: the same comparison at several values of one setting, the axis of its curves."""

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from clearance._checks import check_choice
from clearance.experiments.catalogue import LOSSES, loss_defaults, resolve
from clearance.experiments.method import WAYS, Method
from clearance.experiments.recipe import Recipe
from clearance.records import ExhibitRecord, Record, Report
from clearance.records.record import SWEEP
from clearance.vocabulary import Scalar

DATA = (
    "train_fraction",
    "augment_pad",
    "augment_cutout",
    "size",
)  # of a recipe: each value has its own images
SHARED = (
    "epochs",
    "steps",
    "batch_size",
    "label_noise",
    "samples",
    "validation",
    *DATA,
)  # fields of a recipe
OF_LOSS = "loss_settings."  # before the name of a setting of the methods' loss
CALLED = {
    "samples": "trained_on",
    "features": "feature_count",
    "steps": "updates",
    "per_class": "weak_head_images",
}
"""Other names in the context of numbers, because audits use these for something else."""


@dataclass(frozen=True)
class Sweep:
    """One numeric setting and the values that it takes.

    Args:
        field: A field of every method (``weight_decay``, ``lr``, ``momentum`` ...), of every method's loss
            (``loss_settings.gamma`` ...), or of the shared recipe: ``epochs``, ``steps``, ``batch_size``,
            ``label_noise``, ``samples``, ``validation``, ``train_fraction``, ``augment_pad``, ``augment_cutout`` or
            ``size``.
        values: At least two, each once.
    """

    field: str
    values: tuple[float, ...]

    @property
    def setting(self) -> str:
        """Its name in the context of a number."""
        if self.field.startswith(OF_LOSS):
            return f"loss_{self.field.removeprefix(OF_LOSS)}"
        return CALLED.get(self.field, self.field)

    @property
    def of_data(self) -> bool:
        """Whether the images differ between values."""
        return self.field in DATA


def parse_sweep(text: str) -> Sweep:
    """A sweep as it is written on the command line: ``FIELD=LOW:HIGH:COUNT`` or ``FIELD=A,B,C``.

    With colons there are COUNT values from LOW to HIGH with equal ratios; with commas, the values themselves.

    Raises:
        ValueError: If the text has another form, the field is unknown or not a number, or a value occurs twice. Ranges
            of values are checked by the method or recipe.

    >>> parse_sweep("weight_decay=1e-5:1e-1:5").values
    (1e-05, 0.0001, 0.001, 0.01, 0.1)
    >>> parse_sweep("epochs=2,4").values
    (2, 4)
    """
    field, equals, listed = text.partition("=")
    if not equals or not listed.strip():
        raise ValueError(f"`sweep` must be FIELD=LOW:HIGH:COUNT or FIELD=A,B,C; got {text!r}.")
    field = field.strip().replace("-", "_")
    kind = _kind(field)
    numbers = _range(listed) if ":" in listed else _numbers(listed.split(","), text)
    values = tuple(as_kind(number, kind, field) for number in numbers)
    if len(set(values)) != len(values) or len(values) < 2:
        raise ValueError(
            f"`sweep` must have at least two values, each once; got {list(values)} from {text!r}."
        )
    return Sweep(field, values)


def _kind(field: str) -> type:
    """The type of a field, int or float; the loss checks its own settings.

    Raises:
        ValueError: If the field is unknown, or not a number.
    """
    if field.startswith(OF_LOSS):
        return float
    kinds = _numeric_fields()
    for owner, called in ((Method, "method"), (Recipe, "comparison")):
        if field in {one.name for one in dataclasses.fields(owner)} - set(kinds):
            raise ValueError(
                f"`sweep` must be over a number that can be an axis of one comparison; got {field!r}. Make a separate "
                f"{called} for each of its values."
            )
    check_choice("sweep", field, [*kinds, "loss_settings.NAME"])
    return kinds[field]


def _numeric_fields() -> dict[str, type]:
    """Every numeric setting and its type."""
    found: dict[str, type] = {}
    for owner, names in ((Method, None), (Recipe, SHARED)):
        for name, hint in typing.get_type_hints(owner).items():
            alternatives = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
            kinds = [kind for kind in alternatives if kind in (int, float)]
            if kinds and (names is None or name in names):
                found[name] = kinds[0]
    return found


def _range(text: str) -> list[float]:
    parts = text.split(":")
    if len(parts) != 3 or not parts[2].strip().isdecimal() or int(parts[2]) < 2:
        raise ValueError(f"a range of `sweep` must be LOW:HIGH:COUNT with COUNT at least 2; got {text!r}.")
    low, high = _numbers(parts[:2], text)
    if not 0 < low < high < math.inf:
        raise ValueError(
            f"a range of `sweep` must have 0 < LOW < HIGH, because its values have equal ratios; got {text!r}. "
            "Give the values themselves, separated by commas."
        )
    count = int(parts[2])
    # twelve digits: 1e-4 rather than 0.00010000000000000002
    return [float(f"{low * (high / low) ** (k / (count - 1)):.12g}") for k in range(count)]


def _numbers(parts: Iterable[str], text: str) -> list[float]:
    try:
        return [float(part) for part in parts]
    except ValueError:
        raise ValueError(f"the values of `sweep` must be numbers; got {text!r}.") from None


def as_kind(number: float, kind: type, field: str) -> float:
    """A number with the type of its field.

    Raises:
        ValueError: If it must be a whole number and is not.
    """
    if kind is float:
        return number
    if not float(number).is_integer():
        raise ValueError(
            f"`{field}` takes whole numbers; got {number} in `sweep`. Give them, separated by commas."
        )
    return int(number)


if typing.TYPE_CHECKING:
    from clearance.experiments.run import RunFindings  # imports torch, which --dry-run does not need

SWEPT_AUDITS = ("boundary_distance", "weight_scale")  # the curves over a sweep show these and errors


def swept_recipes(recipe: Recipe, sweep: Sweep) -> dict[float, Recipe]:
    """The recipe at each value of the sweep; nothing else differs.

    Raises:
        ValueError: If a value is invalid for a method or the recipe.

    >>> start = Recipe(methods={"plain": Method()})
    >>> [r.methods["plain"].lr for r in swept_recipes(start, Sweep("lr", (0.1, 0.2))).values()]
    [0.1, 0.2]
    """
    if sweep.field == "epochs" and recipe.steps is not None:
        raise ValueError(
            f"`sweep` of 'epochs' has no effect, because the length is set to {recipe.steps} steps; sweep steps."
        )
    found = {}
    for value in sweep.values:
        change: dict[str, Any] = {sweep.field: value}
        if sweep.field not in SHARED:
            change = {"methods": {n: _changed(n, m, sweep.field, value) for n, m in recipe.methods.items()}}
        found[value] = dataclasses.replace(recipe, **change)
    return found


def _changed(name: str, method: Method, field: str, value: float) -> Method:
    """The method at one value of one of its fields, or of a setting of its loss."""
    if not field.startswith(OF_LOSS):
        for way, unset in WAYS.items():
            if way != method.way and field in vars(unset()):
                raise ValueError(
                    f"`sweep` of {field!r} needs methods with `way: {way}`; method {name!r} has {method.way!r}. "
                    "Leave the method out."
                )
        change: dict[str, Any] = {field: value}
        return dataclasses.replace(method, **change)
    setting, known = field.removeprefix(OF_LOSS), loss_settings(method)
    if setting not in known:
        has = f"only {', '.join(known)}" if known else "none"
        raise ValueError(
            f"`sweep` of {field!r} needs methods whose loss has that setting; method {name!r} has the loss "
            f"{method.loss!r}, which has {has}. Leave the method out."
        )
    if isinstance(known[setting], str | bool | tuple | Mapping):
        raise ValueError(  # noqa: TRY004
            f"`sweep` needs a setting that is a number; got {field!r}, which is {known[setting]!r}."
        )
    usual = loss_defaults(resolve("loss", method.loss, LOSSES))[setting]  # a recipe may write 1 for 1.0
    given = as_kind(value, int, field) if isinstance(usual, int) else value
    return dataclasses.replace(method, loss_settings={**method.loss_settings, setting: given})


def loss_settings(method: Method) -> dict[str, Any]:
    """The settings of a method's loss, with the method's values.

    >>> loss_settings(Method(loss="hinge", loss_settings={"margin": 2.0}))["margin"]
    2.0
    """
    loss = resolve("loss", method.loss, LOSSES)
    return {**loss_defaults(loss), **method.loss_settings}


def with_context(found: "RunFindings", settings: Mapping[str, Scalar]) -> "RunFindings":
    """The same findings with `settings` in the context of every measurement and exhibit."""
    records = tuple(
        Record(r.dataset, r.method, r.seed, _with_context(r.measurement, settings)) for r in found.records
    )
    exhibits = tuple(
        ExhibitRecord(e.dataset, e.method, e.seed, _with_context(e.exhibit, settings)) for e in found.exhibits
    )
    return dataclasses.replace(found, records=records, exhibits=exhibits)


def with_swept_audits(recipe: Recipe) -> Recipe:
    """The recipe with the audits that the curves over a sweep show, unless it names its own audits.

    >>> with_swept_audits(Recipe()).audits[-2:], with_swept_audits(Recipe(audits=("accuracy",))).audits
    (('boundary_distance', 'weight_scale'), ('accuracy',))
    """
    if recipe.audits != Recipe().audits:
        return recipe
    return dataclasses.replace(recipe, audits=(*recipe.audits, *SWEPT_AUDITS))


def at_values(findings: Iterable[tuple[float, "RunFindings"]], sweep: Sweep) -> list["RunFindings"]:
    """Findings with their value in the context, and in what is said of a run's end and of its failed audits."""
    found = []
    for value, one in findings:
        note = one.note
        if note is not None:
            note = dataclasses.replace(note, status=f"{note.status} ({sweep.field} {value:g})")
        failed = tuple(
            dataclasses.replace(left, reason=f"{left.reason} ({sweep.field} {value:g})")
            for left in one.left_out
        )
        kept = dataclasses.replace(one, note=note, left_out=failed)
        found.append(with_context(kept, {sweep.setting: value}))
    return found


def swept_report(report: Report, sweep: Sweep, recipe: Recipe) -> Report:
    """A report whose settings name the sweep, and the one of its values that the page shows in detail.

    That is the first method's own value if the sweep has it, otherwise the one in the middle.
    """
    first = next(iter(recipe.methods.values()))
    if sweep.field.startswith(OF_LOSS):
        own = loss_settings(first).get(sweep.field.removeprefix(OF_LOSS))
    else:
        own = getattr(recipe if sweep.field in SHARED else first, sweep.field)
    shown = own if own in sweep.values else sorted(sweep.values)[len(sweep.values) // 2]
    settings = {"field": sweep.setting, "values": list(sweep.values), "shown": shown}
    return dataclasses.replace(report, recipe={**report.recipe, SWEEP: settings})


def _with_context(found: Any, settings: Mapping[str, Scalar]) -> Any:
    return dataclasses.replace(found, context={**found.context, **settings})
