"""Findings of many runs in a temporary file, read when they are asked for."""

import os
import pickle  # noqa: TID251 - to and from a temporary file of its own
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from clearance.records.record import Record, made_visible

IN_MEMORY = 4 * 2**20  # bytes, before things go to a file


class Shelf:
    """Things as bytes, in memory while they are few, then in a temporary file; the last that was read is kept.

    Threads and forked processes may read it together.

    >>> shelf = Shelf()
    >>> place = shelf.put({"x": [1, 2]})
    >>> shelf.at(place)
    {'x': [1, 2]}
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._held = self._end = 0  # bytes in memory, in the file
        self._lock = threading.Lock()
        self._read: tuple[Place | None, Any] = (None, None)

    def put(self, thing: Any) -> "Place":
        """Where it lies.

        Raises:
            OSError: If the disk is full; what lies there can still be read.
        """
        data = pickle.dumps(thing, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            if self._held + len(data) <= IN_MEMORY:
                self._held += len(data)
                return Place(data)
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the last thing on it
                weakref.finalize(self, self._file.close)
            place = Place(None, self._end, len(data))
            left = memoryview(data)
            while left:
                left = left[os.pwrite(self._file.fileno(), left, self._end + len(data) - len(left)) :]
            self._end += len(data)
        return place

    def at(self, place: "Place") -> Any:
        """The thing that lies there."""
        kept, thing = self._read
        if kept is not place:
            data = place.data
            if data is None:
                assert self._file is not None
                data = os.pread(self._file.fileno(), place.length, place.start)
            thing = pickle.loads(data)  # noqa: S301 - our own
            self._read = (place, thing)
        return thing


class Place(NamedTuple):
    """Where something lies on a shelf: its bytes, or where they are in the file."""

    data: bytes | None
    start: int = 0
    length: int = 0


class ShelvedColumns(Mapping[str, Sequence[Any]]):
    """Columns of an exhibit on a shelf.

    >>> dict(ShelvedColumns(Shelf(), {"x": [1, 2]}))
    {'x': [1, 2]}
    """

    __slots__ = ("_place", "_shelf")

    def __init__(self, shelf: Shelf, columns: Mapping[str, Sequence[Any]]) -> None:
        self._shelf, self._place = shelf, shelf.put(dict(columns))

    def __getitem__(self, name: str) -> Sequence[Any]:
        return self._columns()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns())

    def __len__(self) -> int:
        return len(self._columns())

    def _columns(self) -> Mapping[str, Sequence[Any]]:
        columns: Mapping[str, Sequence[Any]] = self._shelf.at(self._place)
        return columns

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
