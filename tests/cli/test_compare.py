"""``clearance compare`` and ``report``: from the words that a user types to the files that they leave."""

import json
import os
import platform
import re
import shutil
import sys
from pathlib import Path

import pytest

from clearance.cli._console import Console
from clearance.cli.compare import _save_partial
from clearance.experiments import engines
from clearance.records import Report
from clearance.report import Card
from cli.terminal import plain_text, run


def test_compare_prints_runs_table_sentence_and_path(compared, home):
    lines = compared.splitlines()
    assert sum(bool(re.match(r"\d/4  (plain|foca), seed [01]: ", line)) for line in lines) == 4
    assert any(re.match(r"plain training +\d", line) for line in lines)
    assert any(re.match(r"FOCA +\d", line) for line in lines)
    assert f"Report: {home / 'report' / 'index.html'}" in lines


def test_compare_leaves_page_records_and_exhibits(compared, home):
    folder = home / "report"
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert report["schema"] == 1
    assert report["recipe"]["dataset"] == "npz:world.npz"
    assert report["versions"]["torch"]
    found = {(row["method"], row["seed"], row["audit"]) for row in report["measurements"]}
    assert found == {
        (method, seed, audit)
        for method in ("plain", "foca")
        for seed in (0, 1)
        for audit in ("accuracy", "co_adaptation", "class_scatter", "training")
    }
    assert report["exhibits"]
    assert all((folder / name).is_file() for name in report["exhibits"])
    page = (folder / "index.html").read_text("utf-8")
    assert page.lstrip().lower().startswith("<!doctype html")
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page)
    assert re.search("FOCA", plain_text(page))


def test_nothing_that_is_passed_on_names_the_machine(compared, home):
    files = [path for path in (home / "report").rglob("*") if path.is_file() and "runs" not in path.parts]
    assert len(files) > 3
    for path in files:
        text = path.read_text("utf-8")
        assert str(home) not in text, path
        assert home.name not in text, path
        assert str(Path.home()) + os.sep not in text, path
        assert str(Path(sys.executable).parent) not in text, path
        if len(platform.node()) > 5:
            assert platform.node() not in text, path


def test_the_same_command_reuses_its_runs(compared, words, home, monkeypatch):
    before = json.loads((home / "report" / "report.json").read_text("utf-8"))
    monkeypatch.setattr(engines, "_Worker", lambda *_: pytest.fail("a run was started"))
    status, shown, _ = run(*words)
    assert status == 0
    assert shown.count("already there") == 4
    after = json.loads((home / "report" / "report.json").read_text("utf-8"))
    assert after["measurements"] == before["measurements"]
    # fewer seeds or methods are a part of what is there
    status, _, _ = run(*words[:-4], "--out", str(home / "report"), "--methods", "foca", "--seeds", "1")
    assert status == 0
    part = json.loads((home / "report" / "report.json").read_text("utf-8"))
    wanted = [row for row in before["measurements"] if (row["method"], row["seed"]) == ("foca", 0)]
    assert part["measurements"] == wanted
    run(*words)  # as it was, for the other tests


def test_report_shows_what_the_records_say(compared, home, tmp_path, monkeypatch):
    folder = tmp_path / "copy"
    shutil.copytree(home / "report", folder, ignore=shutil.ignore_patterns("runs"))
    original = (folder / "index.html").read_text("utf-8")
    assert run("report", str(folder))[0] == 0
    assert (folder / "index.html").read_text("utf-8") == original
    rows = json.loads((folder / "report.json").read_text("utf-8"))
    for row in rows["measurements"]:
        if (row["method"], row["audit"], row["context"].get("split")) == ("foca", "accuracy", "test"):
            row["value"] = 0.4321
    (folder / "report.json").write_text(json.dumps(rows), "utf-8")
    status, shown, _ = run("report", str(folder))
    assert status == 0
    changed = (folder / "index.html").read_text("utf-8")
    assert "43.2" in plain_text(changed)
    assert "43.2" not in plain_text(original)
    assert "43.2" in shown


def test_a_reports_command_names_no_folder_of_the_machine(compared, home, tmp_path, monkeypatch):
    command = json.loads((home / "report" / "report.json").read_text("utf-8"))["command"]
    assert command == "clearance compare --recipe mine.yaml --out report --jobs 2"
    monkeypatch.chdir(tmp_path)
    short = (
        "--methods plain --seeds 1 --epochs 1 --model tiny-cnn --audits accuracy --out results/one --jobs 1"
    )
    assert run("compare", f"--dataset=npz:{home}/world.npz", *short.split())[0] == 0
    command = json.loads(Path("results/one/report.json").read_text("utf-8"))["command"]
    assert command == f"clearance compare --dataset=npz:world.npz {short}"


def test_a_failed_run_is_on_the_page_and_the_exit_status_says_it(compared, home, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(home / "report", folder)
    (lost,) = folder.glob("runs/foca-seed1-*/model.safetensors")
    lost.unlink()
    status, shown, _ = run(
        "compare", "--recipe", str(home / "mine.yaml"), "--out", str(folder), "--jobs", "1"
    )
    assert status == 1
    assert shown.count("already there") == 3
    assert re.search(r"foca, seed 1: failed: .*model\.safetensors cannot be read", " ".join(shown.split()))
    page = plain_text((folder / "index.html").read_text("utf-8"))
    assert "seed 1 stopped" in page or "seed 1 failed" in page
    assert str(tmp_path) not in page


def test_a_partial_page_that_cannot_be_written_does_not_end_the_runs(monkeypatch, capsys):
    def full(card, out):
        raise OSError("No space left on device")

    monkeypatch.setattr("clearance.cli.compare._saved", full)
    _save_partial(Console(), "anywhere", Card(Report({}, {}, "", "")))
    assert capsys.readouterr().out == "No partial report: No space left on device\n"
