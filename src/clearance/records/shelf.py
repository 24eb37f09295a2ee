"""Findings of many runs in a temporary file, read when they are asked for."""

import os
import pickle  # noqa: TID251 - to and from a temporary file of its own
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from clearance.records.record import Record, made_visible


class Shelf:
    """A temporary file of things; the last that was read is kept. Threads and forked processes may read it together.

    >>> shelf = Shelf()
    >>> place = shelf.put({"x": [1, 2]})
    >>> shelf.at(place)
    {'x': [1, 2]}
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the last thing on it
        weakref.finalize(self, self._file.close)
        self._end = 0
        self._lock = threading.Lock()
        self._read: tuple[Place | None, Any] = (None, None)

    def put(self, thing: Any) -> "Place":
        """Where it lies.

        Raises:
            OSError: If the disk is full; what lies there can still be read.
        """
        data = memoryview(pickle.dumps(thing, pickle.HIGHEST_PROTOCOL))
        with self._lock:
            place = Place(self._end, len(data))
            while data:
                written = os.pwrite(self._file.fileno(), data, place.start + place.length - len(data))
                data = data[written:]
            self._end = place.start + place.length
        return place

    def at(self, place: "Place") -> Any:
        """The thing that lies there."""
        kept, thing = self._read
        if kept != place:
            thing = pickle.loads(os.pread(self._file.fileno(), place.length, place.start))  # noqa: S301 - our own file
            self._read = (place, thing)
        return thing


class Place(NamedTuple):
    """Where something lies on a shelf, in bytes."""

    start: int
    length: int


class ShelvedColumns(Mapping[str, Sequence[Any]]):
    """Columns of an exhibit on a shelf.

    >>> dict(ShelvedColumns(Shelf(), {"x": [1, 2]}))
    {'x': [1, 2]}
    """

    __slots__ = ("_names", "_place", "_shelf")

    def __init__(self, shelf: Shelf, columns: Mapping[str, Sequence[Any]]) -> None:
        self._shelf, self._place, self._names = shelf, shelf.put(dict(columns)), tuple(columns)

    def __getitem__(self, name: str) -> Sequence[Any]:
        columns: Mapping[str, Sequence[Any]] = self._shelf.at(self._place)
        return columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)  # elsewhere there is no shelf


class ShelvedRecords(Sequence[Record]):
    """Records on a shelf, those of each run together: a tuple that is read where it is looked at.

    >>> from clearance.vocabulary import Measurement
    >>> found = Record("digits", "plain", 0, Measurement("accuracy", "error", 0.02, "fraction", n=500))
    >>> shelved = ShelvedRecords.put(Shelf(), [found, found])
    >>> shelved == (found, found), shelved[1:] == (found,), len(ShelvedRecords.joined([shelved, shelved]))
    (True, True, 4)
    """

    __slots__ = ("_length", "_parts")

    def __init__(self, parts: Sequence[tuple[Shelf, Place, int]]) -> None:
        self._parts = parts  # shelf, place and number of each run's records
        self._length = sum(number for _, _, number in parts)

    @classmethod
    def put(cls, shelf: Shelf, records: Sequence[Record]) -> "ShelvedRecords":
        """Put those of one run on a shelf, their texts made visible."""
        return cls([(shelf, shelf.put(made_visible(tuple(records))), len(records))])

    @classmethod
    def joined(cls, several: Iterable[Sequence[Record]]) -> Sequence[Record]:
        """One after the other; a tuple if not all of them are on shelves."""
        parts = list(several)
        if parts and all(isinstance(part, ShelvedRecords) for part in parts):
            return cls([each for part in parts for each in part._parts])  # type: ignore[attr-defined]
        return tuple(record for part in parts for record in part)

    def __iter__(self) -> Iterator[Record]:
        for shelf, place, _ in self._parts:
            yield from shelf.at(place)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self)[index]
        place = range(self._length)[index]
        for shelf, at, number in self._parts:
            if place < number:
                return shelf.at(at)[place]
            place -= number
        raise IndexError(index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShelvedRecords | tuple) and tuple(self) == tuple(other)

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)  # elsewhere there is no shelf
