"""``clearance check``: statuses that a pipeline can trust, and the files beside them."""

import os
import shutil
import subprocess
import sys
import threading
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from cli.terminal import loaded_by, run
from gate.reports import of_images


def wrong(count, n=400):
    return (np.arange(n) < count).astype(int).tolist()


@pytest.fixture
def folders(tmp_path):
    """Three audits of the same images: of the older model, of one alike, and of a worse one."""
    for name, count in (("last", 20), ("alike", 21), ("worse", 60)):
        of_images(wrong(count)).save(tmp_path / name)
    return tmp_path


def check(folders, now, *options, against="last"):
    return run("check", str(folders / now), "--against", str(folders / against), *options)


def test_status_and_sentence(folders):
    status, shown, complaint = check(folders, "alike", "--fail-if", "accuracy drops 1pt")
    assert (status, complaint) == (0, "")
    assert shown.startswith("passed: accuracy drops 1pt; 95.00 % -> 94.75 %, change ")
    status, shown, complaint = check(folders, "worse", "--fail-if", "accuracy drops 1pt")
    assert (status, complaint) == (1, "")
    assert shown.startswith("failed: accuracy drops 1pt; 95 % -> 85 %, change -1")


def test_one_that_fails_or_cannot_be_measured_decides(folders):
    missing = ("--fail-if", "flip_distance drops 10%")
    status, shown, _ = check(folders, "alike", "--fail-if", "accuracy drops 1pt", *missing)
    assert status == 3
    assert shown.count("\n") == 2
    assert check(folders, "worse", *missing, "--fail-if", "accuracy drops 1pt")[0] == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ((), "give at least one tolerance"),
        (("--fail-if", "accuracy falls 1pt"), "must be one of 'drops'"),
        (("--fail-if", "accuracy drops 1"), "an amount of 1 or more tolerates any change of a fraction"),
        (("--fail-if", "accuracy drops", "--method", "foca"), "`method` must be one of 'mine'"),
    ],
)
def test_usage_is_2(folders, options, complaint):
    status, _, printed = check(folders, "alike", *options)
    assert status == 2
    assert complaint in printed
    assert check(folders, "nothing", "--fail-if", "accuracy drops")[0] == 2


def test_a_report_may_be_a_file_of_any_name_with_or_without_its_exhibits(folders):
    shutil.copy(folders / "worse" / "report.json", folders / "worse" / "audit.json")
    assert (
        check(folders, "worse/audit.json", "--fail-if", "accuracy drops 1pt", against="last/report.json")[0]
        == 1
    )
    shutil.copy(folders / "last" / "report.json", folders / "last.json")  # alone
    status, shown, _ = check(folders, "worse", "--fail-if", "accuracy drops 1pt", against="last.json")
    assert status == 3
    assert (
        f"there is no folder exhibits beside {folders / 'last.json'}, so that numbers of single images"
        in shown
    )
    assert "keep no numbers" not in shown


def test_missing_exhibits_are_said_of_the_report_that_lacks_them(folders):
    for path in (folders / "worse" / "exhibits").iterdir():
        path.unlink()
    status, shown, _ = check(folders, "worse", "--fail-if", "accuracy drops 1pt")
    assert status == 3
    assert f"(1 of its 1 exhibits are missing beside {folders / 'worse' / 'report.json'}, " in shown


def test_files_for_the_service(folders):
    junit, table = folders / "check.xml", folders / "check.md"
    options = ("--fail-if", "accuracy drops 1pt", "--junit", str(junit), "--markdown", str(table), "--quiet")
    assert check(folders, "worse", *options) == (1, "", "")
    suite = ET.parse(junit).getroot()[0]
    assert suite.attrib == {"name": "clearance check", "tests": "1", "failures": "1", "errors": "0"}
    assert table.read_text().startswith("### clearance check: failed")


def test_it_needs_no_torch(folders):
    words = [
        "check",
        str(folders / "alike"),
        "--against",
        str(folders / "last"),
        "--fail-if",
        "accuracy drops 1pt",
    ]
    shown, modules = loaded_by(*words)
    assert shown.startswith("passed: ")
    assert not modules & {"torch", "matplotlib"}


def read_by_another(pipe):
    """What arrives in a named pipe, in a list that is filled once its writer closes it."""
    arrived: list[str] = []
    reader = threading.Thread(target=lambda: arrived.append(pipe.read_text("utf-8")), daemon=True)
    reader.start()
    return reader, arrived


@pytest.mark.parametrize("option", ["--junit", "--markdown"])
def test_a_pipe_is_written_through_and_stays_a_pipe(folders, option):
    pipe = folders / "pipe"
    os.mkfifo(pipe)
    reader, arrived = read_by_another(pipe)
    assert check(folders, "alike", "--fail-if", "accuracy drops 1pt", option, str(pipe))[0] == 0
    assert pipe.is_fifo()
    reader.join(10)
    assert "clearance check" in arrived[0]


def test_a_link_is_written_through_and_stays_a_link(folders):
    (folders / "kept").mkdir()
    (folders / "link.md").symlink_to(folders / "kept" / "real.md")
    options = ("--fail-if", "accuracy drops 1pt", "--markdown", str(folders / "link.md"))
    for _ in range(2):  # to a file that is missing, then to one that is there
        assert check(folders, "alike", *options)[0] == 0
        assert (folders / "link.md").is_symlink()
        assert "passed" in (folders / "kept" / "real.md").read_text("utf-8")


def test_an_open_descriptor_is_written_to(folders):
    """As a shell's ``>(cat)`` gives it, below a folder where no file can be made."""
    read, write = os.pipe()
    options = ("--fail-if", "accuracy drops 1pt", "--junit", f"/dev/fd/{write}", "--quiet")
    assert check(folders, "alike", *options) == (0, "", "")
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as file:
        assert "<testsuites>" in file.read()


def test_a_file_that_the_output_goes_to_keeps_what_it_has(folders):
    """As in ``clearance check ... --markdown /dev/stdout >> summary.md``."""
    summary = folders / "summary.md"
    summary.write_text("before\n", "utf-8")
    words = [
        "check",
        "alike",
        "--against",
        "last",
        "--fail-if",
        "accuracy drops 1pt",
        "--markdown",
        "/dev/stdout",
    ]
    with summary.open("a", encoding="utf-8") as file:
        subprocess.run([sys.executable, "-m", "clearance", *words], cwd=folders, stdout=file, check=True)
    lines = summary.read_text("utf-8").splitlines()
    assert lines[:2] == ["before", "### clearance check: passed"]
    assert lines[-1].startswith("passed: accuracy drops 1pt")
