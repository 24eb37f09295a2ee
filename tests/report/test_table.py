"""The first screen's table in a terminal."""

import re
from dataclasses import replace

from clearance.gate import Tolerance
from clearance.report.card import Card
from clearance.report.terminal import comparison_table
from clearance.vocabulary import Outcome
from report.reading import first_screen  # type: ignore[import-not-found]  # on pytest's path, see pyproject.toml

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


def test_every_mean_has_a_name_that_the_gate_understands(comparison):
    """As many names as the summary has means; a gate that is given one finds that number and no other."""
    flat = Card(comparison).flat()
    means = [row for row in comparison.summary if row.kind == "mean"]
    assert len(flat) == len(means)
    for name, value in flat.items():
        method, _, rest = name.partition("/")
        asked = Tolerance.parse(f"{rest} rises 1").quantity
        exact = len(asked.context)
        (row,) = [
            row
            for row in means
            if row.method == method
            and asked.fits(row.audit, row.name, row.context)
            and len(row.context) == exact
        ]
        assert row.value == value
