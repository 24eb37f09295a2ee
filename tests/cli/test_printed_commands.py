"""Commands that are printed can be pasted: paths stand as they were typed."""

import sys

from clearance.cli._console import Console
from clearance.cli.audit import AuditCommand, command
from clearance.cli.compare import _print_result
from clearance.records import Report
from clearance.report import Card


def test_after_a_comparison_paths_are_those_that_were_given(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["clearance", "compare", "--root", "data", "--out", "/tmp/cmp"])
    left = {
        "audits_left_out": [{"audit": "accuracy", "why": "failed", "reason": "x", "run": "plain, seed 0"}],
        "audits_left_out_command": "clearance compare --root ROOT --out cmp",
    }
    _print_result(Console(), Card(Report(left, {}, "", "")), "page.html")
    assert "clearance compare --root data --out /tmp/cmp" in capsys.readouterr().out


def test_the_demonstration_has_no_audits_of_its_own():
    assert command(AuditCommand("demo"), ["calibration"], exact=True) == "clearance audit demo"
