"""A measurement, an exhibit or a run's ending, with its provenance: dataset, method, seed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from clearance._text import visible
from clearance.records.encoding import decode, encode
from clearance.vocabulary import Exhibit, Measurement, Outcome

# Settings that describe how an interval was made; two numbers that differ only there are the same quantity.
DESCRIPTIVE = frozenset({"interval"})


def settings(context: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The part of a context that identifies a quantity, in a stable order.

    >>> settings({"split": "test", "interval": "wilson 95 %"})
    (('split', 'test'),)
    """
    return tuple(sorted((key, value) for key, value in context.items() if key not in DESCRIPTIVE))


def checked(row: Mapping[str, Any], name: str, *kinds: type) -> Any:
    """The field `name` of a row, of one of these types; True and False do not count as numbers.

    Raises:
        KeyError: It is missing.
        ValueError: It is of another type.

    >>> checked({"seed": 3}, "seed", int)
    3
    """
    value = row[name]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
        raise ValueError(f"`{name}` must be of type {expected}; got {str(value)[:40]!r}.")
    return value


_NONE = type(None)
_PLACE = {"dataset": (str,), "method": (str,), "seed": (int,)}
_MEASUREMENT = {
    **dict.fromkeys(("audit", "name", "unit", "better"), (str,)),
    **dict.fromkeys(("spread", "low", "high"), (int, float, _NONE)),
    "value": (int, float),
    "n": (int,),
    "context": (dict,),
}
_EXHIBIT = {
    **dict.fromkeys(("audit", "name", "kind", "caption"), (str,)),
    "context": (dict,),
    "columns": (dict,),
}


def _checked(row: Any, fields: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """A decoded row, each of whose fields has its type.

    Raises:
        KeyError, TypeError, ValueError: If one has not.
    """
    if not isinstance(row, Mapping):
        raise TypeError(f"it must be an object; got {str(row)[:40]!r}")
    known = decode(dict(row))
    for name, kinds in fields.items():
        checked(known, name, *kinds)
    for value in known["context"].values():
        checked({"context": value}, "context", str, int, float, bool)
    return known


@dataclass(frozen=True, slots=True)
class Record:
    """One measurement of one trained model.

    Args:
        dataset: Name of the dataset, for example ``"digits"``.
        method: Name of the method; any text.
        seed: The seed that the model was trained with.
        measurement: The measurement.

    >>> found = Measurement("accuracy", "error", 0.02, "fraction", n=500, better="lower")
    >>> record = Record("digits", "plain", 0, found)
    >>> Record.from_json(record.to_json()) == record
    True
    """

    dataset: str
    method: str
    seed: int
    measurement: Measurement

    @property
    def quantity(self) -> tuple[Any, ...]:
        """Its quantity, the same for all methods and seeds: (dataset, audit, name, settings)."""
        found = self.measurement
        return (self.dataset, found.audit, found.name, settings(found.context))

    def to_json(self) -> dict[str, Any]:
        """The flat row of ``report.json``; encoded as in `encoding`."""
        found = self.measurement
        row = {"dataset": self.dataset, "method": self.method, "seed": self.seed}
        fields = ("audit", "name", "value", "unit", "n", "spread", "low", "high", "better", "context")
        return encode(row | {name: getattr(found, name) for name in fields})

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Record":
        """The record that `to_json` wrote.

        Raises:
            ValueError: A field is missing or unknown.
        """
        try:
            known = _checked(row, {**_PLACE, **_MEASUREMENT})
            place = {name: known.pop(name) for name in _PLACE}
            return cls(**place, measurement=Measurement(**known))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"A measurement row must have the fields of a record; {error}.") from error


@dataclass(frozen=True, slots=True)
class ExhibitRecord:
    """One exhibit of one trained model, or of a whole comparison.

    Args:
        dataset: Name of the dataset.
        method: Name of the method; ``"summary"`` if it is about all of them.
        seed: The seed that the model was trained with; None if it is about all seeds.
        exhibit: The data of a picture or of a table.

    >>> shown = Exhibit("training", "curve", "curve", {"step": [0], "loss": [2.3]}, "Training.")
    >>> record = ExhibitRecord("digits", "plain", 0, shown)
    >>> ExhibitRecord.from_json(record.to_json()) == record
    True
    """

    dataset: str
    method: str
    seed: int | None
    exhibit: Exhibit

    def to_json(self) -> dict[str, Any]:
        """The content of an exhibit's file."""
        shown = self.exhibit
        row = {"dataset": self.dataset, "method": self.method, "seed": self.seed}
        fields = ("audit", "name", "kind", "caption", "context", "columns")
        return encode(row | {name: getattr(shown, name) for name in fields})

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "ExhibitRecord":
        """The record that `to_json` wrote, with lists for columns.

        Raises:
            ValueError: A field is missing or unknown, or the columns are not equally long.
        """
        try:
            known = _checked(row, {**_PLACE, "seed": (int, _NONE), **_EXHIBIT})
            for name in known["columns"]:
                checked(known["columns"], name, list)
            place = {name: known.pop(name) for name in _PLACE}
            return cls(**place, exhibit=Exhibit(**known))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"An exhibit must have the fields of an exhibit record; {error}.") from error


@dataclass(frozen=True, slots=True)
class RunNote:
    """How the training of one model ended.

    Args:
        method: Name of the method.
        seed: The seed.
        outcome: How it ended.
        status: The sentence about it, for example ``"diverged at step 12: the loss is not finite"``.

    >>> RunNote("foca", 0, Outcome.FINISHED, "finished at step 900").good
    True
    """

    method: str
    seed: int
    outcome: Outcome
    status: str

    @property
    def good(self) -> bool:
        """Whether the trained model is what was asked for."""
        return self.outcome is Outcome.FINISHED

    def to_json(self) -> dict[str, Any]:
        """The row of ``report.json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "RunNote":
        """The note that `to_json` wrote.

        Raises:
            ValueError: A field is missing, or the outcome is unknown.
        """
        try:
            return cls(
                checked(row, "method", str),
                checked(row, "seed", int),
                Outcome(row["outcome"]),
                checked(row, "status", str),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"A run must have method, seed, outcome and status; {error}.") from error


def made_visible(value: Any) -> Any:
    r"""The value with every text in it made visible; the same object if nothing changes.

    >>> made_visible({"a": ["b\x1b"]})
    {'a': ['b\\x1b']}
    """
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        made = {made_visible(key): made_visible(entry) for key, entry in value.items()}
        return made if any(made.get(key) is not entry for key, entry in value.items()) else value
    if isinstance(value, list | tuple):
        if not value or isinstance(value[0], int | float):  # columns of numbers, by far the most
            return value
        parts = [made_visible(entry) for entry in value]
        changed = any(new is not old for new, old in zip(parts, value, strict=True))
        return type(value)(parts) if changed else value
    if isinstance(value, Record | ExhibitRecord | RunNote | Measurement | Exhibit):
        made = {each.name: made_visible(getattr(value, each.name)) for each in fields(value)}
        changes = {name: new for name, new in made.items() if new is not getattr(value, name)}
        return replace(value, **changes) if changes else value
    return value


SWEEP = "sweep"  # the setting of a report that names a swept field and its values
BUDGET, INTERRUPTED, FAILED, IMPOSSIBLE = "budget", "interrupted", "failed", "impossible"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A chosen audit without a result.

    Args:
        why: `BUDGET`, `INTERRUPTED`, `FAILED`, or `IMPOSSIBLE`: not to be asked of a black box.
        reason: Of a failed one, the error and its place in one line, without folders of this machine; of an impossible
            one what the model does not give.
    """

    audit: str
    why: str
    reason: str = ""

    def setting(self) -> dict[str, str]:
        """What a report keeps of it, without a reason where there is none."""
        return {name: text for name, text in asdict(self).items() if text}
