"""A report folder: what goes in comes out, half-written folders are refused, and names are stable."""

import json
import math
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
    assert rows["exhibits"] == [
        "exhibits/digits.plain.seed0.training.curve.json",
        "exhibits/digits.foca.seed0.training.curve.json",
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
        "digits.foca.seed0.training.curve.json",
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
    with pytest.raises(FileNotFoundError, match=r"must hold a report\.json"):
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
