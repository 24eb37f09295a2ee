"""A table of a report is also a file for a spreadsheet, which stays with its report and runs nothing."""

import csv

import pytest

from clearance.records import ExhibitRecord, Report
from clearance.records.store import load_report, table_file
from clearance.report import Card
from clearance.vocabulary import Exhibit

pytestmark = pytest.mark.filterwarnings("error")


def report(*names):
    columns = {"first image": list(names), "share": [0.5 for _ in names]}
    shown = Exhibit("duplicates", "duplicates", "table", columns, "Pairs.")
    curve = Exhibit("training", "curve", "curve", {"step": [0]}, "Training.")
    records = tuple(ExhibitRecord("digits", "plain", 0, one) for one in (shown, curve))
    return Report({}, {}, "", "2026-01-01T00:00:00+00:00", exhibits=records)


def rows(folder):
    (file,) = folder.glob("exhibits/*.csv")
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.reader(text))


def test_a_table_is_saved_as_csv(tmp_path):
    made = report("a/1.png", 'a/"two", 2.png')
    made.save(tmp_path)
    assert rows(tmp_path) == [["first image", "share"], ["a/1.png", "0.5"], ['a/"two", 2.png', "0.5"]]
    assert (tmp_path / table_file(made.exhibits[0])).is_file()
    assert load_report(tmp_path).exhibits == made.exhibits


def test_the_csv_of_a_report_before_is_removed_and_others_stay(tmp_path):
    report("a/1.png").save(tmp_path)
    own = tmp_path / "exhibits" / "mine.csv"
    own.write_text("my own notes\n")
    report("b/2.png").save(tmp_path)
    assert own.read_text() == "my own notes\n"
    own.unlink()
    assert rows(tmp_path)[1][0] == "b/2.png"


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_a_name_is_no_formula_to_a_spreadsheet(tmp_path, name):
    report(name).save(tmp_path)
    assert rows(tmp_path)[1] == [f"'{name}", "0.5"]


def test_a_card_gives_a_table_as_rows():
    card = Card(report("a/1.png", "b/2.png"))
    assert card.table("duplicates", "duplicates")[1] == {"first image": "b/2.png", "share": 0.5}
    assert card.table("duplicates", "other") == []
