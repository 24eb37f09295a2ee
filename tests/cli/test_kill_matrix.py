"""Every command that writes, ended at drawn moments: run again it leaves the same files, and no process outlives it.

Moments are drawn as shares of the time that an uninterrupted run takes; a full disk is a small tmpfs (or, where none
can be mounted, a limit on the size of files), of a drawn share of the space that it needs. `KILL_MOMENTS=1` draws one
moment for each command and fault instead of five (twenty for compare and train).

    pytest -m long tests/cli/test_kill_matrix.py -k "train and SIGKILL"
"""

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearance.data.synthetic import GaussianClasses
from cli.forked import Started

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, mounts a tmpfs"),
]

RECIPE = """
dataset: npz:{home}/world.npz
epochs: 8
batch_size: 12
seeds: 2
audits: [accuracy, class_scatter]
methods:
  plain: {{base: none, hidden: [8], lr: 0.1}}
  other: {{base: none, hidden: [8], lr: 0.05}}
"""
SIGNALS = {each.name: each for each in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)}
FULL = "full disk"
LIMIT = 600  # seconds


@dataclass(frozen=True)
class Command:
    """What a user types.

    Args:
        text: After ``python -m``; HOME is the folder of what was there before, OUT the one that is written.
        prepared: A folder of HOME that is copied to OUT before, or none.
    """

    text: str
    prepared: str = ""

    def words(self, home: Path, out: Path) -> list[str]:
        return [word.replace("HOME", str(home)).replace("OUT", str(out)) for word in shlex.split(self.text)]


AUDIT = "clearance audit --audits accuracy,performance,mistakes --quiet"
CHECK = (
    "clearance check HOME/report --against HOME/report --method plain --quiet --fail-if 'accuracy drops 1pt'"
)
SEARCH = "clearance search --methods plain --recipe HOME/recipe.yaml --seeds 1 --choose-by own_error --jobs 1"
COMMANDS = {
    "compare": Command("clearance compare --recipe HOME/recipe.yaml --jobs 2 --out OUT/report"),
    "train": Command("clearance train --recipe HOME/recipe.yaml --out OUT/runs"),
    "audit": Command(f"{AUDIT} HOME/last/run --out OUT/audit"),
    "search": Command(f"{SEARCH} --out OUT/search"),
    "explore": Command("clearance explore --classes 3,8 --per-class 40 --out OUT/page.html"),
    "report": Command("clearance report OUT/report", prepared="report"),
    "diff": Command("clearance diff HOME/last HOME/candidate --quiet --out OUT/diff"),
    "check": Command(f"{CHECK} --junit OUT/check.xml --markdown OUT/check.md"),
    "papers": Command("papers elsayed_2018 --only toy --seeds 1 --jobs 1 --out OUT/toy"),
}


def moments(command: str) -> int:
    return int(os.environ.get("KILL_MOMENTS", 0)) or (20 if command in ("compare", "train") else 5)


def start(command: Command, home: Path, out: Path, limit: int | None = None) -> Started:
    said = home / "said" / f"{uuid.uuid4()}.txt"
    said.parent.mkdir(exist_ok=True)
    environment = {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "CLEARANCE_CACHE": str(home / "cache")}
    return Started(command.words(home, out), said, environment, limit)


def plain(value: Any) -> Any:
    """A tree of JSON without times and memory, which differ from run to run."""
    if isinstance(value, list):
        return [plain(entry) for entry in value if not _is_time(entry)]
    if isinstance(value, dict):
        return {
            key: plain(entry) for key, entry in value.items() if key not in ("created", "seconds", "spent")
        }
    return value


def _is_time(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("name") in ("seconds", "memory")


def left(out: Path) -> dict[str, Any]:
    """Every file below a folder: bytes, or what JSON and pages hold beside times.

    Pages of runs that were trained here, manifests and ledgers only by their presence: they name times throughout.
    """
    timed = any(out.rglob("metrics.jsonl"))
    found: dict[str, Any] = {}
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out).as_posix()
        if path.is_dir() or path.name == "lock" or path.suffix == ".log":
            continue
        if path.suffix == ".json" and path.name != "manifest.json":
            found[name] = plain(json.loads(path.read_text("utf-8")))
        elif path.name in ("manifest.json", "ledger.md") or (timed and path.suffix == ".html"):
            found[name] = "there"
        elif path.suffix == ".html":
            found[name] = re.sub(r"Made [\d:T+-]+\.", "", path.read_text("utf-8"))
        else:
            found[name] = path.read_bytes()
    return found


@pytest.fixture(autouse=True)
def no_network():
    """In place of that of all tests: commands are started through a socket of this machine."""


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A dataset, a recipe, a trained run and a report."""
    folder = tmp_path_factory.mktemp("kill-matrix")
    images = GaussianClasses(class_count=3, separation=5.0).images(25, seed=0)
    np.savez(folder / "world.npz", images=images.images.numpy(), labels=images.labels.numpy())
    (folder / "recipe.yaml").write_text(RECIPE.format(home=folder))
    status, said = start(COMMANDS["compare"], folder, folder / "made").end(LIMIT)
    assert status == 0, said
    shutil.copytree(folder / "made" / "report", folder / "report", ignore=shutil.ignore_patterns("runs"))
    for name, seed in (("last", 0), ("candidate", 1)):
        (run,) = (folder / "made").glob(f"report/runs/plain-seed{seed}-*")
        shutil.copytree(run, folder / name / "run")
        audit = Command(f"{AUDIT} HOME/{name}/run --out HOME/{name}")
        status, said = start(audit, folder, folder).end(LIMIT)
        assert status == 0, said
    return folder


@pytest.fixture(scope="session")
def straight(home) -> Callable[[str], tuple[float, Mapping[str, Any], int]]:
    """How long a command takes, what it leaves and how many bytes, where nothing interrupts it."""
    known: dict[str, tuple[float, Mapping[str, Any], int]] = {}

    def of(command: str) -> tuple[float, Mapping[str, Any], int]:
        if command not in known:
            out = prepare(home, home / "straight" / command, command)
            started = start(COMMANDS[command], home, out)
            status, said = started.end(LIMIT)
            assert status == 0, said
            size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
            known[command] = (time.monotonic() - started.began, left(out), size)
        return known[command]

    return of


def prepare(home: Path, out: Path, command: str) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    if name := COMMANDS[command].prepared:
        shutil.copytree(home / name, out / name, dirs_exist_ok=True)
    return out


def drawn(command: str, fault: str, moment: int) -> float:
    return random.Random(f"{command} {fault} {moment}").uniform(0.02, 1.0)


def cases() -> list[Any]:
    return [
        pytest.param(command, fault, moment, id=f"{command}-{fault.replace(' ', '-')}-{moment}")
        for command in COMMANDS
        for fault in (*SIGNALS, FULL)
        for moment in range(moments(command))
    ]


def check_none_is_left(started: Started) -> None:
    ends = time.monotonic() + 2
    while (alive := started.orphans()) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not alive


def check_same(command: str, home: Path, out: Path, expected: Mapping[str, Any]) -> None:
    """The command once more, uninterrupted, leaves what it leaves where nothing happened before."""
    again = start(COMMANDS[command], home, out)
    status, said = again.end(LIMIT)
    assert status == 0, said
    found = left(out)
    assert [name for name in found if name.endswith(".tmp") or ".tmp-" in name] == []
    assert sorted(found) == sorted(expected)
    assert [name for name in found if found[name] != expected[name]] == []
    check_none_is_left(again)


@pytest.mark.parametrize(("command", "fault", "moment"), cases())
def test_ended_at_any_moment_it_ends_as_if_nothing_had_happened(
    command, fault, moment, home, straight, tmp_path
):
    seconds, expected, size = straight(command)
    share = drawn(command, fault, moment)
    if fault == FULL:
        with_full_disk(command, home, tmp_path / "disk", int(share * size), expected)
        return
    out = prepare(home, tmp_path / "out", command)
    started = start(COMMANDS[command], home, out)
    time.sleep(share * seconds)
    started.send(SIGNALS[fault])
    status, said = started.end(LIMIT)
    assert status in (0, -SIGNALS[fault], 130), said
    assert "Traceback" not in said
    check_none_is_left(started)
    check_same(command, home, out, expected)


def with_full_disk(command: str, home: Path, disk: Path, size: int, expected: Mapping[str, Any]) -> None:
    disk.mkdir()
    mounted = _mount(disk, max(size, 4096))
    try:
        try:
            out = prepare(home, disk / "out", command)
        except OSError:  # not even what is there before fits
            return
        limit = None if mounted else max(1, size // 4)
        started = start(COMMANDS[command], home, out, limit)
        status, said = started.end(LIMIT)
        if status:
            assert status in (1, 2), said
            assert "Traceback" not in said
            assert re.search(r"(No space left on device|File too large): '.+'", said), said
        check_none_is_left(started)
        if mounted:
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        check_same(command, home, out, expected)
    finally:
        if mounted:
            subprocess.run(["umount", str(disk)], check=True)


def _mount(disk: Path, size: int) -> bool:
    """Whether a tmpfs of that many bytes could be mounted."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    return subprocess.run(words, check=False, capture_output=True).returncode == 0
