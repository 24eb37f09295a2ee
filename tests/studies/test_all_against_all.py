"""The ledger of heads from one image per class: several reports and searches, and what was not run again."""

import csv
import json
from dataclasses import asdict

import pytest

from clearance.records import Record, Report
from clearance.research import Trial
from clearance.vocabulary import Measurement
from papers.all_against_all import __main__ as command

HEADS = [(head, samples) for samples in (10, 100) for head in ("retrained", "linear", "class mean")]


def report(errors, seconds, day):
    """Three seeds of some methods, by their one-image error and their time."""
    records = []
    for method, error in errors.items():
        for seed in range(3):

            def add(audit, name, value, unit="fraction", method=method, seed=seed, **context):
                found = Measurement(audit, name, value, unit, 100, better="lower", context=context)
                records.append(Record("digits", method, seed, found))

            add("accuracy", "error", error / 2 + 0.001 * seed, split="test")
            for head, samples in HEADS:
                add(
                    "co_adaptation",
                    "error",
                    error + 0.001 * seed * (1 + len(method)),
                    head=head,
                    samples=samples,
                )
            add("training", "seconds", seconds[method] * (1 + 0.1 * seed), "seconds")
    return Report({}, {"torch": "2"}, f"run of {day}", f"{day}T00:00:00", tuple(records))


FLAT = "collapsed at step 9: all features are equal; lower the learning rate"


def trial(method, lr, error, status="finished at step 10"):
    return Trial(method, lr, 10, 60, error, 0.001, error, (status, status))


@pytest.fixture
def written(monkeypatch, tmp_path):
    """The ledger of a first report, and then of two others of another day; the folder."""
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results")
    command.RESULTS.mkdir()
    reports = {
        "first": report({"plain": 0.10, "foca": 0.03}, {"plain": 1.0, "foca": 3.0}, "2026-11-01"),
        "second": report({"plain": 0.11, "center": 0.02}, {"plain": 20.0, "center": 22.0}, "2026-11-02"),
        "longer": report({"plain-longer": 0.06}, {"plain-longer": 60.0}, "2026-11-02"),
    }
    trials = {
        "first": [trial("plain", 0.1, 0.2), trial("plain", 0.2, 0.9, FLAT), trial("foca", 0.1, 0.1)],
        "second": [trial("center", 0.1, 0.05), trial("center", 0.2, 0.04)],
    }
    for name, one in reports.items():
        one.save(tmp_path / name)
        rows = [asdict(t) for t in trials.get(name, [])]
        (tmp_path / name / "search.json").write_text(json.dumps(rows), "utf-8")
    command.main("digits", [str(tmp_path / "first")], [str(tmp_path / "first")])
    command.main("digits", [str(tmp_path / "second")], [str(tmp_path / "second"), str(tmp_path / "longer")])
    return tmp_path / "results"


def cells(text):
    table = text.partition("## The search")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}


def test_what_was_not_run_again_stays_and_the_baseline_comes_first(written):
    table = cells((written / "digits.md").read_text("utf-8"))
    assert [name for name in table if name in command.ORDER] == ["plain", "plain-longer", "foca", "center"]
    assert table["plain"][1].startswith("11.")
    assert table["foca"][1].startswith("3.")


def test_times_are_compared_within_a_day(written):
    table = cells((written / "digits.md").read_text("utf-8"))
    assert {name: table[name][-1] for name in ("plain", "plain-longer", "foca", "center")} == {
        "plain": "1x", "plain-longer": "3.0x", "foca": "3.0x", "center": "1.1x"
    }  # fmt: skip


def test_trials_of_both_searches_are_kept(written):
    with (written / "digits-search.csv").open(encoding="utf-8", newline="") as file:
        tried = [(row["method"], float(row["lr"])) for row in csv.DictReader(file)]
    assert tried == [("plain", 0.1), ("plain", 0.2), ("foca", 0.1), ("center", 0.1), ("center", 0.2)]
    chosen = (written / "digits.md").read_text("utf-8").partition("## The search")[2]
    assert "| plain | one image error | 0.1 |" in chosen, "a status with a semicolon is one status"


def test_foca_is_compared_with_every_other_method(written):
    text = (written / "digits.md").read_text("utf-8")
    assert "- foca against plain, from 10 images: **better**" in text
    assert "- foca against center, from 10 images: **worse**" in text
