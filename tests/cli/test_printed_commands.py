"""Commands that are printed can be pasted: paths stand as they were typed."""

import getpass
import sys
from pathlib import Path

from clearance.cli._console import Console
from clearance.cli.audit import AuditCommand, command
from clearance.cli.compare import _command, _print_result
from clearance.experiments.recipe import Recipe
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


def test_a_comparisons_page_shows_no_folder_outside_and_no_user(monkeypatch):
    user = getpass.getuser()
    words = ["compare", f"--dataset=folder:../{user}/pets", "--recipe", f"{user}/mine.yaml", "--out", "~/cmp"]
    monkeypatch.setattr(sys, "argv", ["clearance", *words])
    shown = _command(Recipe(dataset="digits"))
    assert shown == "clearance compare --dataset=folder:pets --recipe images/mine.yaml --out cmp"


def test_the_command_for_what_is_left_has_no_images_that_it_would_refuse():
    options = AuditCommand("net.py:Net", train="a", unknown="photographs", slices=Path("s.csv"))
    assert "--unknown" not in command(options, ["minimal_perturbation"], exact=True)
    assert "--slices" not in command(options, ["out_of_distribution"], exact=True)
    assert "--unknown photographs" in command(options, ["out_of_distribution"], exact=True)
    assert "--slices s.csv" in command(options, exact=True)


def test_the_demonstration_has_no_audits_of_its_own():
    assert command(AuditCommand("demo"), ["calibration"], exact=True) == "clearance audit demo"
