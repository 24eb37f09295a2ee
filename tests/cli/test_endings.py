"""How commands end: a defect has a status of its own, and no output fails for the letters of a terminal."""

import io
import json
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import papers.__main__ as of_papers
from clearance.cli import __main__ as command
from clearance.cli._ending import one_line_errors
from clearance.cli.audit import AuditCommand
from clearance.report import Card
from cli.terminal import run
from gate.reports import of_images

DEFECT = 70


@dataclass(frozen=True)
class Broken:
    """A command with a defect."""

    error: ClassVar[Exception] = RuntimeError("a defect")

    def run(self):
        raise self.error


@pytest.mark.parametrize(
    "error", [RuntimeError("a"), KeyError("b"), TypeError("c"), RecursionError(), MemoryError()]
)
def test_a_defect_is_shown_and_has_a_status_of_its_own(monkeypatch, error):
    """Not 1, with which ``check`` says that a model got worse, nor 2, which blames the user."""
    monkeypatch.setattr(Broken, "error", error)
    monkeypatch.setitem(command.COMMANDS, "list", Broken)
    status, _, complaint = run("list")
    assert status == DEFECT
    assert "Traceback" in complaint
    assert complaint.endswith("clearance: this is a defect; please report the lines above.\n")


def test_also_of_the_papers(monkeypatch, capsys):
    def broken():
        raise KeyError("a defect")

    monkeypatch.setattr(of_papers, "_print_list", broken)
    with pytest.raises(SystemExit) as ended:
        of_papers.main(["list"])
    assert ended.value.code == DEFECT
    assert "papers: this is a defect" in capsys.readouterr().err


def test_a_warning_is_a_line_too():
    with one_line_errors("clearance"):
        assert (
            warnings.formatwarning("of two\nlines", UserWarning, "x.py", 1)
            == "clearance: warning: of two lines\n"
        )
    assert warnings.formatwarning("outside", UserWarning, "x.py", 1).startswith(
        "x.py:1: UserWarning: outside"
    )


def test_also_where_a_package_is_missing(tmp_path):
    (tmp_path / "tyro.py").write_text("raise ImportError('no tyro here')\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "clearance", "check", "a"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
    )
    assert done.returncode == DEFECT
    assert b"no tyro here" in done.stderr


def test_a_reader_that_goes_away_does_not_change_the_status(tmp_path):
    """As in ``clearance check ... | head``: 1 would say that the model got worse."""
    of_images([0, 1] * 40).save(tmp_path)
    words = ("check", str(tmp_path), "--against", str(tmp_path), "--fail-if", "accuracy drops 1pt")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "clearance", *words], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("stream", [1, 2])
def test_a_closed_stream_does_not_change_the_status(tmp_path, stream):
    words = ("check", "nowhere", "--against", str(tmp_path), "--fail-if", "accuracy drops 1pt")
    done = subprocess.run([sys.executable, "-m", "clearance", *words], preexec_fn=lambda: os.close(stream))
    assert done.returncode == 2


def on_a_terminal_of(encoding, monkeypatch, *words):
    """What a command writes on a terminal that has only the letters of `encoding`, and its status."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True) for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(sys, "argv", ["clearance", *words])
    status: str | int | None = 0
    try:
        command.main(list(words))
    except SystemExit as ended:
        status = int(ended.code or 0)
    monkeypatch.undo()
    return status, *(each.buffer.getvalue().decode(encoding) for each in (out, err))


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "shift-jis"])
class TestLettersThatATerminalLacks:
    def test_a_report_is_printed(self, encoding, monkeypatch, tmp_path):
        of_images([0, 1] * 40, method="méthode→別").save(tmp_path)
        status, shown, complaint = on_a_terminal_of(encoding, monkeypatch, "report", str(tmp_path))
        assert (status, complaint) == (0, "")
        assert "Report: " in shown

    def test_a_list_is_printed(self, encoding, monkeypatch):
        status, shown, complaint = on_a_terminal_of(encoding, monkeypatch, "list")
        assert (status, complaint) == (0, "")
        assert "co_adaptation" in shown

    def test_an_error_is_one_line(self, encoding, monkeypatch):
        status, _, complaint = on_a_terminal_of(encoding, monkeypatch, "report", "nowhere/別→\udce9")
        assert status == 2
        assert complaint.count("\n") == 1


def test_json_is_json_on_any_terminal(monkeypatch, tmp_path):
    card = Card(of_images([0, 1] * 40, method="méthode→別"))
    monkeypatch.setattr(AuditCommand, "_card", lambda self, console: card)
    words = ("audit", "demo", "--json", "--out", str(tmp_path / "audit"))
    status, shown, complaint = on_a_terminal_of("ascii", monkeypatch, *words)
    assert (status, complaint.count("\n")) == (0, 1)  # how long it takes
    assert json.loads(shown) == json.loads(Path(tmp_path, "audit", "report.json").read_text("utf-8"))


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_json_survives_a_reader_that_goes_away(tmp_path, stream):
    script = (
        "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "from clearance.cli import audit\n"
        "from clearance.cli.__main__ import main\n"
        "from clearance.report import Card\n"
        "from gate.reports import of_images\n"
        "def card(self, console):\n"
        "    console.print('one line')\n"
        "    return Card(of_images([0, 1] * 40))\n"
        "audit.AuditCommand._card = card\n"
        f"main(['audit', 'demo', '--json', '--out', {str(tmp_path / 'out')!r}])\n"
    )
    tests = str(Path(__file__).parents[1])
    read, write = os.pipe()
    os.close(read)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: write}
    done = subprocess.run([sys.executable, "-c", script, tests], text=True, **streams)  # type: ignore[call-overload]
    os.close(write)
    assert done.returncode == 0
    if stream == "stdout":
        assert "Broken pipe" not in done.stderr
    else:
        assert json.loads(done.stdout)["measurements"]


def test_help_that_no_one_reads_to_its_end_is_no_error():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "clearance", "audit", "--help"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
