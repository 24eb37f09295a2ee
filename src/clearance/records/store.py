"""A report on disk: ``report.json``, and one file per exhibit next to it.

::

    clearance-report/
      report.json        {"schema": 1, "recipe", "versions", "command", "created", "runs", "measurements",
                          "exhibits": [file names], "summary": [...]}
      exhibits/*.json    one exhibit each: dataset, method, seed, audit, name, kind, caption, context, columns
      exhibits/*.csv     the columns of each table, for a spreadsheet

The name of an exhibit ends in a digest of its content, and ``report.json`` names its exhibits. One rename of
``report.json`` thus replaces an old report: a reader finds the old one or the new one, never parts of both. An exhibit
that was changed later is refused.
"""

import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from clearance._files import remove_leftovers, write_together
from clearance.records.derived import SummaryRow, derive
from clearance.records.encoding import decode, encode
from clearance.records.record import ExhibitRecord, Record, RunNote, checked, made_visible, settings

SCHEMA = 1
FILE = "report.json"
FOLDER = "exhibits"
TABLE = "table"  # the kind of exhibit that is saved as CSV too


@dataclass(frozen=True)
class Report:
    """All results of a comparison or an audit, and how they were made.

    Names come from users and folders and may hold any character: every text is made visible (see `clearance._text`),
    so that no output of a report needs to escape control characters.

    Args:
        recipe: The resolved settings of the experiment, as plain values.
        versions: Version of each library that was used, by name.
        command: The command line (or call) that makes the report again.
        created: The time, as ISO 8601 text.
        records: Every measurement: a tuple, or one whose runs lie on a shelf.
        exhibits: Every exhibit.
        runs: How each training ended.
        missing: Which of its exhibits could not be read, in words; empty if all were.

    Raises:
        ValueError: One quantity was recorded twice for the same dataset, method and seed.

    >>> Report({}, {}, "clearance compare", "2026-01-01T00:00:00+00:00").methods
    ()
    """

    recipe: Mapping[str, Any]
    versions: Mapping[str, str]
    command: str
    created: str
    records: Sequence[Record] = ()
    exhibits: tuple[ExhibitRecord, ...] = ()
    runs: tuple[RunNote, ...] = field(default=())
    missing: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for name in ("recipe", "versions", "command", "created", "records", "exhibits", "runs"):
            object.__setattr__(self, name, made_visible(getattr(self, name)))
        _check_once("measurement", (((one.method, one.quantity), one.seed) for one in self.records))
        _check_once("exhibit", ((_identity(one), one.seed) for one in self.exhibits))

    @cached_property
    def summary(self) -> tuple[SummaryRow, ...]:
        """Every derived number, computed from the records (see `derive`)."""
        failed = {note.method for note in self.runs if not note.good}
        return derive(self.records, next(iter(self.methods), None), failed)

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods in the order of the runs, then of the records; the first is the baseline.

        Runs come first, so that a baseline whose first run left no measurement is still the baseline.
        """
        named = [note.method for note in self.runs] + [record.method for record in self.records]
        return tuple(dict.fromkeys(named))

    def to_json(self) -> str:
        """The text of ``report.json``."""
        return "".join(self._json())

    def _json(self) -> Iterator[str]:
        """The text of ``report.json`` in parts: of large reports it is long."""
        facts = {"schema": SCHEMA, "recipe": encode(self.recipe), "versions": encode(self.versions)}
        facts |= {"command": self.command, "created": self.created}
        rows: dict[str, Iterable[Any]] = {
            "runs": (note.to_json() for note in self.runs),
            "measurements": (record.to_json() for record in self.records),
            "exhibits": (exhibit_file(record) for record in self.exhibits),
            "summary": (row.to_json() for row in self.summary),
        }
        yield _text(facts, indent=1).removesuffix("\n}")
        for name, each in rows.items():
            yield f',\n "{name}": ['
            for place, row in enumerate(each):
                yield f"{',' if place else ''}\n  {_text(row)}"
            yield "\n ]"
        yield "\n}\n"

    def save(self, directory: str | os.PathLike[str], pages: Mapping[str, str] | None = None) -> Path:
        """Write the report into `directory` and return the path of its ``report.json``.

        A report that was there is replaced: killed at any moment, ``report.json``, its exhibits and its pages are
        of one report. The exhibits of the old one are then removed.

        Args:
            directory: The folder; made if it is missing. Its other files stay.
            pages: Texts of the pages by name.

        Raises:
            OSError: The folder cannot be written or is full; the old report is then unchanged.
        """
        folder = Path(directory)
        exhibits = folder / FOLDER
        exhibits.mkdir(parents=True, exist_ok=True)
        remove_leftovers(exhibits)
        written: set[Path] = set()

        def texts() -> Iterator[tuple[Path, list[bytes]]]:
            for record in self.exhibits:
                files = {exhibit_file(record): _exhibit_text(record)}
                if record.exhibit.kind == TABLE:
                    files[table_file(record)] = _table_text(record)
                written.update(folder / name for name in files)
                yield from ((folder / name, [text.encode()]) for name, text in files.items())

        write_together(texts())
        # the old page is removed first: no page is better than one with the numbers of another report
        last = {folder / FILE: self._json()} | {folder / name: [text] for name, text in (pages or {}).items()}
        encoded = ((path, (part.encode() for part in parts)) for path, parts in last.items())
        write_together(encoded, instead_of=[path for path in last if path.name != FILE])
        for path in exhibits.iterdir():
            if (
                path not in written
                and (digest := _digest_in(path.name))
                and digest == _digest(path.read_bytes())
            ):
                path.unlink()
        return folder / FILE


def load_report(directory: str | os.PathLike[str], *, exhibits: bool = True) -> Report:
    """The report that `Report.save` wrote into `directory`; its summary is computed, not read.

    Args:
        directory: The folder, or a ``report.json`` (of any name) with the folder of its exhibits next to it.
        exhibits: Whether every exhibit must exist; otherwise missing ones are left out.

    Raises:
        FileNotFoundError: There is no report, or an exhibit that it names is missing.
        ValueError: A file is damaged or of another schema.
    """
    folder, path = Path(directory), Path(directory) / FILE
    if folder.is_file():
        folder, path = folder.parent, folder
    if not path.is_file():
        raise FileNotFoundError(
            f"a report is a folder with {FILE}; got {folder}. Give one that `clearance compare`, `clearance audit` or "
            "`card.save_folder` wrote."
        )
    rows = _parsed(path)
    if rows.get("schema") != SCHEMA:
        raise ValueError(
            f"{path} must be of schema {SCHEMA}; got {rows.get('schema')!r}. "
            "Read it with the version of Clearance that wrote it."
        )
    try:
        return Report(
            recipe=decode(checked(rows, "recipe", dict)),
            versions=decode(checked(rows, "versions", dict)),
            command=checked(rows, "command", str),
            created=checked(rows, "created", str),
            records=tuple(Record.from_json(row) for row in checked(rows, "measurements", list)),
            exhibits=tuple(
                _exhibit(folder, name)
                for name in checked(rows, "exhibits", list)
                if exhibits or not _is_ours(name) or (folder / name).is_file()
            ),
            runs=tuple(RunNote.from_json(row) for row in checked(rows, "runs", list)),
            missing="" if exhibits else _missing(path, checked(rows, "exhibits", list)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged: {type(error).__name__}: {error} Make the report again."
        ) from error


@contextmanager
def shown(name: str) -> Iterator[None]:
    """Turn what a report of another form makes fail, while it is shown, into one error that names it.

    `name` is the report's folder.

    Raises:
        ValueError: Settings or columns of the report are not of the form that Clearance writes.

    >>> with shown("last"):
    ...     {}["predicted"]
    Traceback (most recent call last):
        ...
    ValueError: last holds a report that cannot be shown; got KeyError: 'predicted'. Make the report again.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(
            f"{name} holds a report that cannot be shown; got {type(error).__name__}: {error}. Make the report again."
        ) from error


def exhibit_file(record: ExhibitRecord) -> str:
    """An exhibit's path in the report's folder: readable parts, then a digest of its content.

    >>> from clearance.vocabulary import Exhibit
    >>> shown = Exhibit("training", "curve", "curve", {}, "Training.")
    >>> exhibit_file(ExhibitRecord("digits", "plain", 0, shown))
    'exhibits/digits.plain.seed0.training.curve.a28155cad544.json'
    """
    shown = record.exhibit
    seed = [] if record.seed is None else [f"seed{record.seed}"]
    options = [f"{key}-{value}" for key, value in settings(shown.context)]
    parts = [record.dataset, record.method, *seed, shown.audit, shown.name, *options]
    readable = [*map(_slug, parts), _digest(_exhibit_text(record).encode())]
    return f"{FOLDER}/{'.'.join(part for part in readable if part)}.json"


def table_file(record: ExhibitRecord) -> str:
    """Where a table lies in the report's folder as CSV.

    >>> from clearance.vocabulary import Exhibit
    >>> shown = Exhibit("duplicates", "duplicates", "table", {"kind": ["exact"]}, "Pairs.")
    >>> table_file(ExhibitRecord("digits", "plain", 0, shown))
    'exhibits/digits.plain.seed0.duplicates.duplicates.105e1c1cdfe8.csv'
    """
    readable = exhibit_file(record).removesuffix(".json").rpartition(".")[0]
    return f"{readable}.{_digest(_table_text(record).encode())}.csv"


def _table_text(record: ExhibitRecord) -> str:
    """The columns as CSV; an apostrophe stands before a text that a spreadsheet would take for a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(record.exhibit.columns)
    for row in zip(*record.exhibit.columns.values(), strict=True):
        writer.writerow(
            [f"'{cell}" if str(cell)[:1] in _FORMULA and isinstance(cell, str) else cell for cell in row]
        )
    return text.getvalue()


def _exhibit_text(record: ExhibitRecord) -> str:
    return _text(record.to_json()) + "\n"


def _text(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, allow_nan=False, ensure_ascii=False)


_DIGITS = 12
_NAME = re.compile(rf".*\.([0-9a-f]{{{_DIGITS}}})\.(?:json|csv)")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def _digest_in(name: str) -> str | None:
    """The digest that the name of an exhibit's file ends in; None for another file."""
    found = _NAME.fullmatch(name)
    return found[1] if found else None


def _slug(part: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", part.lower()).strip("-")[:40]


def _identity(record: ExhibitRecord) -> tuple[Any, ...]:
    shown = record.exhibit
    return (record.dataset, record.method, shown.audit, shown.name, settings(shown.context))


def _check_once(what: str, found: Iterable[tuple[Any, int | None]]) -> None:
    """Raise ValueError if a thing was found twice for a seed."""
    known: dict[int | None, int | None] = {}  # each number once in memory
    seeds: dict[Any, set[int | None]] = {}
    for thing, each in found:
        seed, of_thing = known.setdefault(each, each), seeds.setdefault(thing, set())
        if seed in of_thing:
            raise ValueError(
                f"A report must hold each {what} once; got {thing} of seed {seed} more than once."
            )
        of_thing.add(seed)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # also of numbers with too many digits
        raise ValueError(
            f"{path} must hold JSON; {error}. Give the folder that `card.save_folder`, `clearance audit` or "
            "`clearance compare` wrote, or make the report again."
        ) from error
    if not isinstance(rows, dict):
        kind = type(rows).__name__
        raise ValueError(f"{path} must hold a JSON object; got {kind}. Make the report again.")  # noqa: TRY004
    return rows


def _exhibit(folder: Path, name: str) -> ExhibitRecord:
    if not _is_ours(name):
        raise ValueError(f"an exhibit must lie in {FOLDER}/; got {name!r}.")
    if not (folder / name).is_file():
        raise FileNotFoundError(f"{folder} must hold {name}, which its {FILE} names; it is missing.")
    digest = _digest_in(name)
    if digest not in (None, _digest((folder / name).read_bytes())):
        raise ValueError(f"{name} does not agree with {FILE}: it was changed after it was written.")
    try:
        return ExhibitRecord.from_json(_parsed(folder / name))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error


def _missing(path: Path, names: Sequence[Any]) -> str:
    """Which of a report's exhibits do not exist, in words."""
    count = sum(_is_ours(name) and not (path.parent / name).is_file() for name in names)
    if count and not (path.parent / FOLDER).is_dir():
        return f"there is no folder {FOLDER} beside {path}"
    return f"{count} of its {len(names)} exhibits are missing beside {path}" if count else ""


def _is_ours(name: Any) -> bool:
    """Whether `name` is a file directly in the exhibits' folder: a report must not read other files."""
    if not isinstance(name, str) or "\\" in name:
        return False
    path = PurePosixPath(name)
    return len(path.parts) == 2 and path.parts[0] == FOLDER and path.suffix == ".json"
