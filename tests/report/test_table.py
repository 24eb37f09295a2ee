"""The first screen's table in a terminal."""

import re
from dataclasses import replace

from clearance.records import Record, Report, RunNote
from clearance.report.audits import all_findings
from clearance.report.card import Card
from clearance.report.findings import Findings
from clearance.report.sweep import at_shown
from clearance.report.tables import overview
from clearance.report.terminal import comparison_table
from clearance.vocabulary import Measurement, Outcome
from report.reading import first_screen

METHODS = ("plain", "noisy", "dropout", "batchnorm", "foca")


def test_table_says_what_the_first_screen_says(comparison, page):
    table = comparison_table(comparison)
    assert table.columns == (
        "method",
        "wrong, own layers",
        "wrong, from one image per digit",
        "time",
        "memory",
    )
    assert [row[0] for row in table.rows] == ["plain training", "dropout", "batch norm", "FOCA"]
    screen = re.sub(r"<[^>]*>", "", first_screen(page))
    for row in table.rows:
        assert all(cell in screen for cell in row)
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_five_methods_fit_into_a_terminal(invented):
    report = invented(methods=METHODS, seeds=2, heads=("retrained", "linear"), pictures=False).report()
    runs = tuple(
        replace(note, outcome=Outcome.DIVERGED, status="diverged at step 12") for note in report.runs
    )
    for one in (report, replace(report, runs=runs)):
        lines = str(comparison_table(one)).splitlines()
        assert len(lines) > 7
        assert max(map(len, lines)) < 100
        assert " ".join(lines).startswith(comparison_table(one).title)
    assert all(row[0].endswith(" (2 diverged)") for row in comparison_table(replace(report, runs=runs)).rows)


# What MLflow takes; TensorBoard and Weights & Biases take these, too.
TAKEN = re.compile(r"[\w.\- /]+")


def test_every_mean_has_a_name_that_trackers_take(comparison):
    flat = Card(comparison).flat()
    means = [row for row in comparison.summary if row.kind == "mean"]
    assert sorted(flat.values()) == sorted(row.value for row in means)  # none is lost to an equal name
    assert all(TAKEN.fullmatch(name) for name in flat)
    assert {name.partition("/")[0] for name in flat} == {row.method for row in means}
    row = next(row for row in means if row.audit == "accuracy" and row.context == {"split": "test"})
    assert flat[f"{row.method}/accuracy.{row.name}.split-test"] == row.value


def test_names_of_odd_methods_stay_apart(invented):
    report = invented(methods=("a[1]", "a{1}", "..", "C\u00e6sar=b"), seeds=1, pictures=False).report()
    flat = Card(report).flat()
    assert len(flat) == sum(row.kind == "mean" for row in report.summary)
    assert all(TAKEN.fullmatch(name) and ".." not in name.split("/") for name in flat)


def test_print_says_what_the_page_of_one_network_says_first(single):
    lines = all_findings(Findings(single, single.records[0].dataset))
    assert lines
    shown = " ".join(str(Card(single)).split())
    for line in lines:
        assert " ".join(line.said.striptags().split()) in shown
    assert max(map(len, str(Card(single)).splitlines())) < 100


def test_in_a_sweep_only_runs_at_the_shown_value_count_as_failed():
    sweep = {"sweep": {"field": "lr", "values": [0.1, 1.0], "shown": 0.1}}
    context: dict[str, str | float] = {"split": "test", "lr": 0.1}
    record = Record(
        "digits", "plain", 0, Measurement("accuracy", "error", 0.1, "fraction", 9, context=context)
    )
    for value, endings in ((1, ""), (0.1, "1 diverged")):
        note = RunNote("plain", 0, Outcome.DIVERGED, f"diverged at step 3 (lr {value:g})")
        report = Report(sweep, {}, "", "", (record,), runs=(note,))
        (line,) = overview(Findings(at_shown(report), "digits"))
        assert line.endings == endings
