"""A report folder: what goes in comes out, half-written folders are refused, and names are stable."""

import contextlib
import json
import math
import os
import re
from dataclasses import replace

import pytest

from clearance.records.record import ExhibitRecord, Record, RunNote
from clearance.records.store import Report, exhibit_file, load_report
from clearance.vocabulary import Exhibit, Measurement, Outcome


def shown(method="plain", seed: int | None = 0, **context):
    return ExhibitRecord(
        "digits", method, seed, Exhibit("training", "curve", "curve", {"step": [0, 1]}, "c", context)
    )


def error(method, seed, value, audit="accuracy", n=100):
    found = Measurement(audit, "error", value, "fraction", n=n, better="lower", context={"split": "test"})
    return Record("digits", method, seed, found)


@pytest.fixture
def report():
    return Report(
        recipe={"epochs": 3, "methods": ["plain", "foca"], "norm": math.inf},
        versions={"clearance": "0.1.0"},
        command="clearance compare",
        created="2026-01-01T00:00:00+00:00",
        records=(
            error("plain", 0, 0.2),
            error("plain", 1, 0.25),
            error("foca", 0, 0.1),
            error("foca", 1, 0.1),
        ),
        exhibits=(shown(), shown("foca")),
        runs=(RunNote("plain", 0, Outcome.FINISHED, "finished at step 9"),),
    )


def test_round_trip(report, tmp_path):
    path = report.save(tmp_path / "out")
    assert load_report(path.parent) == report
    assert path.read_text(encoding="utf-8") == load_report(path.parent).to_json()


def test_keys_are_the_published_ones(report, tmp_path):
    rows = json.loads(report.save(tmp_path).read_text(encoding="utf-8"))
    assert list(rows) == [
        "schema", "recipe", "versions", "command", "created", "runs", "measurements", "exhibits", "summary",
    ]  # fmt: skip
    assert rows["schema"] == 1
    names = [re.fullmatch(r"(.*)\.[0-9a-f]{12}\.json", name) for name in rows["exhibits"]]
    assert [name and name[1] for name in names] == [
        "exhibits/digits.plain.seed0.training.curve",
        "exhibits/digits.foca.seed0.training.curve",
    ]


def test_summary_is_computed_from_the_records_not_read(report, tmp_path):
    path = report.save(tmp_path)
    rows = json.loads(path.read_text(encoding="utf-8"))
    rows["measurements"][0]["value"] = 0.9
    rows["summary"][0]["value"] = 77.0
    path.write_text(json.dumps(rows), encoding="utf-8")
    mean = load_report(tmp_path).summary[0]
    assert mean.value == pytest.approx((0.9 + 0.25) / 2)


def test_a_baseline_without_measurements_stays_the_baseline(report):
    runs = tuple(
        RunNote(method, 0, outcome, str(outcome))
        for method, outcome in (("mine", Outcome.DIVERGED), ("plain", Outcome.FINISHED))
    )
    assert replace(report, runs=runs).methods == ("mine", "plain", "foca")
    assert {row.kind for row in replace(report, runs=runs).summary} == {"mean"}
    assert {row.against for row in report.summary if row.kind == "ratio"} == {"plain"}


def test_names_stay_apart_where_letters_are_lost():
    methods = [
        "foca",
        "FOCA",
        "fo ca",
        "fo-ca",
        "fo_ca",
        "../../x",
        "日本",
        "日光",
        "a" * 60,
        "a" * 61,
        "seed0.x",
    ]
    names = [exhibit_file(shown(method)) for method in methods]
    assert len({name.lower() for name in names}) == len(methods)
    assert all(name.startswith("exhibits/") and name.count("/") == 1 for name in names)
    assert exhibit_file(shown(split="test")) != exhibit_file(shown(split="train"))
    assert exhibit_file(shown("summary", None)) != exhibit_file(shown("summary", 0))


def test_a_new_report_removes_the_exhibits_of_the_old_and_nothing_else(report, tmp_path):
    report.save(tmp_path)
    note = tmp_path / "exhibits" / "note.json"
    note.write_text("{}", encoding="utf-8")
    replace(report, exhibits=(shown("foca"),)).save(tmp_path)
    assert sorted(path.name for path in (tmp_path / "exhibits").iterdir()) == [
        exhibit_file(shown("foca")).removeprefix("exhibits/"),
        "note.json",
    ]


def test_an_old_report_cannot_make_save_delete_outside(report, tmp_path):
    victim = tmp_path / "victim.json"
    victim.write_text("{}", encoding="utf-8")
    out = tmp_path / "out"
    path = report.save(out)
    names = ["../victim.json", "exhibits/../../victim.json", str(victim)]
    path.write_text(json.dumps({"exhibits": names}), encoding="utf-8")
    report.save(out)
    assert victim.exists()


@pytest.mark.parametrize("name", ["../secret.json", "exhibits/../../secret.json", "/etc/secret.json", 3])
def test_an_exhibit_outside_the_folder_is_refused(report, tmp_path, name):
    path = report.save(tmp_path)
    rows = json.loads(path.read_text(encoding="utf-8")) | {"exhibits": [name]}
    path.write_text(json.dumps(rows), encoding="utf-8")
    with pytest.raises(ValueError, match="must lie in exhibits/"):
        load_report(tmp_path)


def test_missing_and_damaged_reports_are_said_to_be(report, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"a report is a folder with report\.json"):
        load_report(tmp_path)
    path = report.save(tmp_path)
    text = path.read_text(encoding="utf-8")
    for damaged, message in [
        (text[:100], "must hold JSON"),
        ("[]", "got list"),
        (text.replace('"schema": 1', '"schema": 2'), "schema 1; got 2"),
        (text.replace('"runs"', '"run"'), "'runs'"),
        (text.replace('"unit"', '"units"', 1), "must have the fields"),
    ]:
        path.write_text(damaged, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            load_report(tmp_path)
    path.write_text(text, encoding="utf-8")
    (tmp_path / exhibit_file(shown())).unlink()
    with pytest.raises(FileNotFoundError, match="it is missing"):
        load_report(tmp_path)


def test_the_same_quantity_twice_is_refused(report):
    with pytest.raises(ValueError, match="each measurement once"):
        replace(report, records=(*report.records, error("foca", 1, 0.3)))
    with pytest.raises(ValueError, match="each exhibit once"):
        replace(report, exhibits=(shown(), shown()))


def of_value(report, value):
    """A report of other numbers, with exhibits of the same names."""
    exhibit = replace(shown().exhibit, columns={"step": [0, value]})
    return replace(report, exhibits=(ExhibitRecord("digits", "plain", 0, exhibit),), command=f"of {value}")


def test_killed_at_any_moment_one_report_is_there_and_never_parts_of_two(report, tmp_path, monkeypatch):
    """Before every write, rename and removal in turn: the report, its exhibits and the page are of one audit."""
    old, new, touches = of_value(report, 1), of_value(report, 2), [0]
    seen = set()

    def dies(function):
        def touch(*given, **named):
            touches[0] -= 1
            if touches[0] < 0:
                raise KeyboardInterrupt
            return function(*given, **named)

        return touch

    for name in ("replace", "unlink"):
        monkeypatch.setattr(type(tmp_path), name, dies(getattr(type(tmp_path), name)))
    monkeypatch.setattr(os, "fsync", dies(os.fsync))
    for moment in range(40):
        touches[0] = 10**9
        folder = tmp_path / str(moment)
        old.save(folder, pages={"index.html": old.command})
        touches[0] = moment
        with contextlib.suppress(KeyboardInterrupt):
            new.save(folder, pages={"index.html": new.command})
        touches[0] = 10**9
        found, page = load_report(folder), folder / "index.html"
        assert found in (old, new)
        assert not page.exists() or page.read_text() == found.command
        seen.add((found.command, page.exists()))
        new.save(folder, pages={"index.html": new.command})
        assert sorted(path.name for path in folder.rglob("*")) == sorted(
            ["exhibits", "index.html", "report.json", exhibit_file(new.exhibits[0]).removeprefix("exhibits/")]
        )
    assert {("of 1", True), ("of 2", False), ("of 2", True)} <= seen


def test_a_full_disk_leaves_the_old_report(report, tmp_path, monkeypatch):
    old, new = of_value(report, 1), of_value(report, 2)
    old.save(tmp_path, pages={"index.html": "old"})

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        new.save(tmp_path, pages={"index.html": "new"})
    assert load_report(tmp_path) == old
    assert (tmp_path / "index.html").read_text() == "old"
    assert not list(tmp_path.rglob("*.tmp"))


def test_an_exhibit_that_was_changed_is_refused(report, tmp_path):
    path = report.save(tmp_path)
    exhibit = tmp_path / exhibit_file(shown())
    exhibit.write_text(exhibit.read_text().replace("[0, 1]", "[0, 7]"))
    with pytest.raises(ValueError, match=r"does not agree with report\.json"):
        load_report(path)
    with pytest.raises(ValueError, match=r"does not agree with report\.json"):
        load_report(path, exhibits=False)


DAMAGE = [
    ("recipe", None),
    ("recipe", []),
    ("versions", None),
    ("command", 3),
    ("created", None),
    ("runs", None),
    ("runs", [None]),
    ("runs", [{"method": "plain", "seed": "0", "outcome": "finished", "status": ""}]),
    ("measurements", {}),
    ("measurements", [3]),
    ("exhibits", None),
    ("exhibits", {"a": 1}),
]
FIELDS = [
    ("value", 10**400),
    ("value", "0.1"),
    ("value", None),
    ("value", True),
    ("n", 1.5),
    ("n", None),
    ("low", "a"),
    ("context", None),
    ("context", {"split": None}),
    ("context", {"split": ["test"]}),
    ("audit", None),
    ("seed", "0"),
    ("method", 3),
    ("unit", []),
]


@pytest.mark.parametrize(("field", "value"), [*DAMAGE, *(("measurements." + name, v) for name, v in FIELDS)])
def test_a_field_of_another_kind_is_one_error_that_names_the_file(report, tmp_path, field, value):
    path = report.save(tmp_path)
    rows = json.loads(path.read_text(encoding="utf-8"))
    name, _, inside = field.partition(".")
    if inside:
        rows[name][0][inside] = value
    else:
        rows[name] = value
    path.write_text(json.dumps(rows), encoding="utf-8")
    with pytest.raises(ValueError, match=r"report\.json is damaged: .*Make the report again"):
        load_report(tmp_path)


@pytest.mark.parametrize("text", ["[" * 10**5, '{"schema": ' + "1" * 5000 + "}", "NaN", ""])
def test_text_that_no_parser_reads_is_one_error_that_names_the_file(report, tmp_path, text):
    path = report.save(tmp_path)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"report\.json must hold"):
        load_report(tmp_path)
