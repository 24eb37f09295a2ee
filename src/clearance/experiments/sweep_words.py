"""The words of a sweep: which setting, which values, and whether it can be an axis."""

import dataclasses
import math
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass

from clearance._checks import check_choice
from clearance.experiments.method import Method
from clearance.experiments.recipe import Recipe

DATA = (
    "train_fraction",
    "augment_pad",
    "augment_cutout",
    "size",
)  # of a recipe: each value has images of its own
SHARED = (
    "epochs",
    "steps",
    "batch_size",
    "label_noise",
    "samples",
    "validation",
    *DATA,
)  # fields of a recipe
OF_LOSS = "objective_settings."  # before the name of a setting of the methods' loss
CALLED = {
    "samples": "trained_on",
    "features": "feature_count",
    "steps": "updates",
    "per_class": "weak_head_images",
}
"""Other names, because audits tell their own numbers apart by these: images that a fresh head learnt from, say."""


@dataclass(frozen=True)
class Sweep:
    """One numeric setting and the values that it takes.

    Args:
        field: Of every method (``weight_decay``, ``lr``, ``momentum`` ...); of every method's loss
            (``objective_settings.gamma`` ...); or of the recipe they share: ``epochs``, ``steps``, ``batch_size``,
            ``label_noise``, ``samples``, ``validation``, ``train_fraction``, ``augment_pad``, ``augment_cutout`` or
            ``size``.
        values: At least two, each once.
    """

    field: str
    values: tuple[float, ...]

    @property
    def setting(self) -> str:
        """What the context of a number calls it."""
        if self.field.startswith(OF_LOSS):
            return f"loss_{self.field.removeprefix(OF_LOSS)}"
        return CALLED.get(self.field, self.field)

    @property
    def of_data(self) -> bool:
        """Whether the images themselves differ from value to value."""
        return self.field in DATA


def parse_sweep(text: str) -> Sweep:
    """A sweep as it is written on the command line: ``FIELD=LOW:HIGH:COUNT`` or ``FIELD=A,B,C``.

    Args:
        text: With colons, COUNT values from LOW to HIGH with equal ratios; with commas, the values themselves.

    Raises:
        ValueError: If it reads otherwise, there is no such field, it is no number, or a value is there twice. Whether a
            value is possible says the method or recipe that gets it.

    >>> parse_sweep("weight_decay=1e-5:1e-1:5").values
    (1e-05, 0.0001, 0.001, 0.01, 0.1)
    >>> parse_sweep("epochs=2,4").values
    (2, 4)
    """
    field, equals, told = text.partition("=")
    if not equals or not told.strip():
        raise ValueError(f"`sweep` must be FIELD=LOW:HIGH:COUNT or FIELD=A,B,C; got {text!r}.")
    field = field.strip().replace("-", "_")
    kind = _kind(field)
    numbers = _range(told) if ":" in told else _numbers(told.split(","), text)
    values = tuple(as_kind(number, kind, field) for number in numbers)
    if len(set(values)) != len(values) or len(values) < 2:
        raise ValueError(
            f"`sweep` must have at least two values, each once; got {list(values)} from {text!r}."
        )
    return Sweep(field, values)


def _kind(field: str) -> type:
    """Whether a field takes whole numbers or any; what a setting of a loss takes says the loss.

    Raises:
        ValueError: If there is no such field, or its values are no numbers.
    """
    if field.startswith(OF_LOSS):
        return float
    kinds = _numeric_fields()
    for owner, called in ((Method, "method"), (Recipe, "comparison")):
        if field in {one.name for one in dataclasses.fields(owner)} - set(kinds):
            raise ValueError(
                f"`sweep` must be over a number that can be an axis of one comparison; got {field!r}. Give each of its "
                f"values as a {called} of its own."
            )
    check_choice("sweep", field, [*kinds, "objective_settings.NAME"])
    return kinds[field]


def _numeric_fields() -> dict[str, type]:
    """Every setting that is a number, and of which kind."""
    found: dict[str, type] = {}
    for owner, names in ((Method, None), (Recipe, SHARED)):
        for name, hint in typing.get_type_hints(owner).items():
            alternatives = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
            kinds = [kind for kind in alternatives if kind in (int, float)]
            if kinds and (names is None or name in names):
                found[name] = kinds[0]
    return found


def _range(told: str) -> list[float]:
    parts = told.split(":")
    if len(parts) != 3 or not parts[2].strip().isdecimal() or int(parts[2]) < 2:
        raise ValueError(f"a range of `sweep` must be LOW:HIGH:COUNT with COUNT at least 2; got {told!r}.")
    low, high = _numbers(parts[:2], told)
    if not 0 < low < high < math.inf:
        raise ValueError(
            f"a range of `sweep` must have 0 < LOW < HIGH, as its values have equal ratios; got {told!r}. "
            "Give the values themselves, separated by commas."
        )
    count = int(parts[2])
    # twelve digits: 1e-4 rather than 0.00010000000000000002
    return [float(f"{low * (high / low) ** (k / (count - 1)):.12g}") for k in range(count)]


def _numbers(parts: Iterable[str], text: str) -> list[float]:
    try:
        return [float(part) for part in parts]
    except ValueError:
        raise ValueError(f"`sweep` must have numbers for values; got {text!r}.") from None


def as_kind(number: float, kind: type, field: str) -> float:
    """A number as a field takes it: a whole one, or any.

    Raises:
        ValueError: If it is not whole and has to be.
    """
    if kind is float:
        return number
    if not float(number).is_integer():
        raise ValueError(
            f"`{field}` takes whole numbers; got {number} in `sweep`. Give them, separated by commas."
        )
    return int(number)
