"""Runs at an address: a storage that refuses for a while, one that replaces what it should not, and leases."""

import json
import threading
import time
from pathlib import Path
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from clearance.runs.manifest import sha256
from clearance.runs.remote import RemoteRuns


class Refusing(MemoryFileSystem):
    """Refuses every call three times, and then answers."""

    protocol = "refusing"
    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list] = [""]
    asked: ClassVar[dict] = {}

    def _ask(self, *call):
        self.asked[call] = self.asked.get(call, 0) + 1
        if self.asked[call] % 4:
            raise OSError("503 Slow Down")

    def cat_file(self, path, *arguments, **options):
        self._ask("cat", path)
        return super().cat_file(path, *arguments, **options)

    def pipe_file(self, path, value, mode="overwrite", **options):
        self._ask("pipe", path)
        return super().pipe_file(path, value, mode=mode, **options)


class Replacing(MemoryFileSystem):
    """Knows no condition."""

    protocol = "replacing"
    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list] = [""]

    def pipe_file(self, path, value, mode="overwrite", **options):
        del mode
        return super().pipe_file(path, value, **options)


class Slow(MemoryFileSystem):
    """Copies no checkpoint before it is let go."""

    protocol = "slow"
    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list] = [""]
    asked = threading.Event()
    let_go = threading.Event()

    def pipe_file(self, path, value, mode="overwrite", **options):
        if "/attempts/" in path:
            self.asked.set()
            self.let_go.wait()
        return super().pipe_file(path, value, mode=mode, **options)


for kind in (Refusing, Replacing, Slow):
    fsspec.register_implementation(kind.protocol, kind, clobber=True)


def test_a_storage_that_refuses_three_times_and_then_answers_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("clearance.runs.remote.FIRST_PAUSE", 0.001)
    runs = RemoteRuns("refusing://bucket/runs")
    runs.check()
    with runs.attempt("one", tmp_path / "one") as attempt:
        (tmp_path / "one" / "result.json").write_text("{}")
        assert attempt.publish()
    assert runs.fetch("one", tmp_path / "again")
    assert (tmp_path / "again" / "result.json").read_text() == "{}"


def test_a_storage_that_replaces_what_it_should_not_is_refused():
    with pytest.raises(ValueError, match="can refuse to replace an object; replacing://bucket replaced one"):
        RemoteRuns("replacing://bucket").check()


def test_of_two_attempts_that_finish_one_counts(tmp_path):
    """The first is stalled: it renews no lease, and wakes up when the second has finished."""
    runs, eager = RemoteRuns("memory://two", lease_seconds=1e3), RemoteRuns("memory://two", lease_seconds=0.1)
    with runs.attempt("run", tmp_path / "first") as first:
        (tmp_path / "first" / "result.json").write_text("first")
        with eager.attempt("run", tmp_path / "second") as second:
            assert not second.over
            (tmp_path / "second" / "result.json").write_text("second")
            assert second.publish()
        assert not first.publish()
    assert runs.fetch("run", tmp_path / "found")
    assert (tmp_path / "found" / "result.json").read_text() == "second"
    with runs.attempt("run", tmp_path / "third") as third:
        assert third.over


def test_an_attempt_waits_for_one_that_renews_its_lease(tmp_path):
    said: list[str] = []
    runs = RemoteRuns("memory://wait", lease_seconds=0.4)
    inside, leave = threading.Event(), threading.Event()

    def work():
        with runs.attempt("run", tmp_path / "first") as first:
            inside.set()
            leave.wait()
            (tmp_path / "first" / "result.json").write_text("first")
            assert first.publish()

    def heard(text):
        said.append(text)
        leave.set()

    worker = threading.Thread(target=work)
    worker.start()
    inside.wait()
    with runs.attempt("run", tmp_path / "second", heard) as second:
        assert second.over
    worker.join()
    assert len(said) == 1


def test_the_lease_is_renewed_while_a_checkpoint_is_copied(tmp_path):
    runs = RemoteRuns("slow://bucket", lease_seconds=0.4)
    with runs.attempt("run", tmp_path / "first") as first:
        place = tmp_path / "first" / "checkpoints" / "00000001"
        place.mkdir(parents=True)
        (place / "state.json").write_text("1")
        assert Slow.asked.wait(timeout=60)
        found = set()
        for _ in range(8):
            time.sleep(0.2)
            found.add(runs._read(first._lease(1)))
        Slow.let_go.set()
    assert len(found) > 2


def test_the_newest_checkpoint_of_all_attempts_is_where_the_next_begins(tmp_path):
    runs = RemoteRuns("memory://resume", lease_seconds=0.1)
    for step in (2, 4):
        with runs.attempt("run", tmp_path / "run"):
            place = Path(tmp_path, "run", "checkpoints", f"{step:08d}")
            place.mkdir(parents=True)
            (place / "state.json").write_text(json.dumps(step))
            (tmp_path / "run" / "metrics.jsonl").write_text(f"{step}\n")
    with runs.attempt("run", tmp_path / "run"):
        found = sorted(
            path.relative_to(tmp_path / "run").as_posix() for path in (tmp_path / "run").rglob("*.*")
        )
        assert found == ["checkpoints/00000004/state.json", "metrics.jsonl"]


def test_an_object_that_was_changed_is_an_error(tmp_path):
    runs = RemoteRuns("memory://damage")
    with runs.attempt("run", tmp_path / "run") as attempt:
        (tmp_path / "run" / "result.json").write_text("{}")
        attempt.publish()
    runs.write(f"run/attempts/{attempt.id}/result.json", b"{ }")
    with pytest.raises(ValueError, match=r"result.json must be as it was written; it is changed"):
        runs.fetch("run", tmp_path / "again")


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil", "..\\evil"])
def test_nothing_is_written_outside_the_runs_folder(tmp_path, name):
    """Whoever can write to the storage writes nowhere else."""
    runs = RemoteRuns(f"memory://{tmp_path.name}")
    listing = json.dumps({"attempt": "a", "step": 1, "files": {name: sha256(b"x")}}).encode()
    runs.write("run/attempts/a/evil", b"x")
    runs.write("run/manifest.json", listing)
    with pytest.raises(ValueError, match=r"run/manifest.json must name files of its run; got"):
        runs.fetch("run", tmp_path / "run")
    runs.write("other/attempts/a/state", listing)
    with (
        pytest.raises(ValueError, match=r"attempts/a/state must name files of its run; got"),
        runs.attempt("other", tmp_path / "other"),
    ):
        pass


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"null", b"[" * 100_000, b'{"files": {}}', b'{"files": ["a"], "attempt": "b"}'],
    ids=lambda content: content[:20].decode(),
)
def test_a_damaged_manifest_is_one_error(tmp_path, content):
    runs = RemoteRuns("memory://damaged")
    runs.write("run/manifest.json", content)
    with pytest.raises(ValueError, match=r"run/manifest.json must name files and their SHA-256; got"):
        runs.fetch("run", tmp_path / "run")


def test_a_folder_is_given_as_a_path(tmp_path):
    with pytest.raises(ValueError, match=rf"must be given by its path; got file://.*Give {tmp_path}\."):
        RemoteRuns(f"file://{tmp_path}").check()
